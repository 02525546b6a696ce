#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/text/tokenizer/text_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// The budget of one search, in backtracking steps: kStepsOfAll plus kStepsPerByte for each byte of its texts. Large
// enough for a run of a million letters that is read twice, small enough to end soon.
constexpr std::uint64_t kStepsOfAll = 4'000'000;
constexpr std::uint64_t kStepsPerByte = 200;
// Backtracking steps that each match may take without a charge to the budget; nearly all matches take fewer.
constexpr std::uint64_t kFreeSteps = 256;
// Address space, in bytes, that is reserved for the JIT stack. It may be large, since pages are used only as needed.
constexpr std::size_t kJitStackBytes = std::size_t{64} << 20;

PCRE2_SPTR8 units(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR8>(text.data());
}

template <typename Pointer>
Pointer checked(Pointer pointer) {
    if (pointer == nullptr) throw std::bad_alloc();
    return pointer;
}

}  // namespace

TextPattern::TextPattern(std::string_view pcre2, std::string_view name)
    : code_(nullptr, pcre2_code_free_8), name_(name) {
    const Owned<pcre2_compile_context_8> context(checked(pcre2_compile_context_create_8(nullptr)),
                                                 pcre2_compile_context_free_8);
    pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit_8(context.get(), 250);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile_8(units(pcre2), pcre2.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                                &offset, context.get()));
    if (!code_) {
        std::array<PCRE2_UCHAR8, 160> message{};
        pcre2_get_error_message_8(error, message.data(), message.size());
        throw Unsupported(fmt::format("{}: the pattern '{}' cannot be used: {} (at byte {})", name, printable(pcre2),
                                      reinterpret_cast<const char*>(message.data()), offset));
    }
    is_jit_ = pcre2_jit_compile_8(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

TextPattern::Search::Search(const TextPattern& pattern)
    : pattern_(pattern),
      data_(checked(pcre2_match_data_create_8(1, nullptr)), pcre2_match_data_free_8),
      context_(checked(pcre2_match_context_create_8(nullptr)), pcre2_match_context_free_8),
      stack_(nullptr, pcre2_jit_stack_free_8),
      steps_left_(kStepsOfAll) {}

void TextPattern::Search::begin(std::string_view text) {
    text_ = text.data() == nullptr ? std::string_view("") : text;
    at_ = 0;
    last_end_.reset();
    steps_left_ += kStepsPerByte * text.size();
}

int TextPattern::Search::match(std::size_t from) {
    int result = match_within(kFreeSteps, from);
    for (std::uint64_t steps = 2 * kFreeSteps; result == PCRE2_ERROR_MATCHLIMIT && steps_left_ > 0; steps *= 2) {
        steps = std::min<std::uint64_t>({steps, steps_left_, std::numeric_limits<std::uint32_t>::max()});
        steps_left_ -= steps;
        result = match_within(steps, from);
    }
    return result;
}

int TextPattern::Search::match_within(std::uint64_t steps, std::size_t from) {
    pcre2_set_match_limit_8(context_.get(), static_cast<std::uint32_t>(steps));
    const auto run = [&] {
        return pattern_.is_jit_ ? pcre2_jit_match_8(pattern_.code_.get(), units(text_), text_.size(), from, 0,
                                                    data_.get(), context_.get())
                                : pcre2_match_8(pattern_.code_.get(), units(text_), text_.size(), from,
                                                PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    };
    const int result = run();
    if (result != PCRE2_ERROR_JIT_STACKLIMIT || stack_) return result;
    stack_.reset(checked(pcre2_jit_stack_create_8(std::size_t{1} << 16, kJitStackBytes, nullptr)));
    pcre2_jit_stack_assign_8(context_.get(), nullptr, stack_.get());
    return run();
}

std::optional<TextPattern::Span> TextPattern::Search::next() {
    while (at_ <= text_.size()) {
        const int result = match(at_);
        if (result == PCRE2_ERROR_NOMATCH) break;
        if (result < 0)
            throw RequestError(
                fmt::format("{}: the tokenizer's pattern takes too long on a text of {} bytes (PCRE2 error {}); "
                            "split the text into smaller parts",
                            pattern_.name_, text_.size(), result));
        const PCRE2_SIZE* const place = pcre2_get_ovector_pointer_8(data_.get());
        const Span span{place[0], place[1]};
        if (span.end > span.begin) {
            at_ = span.end;
            last_end_ = span.end;
            return span;
        }
        at_ = span.end + (span.end < text_.size() ? next_utf8(text_.substr(span.end)).length : 1);
        if (last_end_ == span.end) continue;
        last_end_ = span.end;
        return span;
    }
    at_ = text_.size() + 1;
    return std::nullopt;
}

namespace {

struct Range {
    char32_t first, last;  // ascending, disjoint ranges
    char32_t stand_in;     // older character of the same category and UTF-8 length
};

// Characters assigned after Unicode 14, and an older character that stands in for those of each range. Generated by
// tests/golden/tokenizer/make_newer_characters.py; do not edit.
// clang-format off
constexpr std::array kRanges = std::to_array<Range>({
    {0x897, 0x897, 0x900}, {0xcf3, 0xcf3, 0x903}, {0xece, 0xece, 0x900}, {0x1b4e, 0x1b4f, 0x2e43},
    {0x1b7f, 0x1b7f, 0x2e43}, {0x1c89, 0x1c89, 0x1e00}, {0x1c8a, 0x1c8a, 0x1e01}, {0x2427, 0x2429, 0x2100},
    {0x2ffc, 0x2fff, 0x2100}, {0x31e4, 0x31e5, 0x2100}, {0x31ef, 0x31ef, 0x2100}, {0xa7cb, 0xa7cc, 0x1e00},
    {0xa7cd, 0xa7cd, 0x1e01}, {0xa7da, 0xa7da, 0x1e00}, {0xa7db, 0xa7db, 0x1e01}, {0xa7dc, 0xa7dc, 0x1e00},
    {0x105c0, 0x105f3, 0x10000}, {0x10d40, 0x10d49, 0x104a0}, {0x10d4a, 0x10d4d, 0x10000}, {0x10d4e, 0x10d4e, 0x16b40},
    {0x10d4f, 0x10d4f, 0x10000}, {0x10d50, 0x10d65, 0x10400}, {0x10d69, 0x10d6d, 0x10a01}, {0x10d6e, 0x10d6e, 0x10ead},
    {0x10d6f, 0x10d6f, 0x16b40}, {0x10d70, 0x10d85, 0x10428}, {0x10d8e, 0x10d8f, 0x1d6c1}, {0x10ec2, 0x10ec4, 0x10000},
    {0x10efc, 0x10eff, 0x10a01}, {0x1123f, 0x11240, 0x10000}, {0x11241, 0x11241, 0x10a01}, {0x11380, 0x11389, 0x10000},
    {0x1138b, 0x1138b, 0x10000}, {0x1138e, 0x1138e, 0x10000}, {0x11390, 0x113b5, 0x10000}, {0x113b7, 0x113b7, 0x10000},
    {0x113b8, 0x113ba, 0x11000}, {0x113bb, 0x113c0, 0x10a01}, {0x113c2, 0x113c2, 0x11000}, {0x113c5, 0x113c5, 0x11000},
    {0x113c7, 0x113ca, 0x11000}, {0x113cc, 0x113cd, 0x11000}, {0x113ce, 0x113ce, 0x10a01}, {0x113cf, 0x113cf, 0x11000},
    {0x113d0, 0x113d0, 0x10a01}, {0x113d1, 0x113d1, 0x10000}, {0x113d2, 0x113d2, 0x10a01}, {0x113d3, 0x113d3, 0x10000},
    {0x113d4, 0x113d5, 0x11fff}, {0x113d7, 0x113d8, 0x11fff}, {0x113e1, 0x113e2, 0x10a01}, {0x116d0, 0x116e3, 0x104a0},
    {0x11b00, 0x11b09, 0x11fff}, {0x11bc0, 0x11be0, 0x10000}, {0x11be1, 0x11be1, 0x11fff}, {0x11bf0, 0x11bf9, 0x104a0},
    {0x11f00, 0x11f01, 0x10a01}, {0x11f02, 0x11f02, 0x10000}, {0x11f03, 0x11f03, 0x11000}, {0x11f04, 0x11f10, 0x10000},
    {0x11f12, 0x11f33, 0x10000}, {0x11f34, 0x11f35, 0x11000}, {0x11f36, 0x11f3a, 0x10a01}, {0x11f3e, 0x11f3f, 0x11000},
    {0x11f40, 0x11f40, 0x10a01}, {0x11f41, 0x11f41, 0x11000}, {0x11f42, 0x11f42, 0x10a01}, {0x11f43, 0x11f4f, 0x11fff},
    {0x11f50, 0x11f59, 0x104a0}, {0x11f5a, 0x11f5a, 0x10a01}, {0x1342f, 0x1342f, 0x10000}, {0x13440, 0x13440, 0x10a01},
    {0x13441, 0x13446, 0x10000}, {0x13447, 0x13455, 0x10a01}, {0x13460, 0x143fa, 0x10000}, {0x16100, 0x1611d, 0x10000},
    {0x1611e, 0x16129, 0x10a01}, {0x1612a, 0x1612c, 0x11000}, {0x1612d, 0x1612f, 0x10a01}, {0x16130, 0x16139, 0x104a0},
    {0x16d40, 0x16d42, 0x16b40}, {0x16d43, 0x16d6a, 0x10000}, {0x16d6b, 0x16d6c, 0x16b40}, {0x16d6d, 0x16d6f, 0x11fff},
    {0x16d70, 0x16d79, 0x104a0}, {0x18cff, 0x18cff, 0x10000}, {0x1b132, 0x1b132, 0x10000}, {0x1b155, 0x1b155, 0x10000},
    {0x1cc00, 0x1ccef, 0x10137}, {0x1ccf0, 0x1ccf9, 0x104a0}, {0x1cd00, 0x1ceb3, 0x10137}, {0x1d2c0, 0x1d2d3, 0x10107},
    {0x1df25, 0x1df2a, 0x10428}, {0x1e030, 0x1e06d, 0x16b40}, {0x1e08f, 0x1e08f, 0x10a01}, {0x1e4d0, 0x1e4ea, 0x10000},
    {0x1e4eb, 0x1e4eb, 0x16b40}, {0x1e4ec, 0x1e4ef, 0x10a01}, {0x1e4f0, 0x1e4f9, 0x104a0}, {0x1e5d0, 0x1e5ed, 0x10000},
    {0x1e5ee, 0x1e5ef, 0x10a01}, {0x1e5f0, 0x1e5f0, 0x10000}, {0x1e5f1, 0x1e5fa, 0x104a0}, {0x1e5ff, 0x1e5ff, 0x11fff},
    {0x1f6dc, 0x1f6dc, 0x10137}, {0x1f774, 0x1f776, 0x10137}, {0x1f77b, 0x1f77f, 0x10137}, {0x1f7d9, 0x1f7d9, 0x10137},
    {0x1f8b2, 0x1f8bb, 0x10137}, {0x1f8c0, 0x1f8c1, 0x10137}, {0x1fa75, 0x1fa77, 0x10137}, {0x1fa87, 0x1fa89, 0x10137},
    {0x1fa8f, 0x1fa8f, 0x10137}, {0x1faad, 0x1faaf, 0x10137}, {0x1fabb, 0x1fabf, 0x10137}, {0x1fac6, 0x1fac6, 0x10137},
    {0x1face, 0x1facf, 0x10137}, {0x1fada, 0x1fadc, 0x10137}, {0x1fadf, 0x1fadf, 0x10137}, {0x1fae8, 0x1fae9, 0x10137},
    {0x1faf7, 0x1faf8, 0x10137}, {0x1fbcb, 0x1fbef, 0x10137}, {0x2b739, 0x2b739, 0x20000}, {0x2ebf0, 0x2ee5d, 0x20000},
    {0x31350, 0x323af, 0x20000},
});
// clang-format on

const Range* find_range(char32_t point) {
    if (point < kRanges.front().first) return nullptr;
    const auto* const range = std::ranges::lower_bound(kRanges, point, {}, &Range::last);
    return range != kRanges.end() && point >= range->first ? range : nullptr;
}

/// Returns the position of the first newer character at or after `from`, or text.size() if there is none.
std::size_t find_newer(std::string_view text, std::size_t from) {
    while (from < text.size()) {
        const auto lead = static_cast<unsigned char>(text[from]);
        if (lead < 0xe0) {  // UTF-8 lead byte of a character below U+0800; kRanges begins at U+0897
            ++from;
            continue;
        }
        if (find_range(code_point(text.substr(from))) != nullptr) return from;
        from += lead < 0xf0 ? 3 : 4;
    }
    return text.size();
}

}  // namespace

bool has_newer_characters(std::string_view text) {
    return find_newer(text, 0) != text.size();
}

std::string with_older_characters(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t newer = find_newer(text, begin);
        result.append(text.substr(begin, newer - begin));
        begin = newer;
        if (begin == text.size()) break;
        const std::size_t before = result.size();
        append_utf8(find_range(code_point(text.substr(begin)))->stand_in, result);
        begin += result.size() - before;
    }
    return result;
}

}  // namespace slipstream
