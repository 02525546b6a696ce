#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/text/tokenizer/text_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// Backtracking steps: enough for a run of a million letters that is read twice, small enough to end soon.
constexpr std::uint64_t kStepsOfAll = 4'000'000;
constexpr std::uint64_t kStepsPerByte = 200;
constexpr std::uint64_t kFreeSteps = 256;                      // of each match
constexpr std::size_t kJitStackBytes = std::size_t{64} << 20;  // reserved, used as far as needed

PCRE2_SPTR8 units(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR8>(text.data());
}

template <typename Pointer>
Pointer checked(Pointer pointer) {
    if (pointer == nullptr) throw std::bad_alloc();
    return pointer;
}

}  // namespace

void TextPattern::FreeCode::operator()(pcre2_real_code_8* code) const {
    pcre2_code_free_8(code);
}
void TextPattern::Search::Free::operator()(pcre2_real_match_data_8* data) const {
    pcre2_match_data_free_8(data);
}
void TextPattern::Search::Free::operator()(pcre2_real_match_context_8* context) const {
    pcre2_match_context_free_8(context);
}
void TextPattern::Search::Free::operator()(pcre2_real_jit_stack_8* stack) const {
    pcre2_jit_stack_free_8(stack);
}

TextPattern::TextPattern(std::string_view pcre2, std::string_view name) : name_(name) {
    struct FreeContext {
        void operator()(pcre2_compile_context_8* context) const { pcre2_compile_context_free_8(context); }
    };
    const std::unique_ptr<pcre2_compile_context_8, FreeContext> context(
        checked(pcre2_compile_context_create_8(nullptr)));
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
      data_(checked(pcre2_match_data_create_8(1, nullptr))),
      context_(checked(pcre2_match_context_create_8(nullptr))),
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

}  // namespace slipstream
