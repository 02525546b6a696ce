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
    /// With the library's function that frees it.
    template <typename T>
    using Owned = std::unique_ptr<T, void (*)(T*)>;
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
        /// Of PCRE2, within the budget.
        [[nodiscard]] int match(std::size_t from);
        [[nodiscard]] int match_within(std::uint64_t steps, std::size_t from);

        const TextPattern& pattern_;
        Owned<pcre2_real_match_data_8> data_;
        Owned<pcre2_real_match_context_8> context_;
        Owned<pcre2_real_jit_stack_8> stack_;  // only once the small one was not enough
        std::string_view text_;
        std::uint64_t steps_left_;  // of backtracking, over all texts
        std::size_t at_ = 0;
        std::optional<std::size_t> last_end_;
    };

private:
    Owned<pcre2_real_code_8> code_;
    bool is_jit_ = false;
    std::string name_;
};

// Characters that the installed regex library may be too old to know.
//
// Patterns ask for categories (\p{L}), and which characters have one depends on the Unicode version: PCRE2 10.42 is at
// 14, the libraries that vocabularies are trained with are at 16 and later. Text is therefore matched in a copy in
// which each newer character is replaced by an older one of the same category and the same length in bytes, so that
// offsets stay. Text without such characters, nearly all of it, is matched in place.

/// Whether `text`, valid UTF-8, holds a character assigned after Unicode 14.
[[nodiscard]] bool has_newer_characters(std::string_view text);

/// `text` with each of them replaced; same length.
[[nodiscard]] std::string with_older_characters(std::string_view text);

}  // namespace slipstream
