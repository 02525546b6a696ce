// Tokens that are found in a text by their spelling.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/marked_text.h"
#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/text_pattern.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/utf8.h"

namespace slipstream {

// Finds pieces that are matched by their spelling before any merging: special tokens, user-defined pieces. The longest
// match at a place wins, places are tried from left to right.
//
// The spellings lie sorted. At a place, the run of those that begin like the text is narrowed byte by byte, by binary
// search; a spelling that is complete stands first in its run. So building takes O(n log n) comparisons, and a place
// O(log n) for each byte in which the text and any spelling agree, however many spellings there are.

class SpellingMatcher {
public:
    struct Entry {
        std::string spelling;
        TokenId id;
    };
    struct Match {
        std::size_t begin;
        std::size_t length;
        TokenId id;
    };

    /// Empty spellings are ignored; of equal spellings the first wins.
    explicit SpellingMatcher(std::vector<Entry> entries);

    [[nodiscard]] bool empty() const { return entries_.empty(); }
    /// The longest match at the beginning of `text`.
    [[nodiscard]] std::optional<Match> match_at_begin(std::string_view text) const;
    /// The first match at or after `from`.
    [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

private:
    [[nodiscard]] const Entry* longest(std::string_view text) const;

    std::vector<Entry> entries_;                 // sorted by spelling, each once
    std::array<std::size_t, 257> first_byte_{};  // entries that begin with byte b: [first_byte_[b], first_byte_[b + 1])
};

// Tokens that are found in text before anything else: special tokens, and others that were added to a vocabulary. Each
// has rules of its own, as the tokenizers package has them: it may take the white space at its sides with it, or only
// match where it stands as a word of its own. The longest match at a place wins.
//
// This is the one place that finds control tokens, in each tokenizer, in the text as the tokenizer sees it: a token
// that is `trusted_only` is found only where no byte of its spelling was said. Word models may hold the same spellings
// (unigram pieces, merges, whole words); encode_refusing() keeps their ids out of what was said.

struct AddedToken {
    std::string content;
    TokenId id = -1;
    bool special = false;  // prints nothing; only found where special tokens are parsed
    bool lstrip = false;   // takes the white space on its left with it
    bool rstrip = false;
    bool single_word = false;   // only between characters that are no letters, digits or marks
    bool normalized = false;    // found in normalised text, else in the text as it comes
    bool trusted_only = false;  // never found in what was said: Tokenizer::trusted_only_ids()
};

/// Looking for a token costs its length at every place of a text that begins like it, so that it must be short. Throws
/// FormatError beyond 1 KiB; `name` is the file's.
void check_added_token(const AddedToken& token, std::string_view name);

class AddedTokenMatcher {
public:
    struct Part {
        std::string_view text;
        std::optional<TokenId> id;  // nothing: text between tokens
    };

    /// Tokens with empty content are ignored.
    explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});

    /// Calls `emit` with the parts of `text`, valid UTF-8, in order; text between tokens is never empty.
    template <typename Emit>
    void split(std::string_view text, SpecialTokens special, SaidBytes said, Emit&& emit) const {
        std::size_t done = 0;
        for (std::size_t from = 0; const auto match = find(text, from, said);) {
            from = match->begin + match->length;
            const auto place = placed(text, *match, done, special);
            if (!place) continue;
            if (place->begin > done) emit(Part{text.substr(done, place->begin - done), std::nullopt});
            emit(Part{text.substr(match->begin, match->length), match->id});
            done = place->end;
        }
        if (done < text.size()) emit(Part{text.substr(done), std::nullopt});
    }

private:
    struct Place {
        std::size_t begin, end;
    };
    /// The first match at or after `from` that what was said has no part in.
    [[nodiscard]] std::optional<SpellingMatcher::Match> find(std::string_view text, std::size_t from,
                                                             SaidBytes said) const;
    /// What the match takes of the text, from `done` on; nothing where its rules forbid it.
    [[nodiscard]] std::optional<Place> placed(std::string_view text, const SpellingMatcher::Match& match,
                                              std::size_t done, SpecialTokens special) const;
    [[nodiscard]] bool is_word_character(std::string_view text) const;

    SpellingMatcher matcher_;
    std::unordered_map<TokenId, AddedToken> rules_;
    std::optional<TextPattern> word_character_;  // where a token asks for it
};

/// Appends the ids that `encode` appends for `text`, valid UTF-8 and not empty, without those that `is_refused`: where
/// there are such, the halves of the text are encoded one by one, down to characters and their bytes, and a byte's
/// refused id is dropped. So only the text around a refused id is cut.
template <typename Encode, typename EncodeByte, typename IsRefused>
void encode_refusing(std::string_view text, const Encode& encode, const EncodeByte& encode_byte,
                     const IsRefused& is_refused, std::vector<TokenId>& out) {
    const std::size_t first = out.size();
    const auto begin = [&] { return out.begin() + static_cast<std::ptrdiff_t>(first); };
    encode(text);
    if (std::none_of(begin(), out.end(), is_refused)) return;
    out.resize(first);
    const std::size_t half = text.size() < 2 ? 0 : last_character(text.substr(0, text.size() / 2 + 1));
    const std::size_t middle = half > 0 ? half : next_utf8(text).length;
    if (middle < text.size()) {
        encode_refusing(text.substr(0, middle), encode, encode_byte, is_refused, out);
        encode_refusing(text.substr(middle), encode, encode_byte, is_refused, out);
        return;
    }
    for (const char byte : text) encode_byte(static_cast<unsigned char>(byte));
    out.erase(std::remove_if(begin(), out.end(), is_refused), out.end());
}

}  // namespace slipstream
