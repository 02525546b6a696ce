#include "runtime/text/tokenizer/precompiled_charsmap.h"

#include <utf8proc.h>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

constexpr std::size_t kUnitBytes = 4;
constexpr std::uint32_t kLeaf = 1U << 31;

// A unit of the double array.
bool has_leaf(std::uint32_t unit) {
    return (unit >> 8 & 1U) == 1;
}
std::uint32_t label(std::uint32_t unit) {
    return unit & (kLeaf | 0xffU);
}
std::uint32_t offset(std::uint32_t unit) {
    return unit >> 10 << ((unit & 0x200U) >> 6);
}
std::uint32_t value(std::uint32_t unit) {
    return unit & ~kLeaf;
}

std::uint32_t read_unit(std::string_view bytes) {
    std::uint32_t unit = 0;
    for (std::size_t i = kUnitBytes; i-- > 0;) unit = unit << 8 | static_cast<unsigned char>(bytes[i]);
    return unit;
}

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view blob, std::string_view name) {
    const auto fail = [&](std::string_view what) {
        throw FormatError(
            fmt::format("{}: the normalisation rules ({} bytes) {}; the file is broken", name, blob.size(), what));
    };
    if (blob.size() < 2 * kUnitBytes) fail("are too short");
    const std::uint32_t trie_bytes = read_unit(blob);
    if (trie_bytes % kUnitBytes != 0 || trie_bytes == 0 || trie_bytes > blob.size() - kUnitBytes)
        fail(fmt::format("announce a table of {} bytes", trie_bytes));
    units_.reserve(trie_bytes / kUnitBytes);
    for (std::size_t at = kUnitBytes; at < kUnitBytes + trie_bytes; at += kUnitBytes)
        units_.push_back(read_unit(blob.substr(at)));
    replacements_ = blob.substr(kUnitBytes + trie_bytes);
    if (!replacements_.empty() && replacements_.back() != '\0') fail("end in the middle of a text");
}

std::optional<PrecompiledCharsmap::Match> PrecompiledCharsmap::match(std::string_view text, Rule rule) const {
    if (units_.empty()) return std::nullopt;
    std::optional<Match> found;
    std::size_t node = offset(units_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        node ^= byte;
        if (node >= units_.size() || byte == 0 || label(units_[node]) != byte) break;
        const std::uint32_t unit = units_[node];
        node ^= offset(unit);
        if (!has_leaf(unit)) continue;
        if (node >= units_.size()) break;
        const std::uint32_t begin = value(units_[node]);
        if (begin >= replacements_.size()) break;
        found = Match{i + 1, std::string_view(replacements_.data() + begin)};
        if (rule == Rule::Shortest) break;
    }
    return found;
}

void check_growth(std::size_t bytes, std::size_t max_bytes) {
    if (bytes > max_bytes)
        throw RequestError(
            fmt::format("the tokenizer's normaliser makes more than {} bytes of a text; its rules are no sensible ones",
                        max_bytes));
}

std::string PrecompiledCharsmap::replace_graphemes(std::string_view text, std::size_t max_bytes) const {
    std::string result;
    result.reserve(text.size());
    constexpr std::size_t max_whole_grapheme = 5;
    const auto put = [&](std::string_view part) {
        const auto rule = match(part, Rule::Shortest);
        if (rule) result += rule->replacement;
        return rule.has_value();
    };
    for (std::size_t begin = 0; begin < text.size();) {
        check_growth(result.size(), max_bytes);
        utf8proc_int32_t state = 0;
        std::size_t end = begin + next_utf8(text.substr(begin)).length;
        auto previous = static_cast<utf8proc_int32_t>(code_point(text.substr(begin)));
        while (end < text.size()) {
            const auto next = static_cast<utf8proc_int32_t>(code_point(text.substr(end)));
            if (utf8proc_grapheme_break_stateful(previous, next, &state) != 0) break;
            previous = next;
            end += next_utf8(text.substr(end)).length;
        }
        const std::string_view grapheme = text.substr(begin, end - begin);
        begin = end;
        if (grapheme.size() <= max_whole_grapheme && put(grapheme)) continue;
        for (std::size_t at = 0; at < grapheme.size();) {
            const std::string_view character = grapheme.substr(at, next_utf8(grapheme.substr(at)).length);
            if (!put(character)) result += character;
            at += character.size();
        }
    }
    return result;
}

}  // namespace slipstream
