// A regular expression over UTF-8 text: PCRE2 with UTF, UCP and JIT (where the system lets it). Owns the compiled form,
// which threads may share; what a search writes to lies in a Search, one a thread.
//
// Work is bounded: searching gives up with RequestError once its matches have, all together, backtracked far more often
// than the texts are long. PCRE2 bounds one match and does not tell what it took, so each is tried with a small bound,
// which is free, and with one twice as large, which the budget pays for, until it is enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_real_jit_stack_8;

namespace slipstream {

class TextPattern {
public:
    struct Span {
        std::size_t begin, end;
    };

    /// `pcre2` is in PCRE2's own syntax (pattern_dialect.h makes it). `name` is the file's, for messages. Throws
    /// Unsupported where PCRE2 refuses it.
    TextPattern(std::string_view pcre2, std::string_view name);
    TextPattern(TextPattern&&) noexcept = default;
    TextPattern& operator=(TextPattern&&) noexcept = default;
    ~TextPattern() = default;

    /// The matches of one text after another, each from left to right. Keeps the scratch space in between.
    class Search {
    public:
        /// `pattern` stays alive.
        explicit Search(const TextPattern& pattern);
        /// Begins with a text: valid UTF-8, alive while it is searched.
        void begin(std::string_view text);
        /// The next match. Empty ones count, but not where the match before ended.
        [[nodiscard]] std::optional<Span> next();

    private:
        struct Free {
            void operator()(pcre2_real_match_data_8* data) const;
            void operator()(pcre2_real_match_context_8* context) const;
            void operator()(pcre2_real_jit_stack_8* stack) const;
        };
        /// Of PCRE2, within the budget.
        [[nodiscard]] int match(std::size_t from);
        [[nodiscard]] int match_within(std::uint64_t steps, std::size_t from);

        const TextPattern& pattern_;
        std::unique_ptr<pcre2_real_match_data_8, Free> data_;
        std::unique_ptr<pcre2_real_match_context_8, Free> context_;
        std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;  // only once the small one was not enough
        std::string_view text_;
        std::uint64_t steps_left_;  // of backtracking, over all texts
        std::size_t at_ = 0;
        std::optional<std::size_t> last_end_;
    };

private:
    struct FreeCode {
        void operator()(pcre2_real_code_8* code) const;
    };
    std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
    bool is_jit_ = false;
    std::string name_;
};

}  // namespace slipstream
