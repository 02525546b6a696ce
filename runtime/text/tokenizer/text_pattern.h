// A regular expression over UTF-8 text: PCRE2 with the options UTF and UCP, and JIT if the system allows it. A
// TextPattern owns the compiled pattern, which threads may share. A Search holds what matching writes to; each thread
// needs its own.
//
// Work is bounded: a search throws RequestError once all its matches together have backtracked far more often than the
// texts are long. PCRE2 can limit the steps of one match but does not report how many it used. So each match is tried
// with a small limit, which is free; if that fails, the limit is doubled until it suffices, and each such try is paid
// from the budget of the search.
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
    /// A pointer that owns an object of PCRE2, with the library's function that frees it.
    template <typename T>
    using Owned = std::unique_ptr<T, void (*)(T*)>;
    struct Span {
        std::size_t begin, end;
    };

    /// `pcre2` is a pattern in PCRE2's own syntax (to_pcre2() of pattern_dialect.h makes it). `name` is the name of the
    /// file, for messages. Throws Unsupported if PCRE2 refuses the pattern.
    TextPattern(std::string_view pcre2, std::string_view name);
    TextPattern(TextPattern&&) noexcept = default;
    TextPattern& operator=(TextPattern&&) noexcept = default;
    ~TextPattern() = default;

    /// Finds the matches in texts, one text after another, in each from left to right. Keeps its scratch space between
    /// texts.
    class Search {
    public:
        /// `pattern` must outlive the search and must not be moved.
        explicit Search(const TextPattern& pattern);
        /// Starts to search `text`, which must be valid UTF-8 and stay alive while it is searched.
        void begin(std::string_view text);
        /// Returns the next match of the text, or nullopt if there is none. Empty matches count, except at the end of
        /// the match before. Throws RequestError if the budget of steps is used up.
        [[nodiscard]] std::optional<Span> next();

    private:
        /// Matches at or after `from` within the budget. Returns the result code of PCRE2.
        [[nodiscard]] int match(std::size_t from);
        [[nodiscard]] int match_within(std::uint64_t steps, std::size_t from);

        const TextPattern& pattern_;
        Owned<pcre2_real_match_data_8> data_;
        Owned<pcre2_real_match_context_8> context_;
        Owned<pcre2_real_jit_stack_8> stack_;  // created when the default stack (32 KiB) was too small
        std::string_view text_;
        std::uint64_t steps_left_;  // backtracking steps left, for all texts of this search
        std::size_t at_ = 0;
        std::optional<std::size_t> last_end_;
    };

private:
    Owned<pcre2_real_code_8> code_;
    bool is_jit_ = false;
    std::string name_;
};

// Replacement of characters that are too new for the installed regex library.
//
// Patterns ask for categories (\p{L}), and the characters of a category depend on the Unicode version: PCRE2 10.42
// implements Unicode 14, the libraries that vocabularies are trained with implement 16 and later. So text is matched in
// a copy in which each newer character is replaced by an older one of the same category and the same length in bytes;
// offsets stay the same. A text without newer characters, which most texts are, is matched in place.

/// Returns whether `text`, which must be valid UTF-8, contains a character that was assigned after Unicode 14.
[[nodiscard]] bool has_newer_characters(std::string_view text);

/// Returns a copy of `text`, which must be valid UTF-8, in which each character assigned after Unicode 14 is replaced
/// by an older one of the same category. The copy has the same length in bytes.
[[nodiscard]] std::string with_older_characters(std::string_view text);

}  // namespace slipstream
