// Finds tokens in a text by their spelling.
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

// Finds pieces that are matched by their spelling before any merging: special tokens and user-defined pieces. Positions
// are tried from left to right; at each position the longest match wins.
//
// The spellings are sorted. At a position, binary search narrows the range of spellings that begin like the text, byte
// by byte; a spelling that is complete is the first of its range. So building takes O(n log n) comparisons, and a
// position takes O(log n) for each byte on which the text and any spelling agree, where n is the number of spellings.

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

    /// Empty spellings are ignored. Of entries with equal spellings, the first counts.
    explicit SpellingMatcher(std::vector<Entry> entries);

    [[nodiscard]] bool empty() const { return entries_.empty(); }
    /// Returns the longest match at the beginning of `text`, or nullopt.
    [[nodiscard]] std::optional<Match> match_at_begin(std::string_view text) const;
    /// Returns the first match at or after byte `from`, the longest one there, or nullopt.
    [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

private:
    [[nodiscard]] const Entry* longest(std::string_view text) const;

    std::vector<Entry> entries_;  // sorted by spelling, each spelling once
    // The entries that begin with byte b are those in [first_byte_[b], first_byte_[b + 1]).
    std::array<std::size_t, 257> first_byte_{};
};

// Tokens that are found in text before any other processing: special tokens, and others that were added to a
// vocabulary. Each token has its own rules, as in the tokenizers package: it may include the white space next to it, or
// match only as a separate word. At each position the longest match wins.
//
// Every tokenizer finds control tokens only with this class, in the text that it is about to encode. A token that is
// `trusted_only` is found only if no byte of its spelling was said (came from a message). Word models may contain the
// same spellings (unigram pieces, merges, whole words); encode_refusing() keeps their ids out of bytes that were said.

struct AddedToken {
    std::string content;
    TokenId id = -1;
    bool special = false;       // prints nothing; found only with SpecialTokens::Parse
    bool lstrip = false;        // includes the white space to its left
    bool rstrip = false;        // includes the white space to its right
    bool single_word = false;   // matches only if no letter, digit or mark is next to it
    bool normalized = false;    // found in normalised text; if false, in the text before it is normalised
    bool trusted_only = false;  // never found in bytes that were said, see Tokenizer::trusted_only_ids()
};

/// Throws FormatError if the content of `token` has more than 1 KiB: a search costs up to the length of a token at each
/// position that begins like it. `name` is the name of the file, for the message.
void check_added_token(const AddedToken& token, std::string_view name);

class AddedTokenMatcher {
public:
    struct Part {
        std::string_view text;
        std::optional<TokenId> id;  // nullopt: text between tokens
    };

    /// Tokens with empty content are ignored.
    explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});

    /// Cuts `text`, which must be valid UTF-8, into tokens and the text between them, and calls `emit`(Part) for each
    /// in order. Text between tokens is never empty. The part of a token is its spelling, without white space that its
    /// rules include. `special` says whether special tokens are found; `said` has the marks of `text`.
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
    /// Returns the first match at or after byte `from`, or nullopt. A trusted_only token matches only if none of its
    /// bytes was said (came from a message).
    [[nodiscard]] std::optional<SpellingMatcher::Match> find(std::string_view text, std::size_t from,
                                                             SaidBytes said) const;
    /// Returns the range of bytes in `text` that `match` covers, including white space by the token's rules, or nullopt
    /// if the rules forbid the match. Bytes before byte `done` of `text` belong to an earlier part and are never
    /// included.
    [[nodiscard]] std::optional<Place> placed(std::string_view text, const SpellingMatcher::Match& match,
                                              std::size_t done, SpecialTokens special) const;
    [[nodiscard]] bool is_word_character(std::string_view text) const;

    SpellingMatcher matcher_;
    std::unordered_map<TokenId, AddedToken> rules_;
    std::optional<TextPattern> word_character_;  // only if a token has single_word set
};

/// Appends the ids that `encode`(text) appends for `text`, which must be valid UTF-8 and not empty, but none for which
/// `is_refused`(id) is true. If there is such an id, the two halves of the text are encoded separately, down to single
/// characters and then their bytes (`encode_byte`(byte)); a refused id of a byte is dropped. So the text is cut only
/// around a refused id. `encode` and `encode_byte` must append to `out`.
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
