#include "runtime/text/tokenizer/text_normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// Bytes of a unit of the trie, and of the size field before the trie, as the file format fixes them.
constexpr std::size_t kUnitBytes = 4;
// This bit is set in a unit of the trie that holds a value, as Darts-clone writes it.
constexpr std::uint32_t kLeaf = 1U << 31;

// has_leaf(), label(), offset() and value() return the fields of `unit`, a unit of the double array (Darts-clone).
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
        throw RequestError(fmt::format(
            "the tokenizer's normaliser makes more than {} bytes of a text; its rules are not sensible", max_bytes));
}

std::string PrecompiledCharsmap::replace_graphemes(std::string_view text, std::size_t max_bytes,
                                                   MarkCarrier* marks) const {
    std::string result;
    result.reserve(text.size());
    constexpr std::size_t max_whole_grapheme = 5;
    const auto put = [&](std::string_view part) {
        const auto rule = match(part, Rule::Shortest);
        if (!rule) return false;
        const auto at = static_cast<std::size_t>(part.data() - text.data());
        if (marks != nullptr)
            marks->replace({at, at + part.size()}, {result.size(), result.size() + rule->replacement.size()});
        result += rule->replacement;
        return true;
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

namespace {

struct Block {
    char32_t first, last;
};
// Ranges of characters that neither change under NFC nor compose with the character before them (NFC_Quick_Check=Yes,
// combining class 0), ascending. The table is not complete: it holds the ranges that most text consists of.
constexpr std::array kUnchangedByNfc = std::to_array<Block>({{0x0, 0x2ff},
                                                             {0x388, 0x3ff},
                                                             {0x400, 0x482},
                                                             {0x48a, 0x52f},
                                                             {0x1e00, 0x1eff},
                                                             {0x2010, 0x2027},
                                                             {0x2030, 0x205e},
                                                             {0x3001, 0x3029},
                                                             {0x3041, 0x3096},
                                                             {0x30a1, 0x30fa},
                                                             {0x4e00, 0x9fff},
                                                             {0xac00, 0xd7a3},
                                                             {0xff01, 0xff9d},
                                                             {0x1f300, 0x1faff}});

bool is_unchanged_by_nfc(char32_t point) {
    for (const Block& block : kUnchangedByNfc)
        if (point <= block.last) return point >= block.first;
    return false;
}

bool is_ascii(char c) {
    return static_cast<unsigned char>(c) < 0x80;
}

/// Converts runs of valid UTF-8 to a Unicode form. Throws only bad_alloc.
class FormWriter {
public:
    explicit FormWriter(UnicodeForm form) {
        const bool composes = form == UnicodeForm::Nfc || form == UnicodeForm::Nfkc;
        const bool compatible = form == UnicodeForm::Nfkc || form == UnicodeForm::Nfkd;
        const int options =
            UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
        options_ = static_cast<utf8proc_option_t>(options);
    }

    void append(std::string_view run, std::string& out) {
        points_.clear();
        for (std::size_t at = 0; at < run.size(); at += next_utf8(run.substr(at)).length)
            decompose(static_cast<utf8proc_int32_t>(code_point(run.substr(at))));
        order_marks();
        const auto n_points =
            utf8proc_normalize_utf32(points_.data(), static_cast<utf8proc_ssize_t>(points_.size()), options_);
        if (n_points < 0) throw std::bad_alloc();
        for (utf8proc_ssize_t i = 0; i < n_points; ++i) append_utf8(static_cast<char32_t>(points_[i]), out);
    }

    /// Reports to `marks` how append() rewrote a run: `run` begins at byte `from` of the text and became `out`, at byte
    /// `to` of the result. A cluster whose own conversion is found at the beginning of `out` has not composed with the
    /// next cluster, since composing changes a starter, so it is one replacement. If it is not found there, the next
    /// clusters are added to it, up to a chain of four: chains of starters that compose are short.
    void carry(std::string_view run, std::size_t from, std::string_view out, std::size_t to, MarkCarrier& marks) {
        constexpr int longest_chain = 4;
        std::string alone;
        while (marks.is_mixed({from, from + run.size()})) {
            std::size_t end = 0;
            for (int chain = 0; chain < longest_chain && end < run.size(); ++chain) {
                end += end_of_cluster(run.substr(end));
                alone.clear();
                append(run.substr(0, end), alone);
                if (out.starts_with(alone)) break;
            }
            if (!out.starts_with(alone)) break;
            marks.replace({from, from + end}, {to, to + alone.size()});
            run.remove_prefix(end);
            out.remove_prefix(alone.size());
            from += end;
            to += alone.size();
        }
        marks.replace({from, from + run.size()}, {to, to + out.size()});
    }

private:
    void decompose(utf8proc_int32_t point) {
        constexpr std::size_t longest = 32;  // code points; the longest decomposition has 18
        const std::size_t before = points_.size();
        points_.resize(before + longest);
        const auto n = utf8proc_decompose_char(point, points_.data() + before, longest, options_, nullptr);
        if (n < 0 || n > static_cast<utf8proc_ssize_t>(longest)) throw std::bad_alloc();
        points_.resize(before + static_cast<std::size_t>(n));
    }

    static auto combining_class(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

    /// Returns the end of the first cluster of `text`, which must not be empty: a starter and the combining marks after
    /// it, which are put in order together.
    std::size_t end_of_cluster(std::string_view text) {
        std::size_t end = next_utf8(text).length;
        for (; end < text.size(); end += next_utf8(text.substr(end)).length) {
            points_.clear();
            decompose(static_cast<utf8proc_int32_t>(code_point(text.substr(end))));
            if (!points_.empty() && combining_class(points_.front()) == 0) break;
        }
        return end;
    }

    /// Sorts each run of combining marks into canonical order: by combining class, marks of the same class in their old
    /// order. utf8proc's own ordering takes quadratic time.
    void order_marks() {
        for (std::size_t begin = 0; begin < points_.size(); ++begin) {
            std::size_t end = begin;
            while (end < points_.size() && combining_class(points_[end]) != 0) ++end;
            if (end - begin > 1)
                std::ranges::stable_sort(points_.begin() + static_cast<std::ptrdiff_t>(begin),
                                         points_.begin() + static_cast<std::ptrdiff_t>(end), {},
                                         [](utf8proc_int32_t point) { return combining_class(point); });
            begin = end;
        }
    }

    utf8proc_option_t options_{};
    std::vector<utf8proc_int32_t> points_;
};

struct CasePair {
    char32_t first, last;   // capitals
    std::int32_t distance;  // from a capital to its small letter, in code points
};
// Ranges of capitals that are newer than utf8proc 2.8, which implements Unicode 15, and the distance to their small
// letters; taken from the tokenizers package.
constexpr std::array kNewerCapitals = std::to_array<CasePair>({{0x1c89, 0x1c89, 1},
                                                               {0xa7cb, 0xa7cb, -42343},
                                                               {0xa7cc, 0xa7cc, 1},
                                                               {0xa7ce, 0xa7ce, 1},
                                                               {0xa7d2, 0xa7d2, 1},
                                                               {0xa7d4, 0xa7d4, 1},
                                                               {0xa7da, 0xa7da, 1},
                                                               {0xa7dc, 0xa7dc, -42561},
                                                               {0x10d50, 0x10d65, 32},
                                                               {0x16ea0, 0x16eb8, 27}});

char32_t lowercase(char32_t point) {
    for (const CasePair& pair : kNewerCapitals)
        if (point >= pair.first && point <= pair.last)
            return static_cast<char32_t>(static_cast<std::int32_t>(point) + pair.distance);
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

std::string lowercase(std::string_view text, MarkCarrier* marks) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
        length = next_utf8(text.substr(at)).length;
        const std::size_t begin = result.size();
        const char32_t point = code_point(text.substr(at));
        if (point < 0x80) {
            result += point >= 'A' && point <= 'Z' ? static_cast<char>(point | 0x20U) : static_cast<char>(point);
        } else if (point == 0x130) {
            result += "i\xcc\x87";  // U+0130 is the only character whose lower case is two characters
        } else {
            append_utf8(lowercase(point), result);
        }
        if (marks != nullptr && result.size() - begin != length)
            marks->replace({at, at + length}, {begin, result.size()});
    }
    return result;
}

std::string strip(std::string_view text, StripStep::Ends ends, MarkCarrier* marks) {
    const std::size_t size = text.size();
    if (ends != StripStep::Ends::Right)
        while (!text.empty() && is_white_space(code_point(text))) text.remove_prefix(next_utf8(text).length);
    if (marks != nullptr) marks->replace({0, size - text.size()}, {0, 0});
    if (ends == StripStep::Ends::Left) return std::string(text);
    while (!text.empty() && is_white_space(code_point(text.substr(last_character(text)))))
        text.remove_suffix(text.size() - last_character(text));
    return std::string(text);
}

/// Returns `text` with each match that `next`(end of the previous match) returns replaced by `content`. Throws
/// RequestError if the result is longer than `max_bytes`.
template <typename Next>
std::string replace_matches(std::string_view text, std::string_view content, std::size_t max_bytes, MarkCarrier* marks,
                            Next&& next) {
    std::string result;
    result.reserve(text.size() + text.size() / 4);
    std::size_t done = 0;
    for (std::optional<TextPattern::Span> match = next(done); match; match = next(done)) {
        result.append(text.substr(done, match->begin - done)).append(content);
        if (marks != nullptr)
            marks->replace({match->begin, match->end}, {result.size() - content.size(), result.size()});
        check_growth(result.size(), max_bytes);
        done = match->end;
    }
    return result.append(text.substr(done));
}

std::string replace(std::string_view text, const ReplaceStep& step, std::size_t max_bytes, MarkCarrier* marks) {
    if (const auto* literal = std::get_if<std::string>(&step.what))
        return replace_literal(text, *literal, step.content, max_bytes, marks);
    TextPattern::Search search(std::get<TextPattern>(step.what));
    search.begin(text);
    return replace_matches(text, step.content, max_bytes, marks, [&](std::size_t) { return search.next(); });
}

std::string applied(const NormalizerStep& step, std::string_view text, PieceStart start, std::size_t max_bytes,
                    const std::atomic<bool>* cancel, MarkCarrier* marks) {
    if (const auto* form = std::get_if<UnicodeForm>(&step)) return to_unicode_form(text, *form, cancel, marks);
    if (const auto* prepend = std::get_if<PrependStep>(&step)) {
        std::string result;
        if (!text.empty() && start != PieceStart::Inside) result = prepend->text;
        if (marks != nullptr) marks->replace({0, 0}, {0, result.size()});
        return result.append(text);
    }
    if (const auto* how = std::get_if<ReplaceStep>(&step)) return replace(text, *how, max_bytes, marks);
    if (std::holds_alternative<LowercaseStep>(step)) return lowercase(text, marks);
    if (const auto* how = std::get_if<StripStep>(&step)) return strip(text, how->ends, marks);
    return std::get<CharsmapStep>(step).map.replace_graphemes(text, max_bytes, marks);
}

}  // namespace

std::string replace_literal(std::string_view text, std::string_view what, std::string_view content,
                            std::size_t max_bytes, MarkCarrier* marks) {
    return replace_matches(text, content, max_bytes, marks, [&](std::size_t from) -> std::optional<TextPattern::Span> {
        const std::size_t found = text.find(what, from);
        if (found == std::string_view::npos) return std::nullopt;
        return TextPattern::Span{found, found + what.size()};
    });
}

std::string to_unicode_form(std::string_view text, UnicodeForm form, const std::atomic<bool>* cancel,
                            MarkCarrier* marks) {
    std::string result;
    result.reserve(text.size());
    FormWriter writer(form);
    // An ASCII character does not compose with a character before it, so a run ends before the next ASCII character.
    // The ASCII character before the run may compose with the run's first combining mark, so it belongs to the run.
    for (std::size_t begin = 0; begin < text.size();) {
        throw_if_cancelled(cancel);
        std::size_t first = begin;
        while (first < text.size() && is_ascii(text[first])) ++first;
        if (first == text.size()) {
            result.append(text.substr(begin));
            break;
        }
        bool is_unchanged = form == UnicodeForm::Nfc;
        std::size_t end = first;
        while (end < text.size() && !is_ascii(text[end])) {
            is_unchanged = is_unchanged && is_unchanged_by_nfc(code_point(text.substr(end)));
            end += next_utf8(text.substr(end)).length;
        }
        const std::size_t run = first > begin && !is_unchanged ? first - 1 : first;
        result.append(text.substr(begin, run - begin));
        const std::string_view points = text.substr(run, end - run);
        begin = end;
        if (is_unchanged) {
            result.append(points);
            continue;
        }
        const std::size_t written = result.size();
        writer.append(points, result);
        if (marks != nullptr) writer.carry(points, run, std::string_view(result).substr(written), written, *marks);
    }
    return result;
}

MarkedText TextNormalizer::normalise(std::string_view text, SaidBytes said, PieceStart start,
                                     const std::atomic<bool>* cancel) const {
    MarkedText result{.bytes = std::string(text), .said = said.spans(text.size())};
    const std::size_t max_bytes = max_normalised_bytes(text.size());
    for (const NormalizerStep& step : steps_) {
        throw_if_cancelled(cancel);
        std::optional<MarkCarrier> marks;  // only for a text with marks; most have none
        if (!result.said.empty()) marks.emplace(SaidBytes(result.said));
        std::string bytes = applied(step, result.bytes, start, max_bytes, cancel, marks ? &*marks : nullptr);
        check_growth(bytes.size(), max_bytes);
        if (marks) result.said = marks->take(result.bytes.size(), bytes.size());
        result.bytes = std::move(bytes);
    }
    return result;
}

}  // namespace slipstream
