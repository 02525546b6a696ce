// How one word becomes ids: the "model" of a tokenizer.json. There is one class per kind of model. Each owns the tables
// in which it looks words up, and refers to the vocabulary for the spellings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

/// Scratch space of one thread. It grows to the size that the longest word needs and keeps its memory.
struct WordScratch {
    std::vector<TokenId> symbols;
    PairMerger::Scratch merger;
    UnigramSegmenter::Scratch segmenter;
    std::vector<UnigramSegmenter::Segment> segments;
};

class WordModel {
public:
    virtual ~WordModel() = default;
    /// Returns the name of the algorithm, for inspect and messages: "byte-level BPE", for example.
    [[nodiscard]] virtual std::string_view kind() const = 0;
    /// Appends the ids of `word` to `out`. `word` must be valid UTF-8, not empty, and less than 2^31 bytes long.
    virtual void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const = 0;
    /// Appends the id of `byte`, a byte of a text that is not part of a UTF-8 character, to `out`. Appends nothing if
    /// the byte is dropped (ByteBpe).
    virtual void encode_byte(unsigned char byte, std::vector<TokenId>& out) const = 0;
    /// Returns the token for text that has no other token, or nullopt if the model has no such token.
    [[nodiscard]] virtual std::optional<TokenId> unknown() const = 0;
};

// Byte-level BPE (GPT-2 and nearly all models after it): the symbols of a word are at first its bytes, each of which is
// a token, and pairs merge by rank. If WholeWords::TakeFromVocabulary is given (Llama 3, tiktoken), a word that is
// itself a token is not merged.

class ByteBpe final : public WordModel {
public:
    enum class WholeWords : std::uint8_t { Merge, TakeFromVocabulary };

    /// Words are made of the tokens of kind Normal, whose bytes must be set. `vocabulary` must outlive the model; only
    /// tokens of other kinds may change or be added. A byte that is no token becomes `unk`; if there is no `unk`, or
    /// `unk` is a control token, the byte is dropped.
    ByteBpe(const TokenVocabulary& vocabulary, MergeTable merges, WholeWords whole_words, std::optional<TokenId> unk);

    [[nodiscard]] std::string_view kind() const override { return "byte-level BPE"; }
    void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const override;
    void encode_byte(unsigned char byte, std::vector<TokenId>& out) const override;
    [[nodiscard]] std::optional<TokenId> unknown() const override { return unk_; }

private:
    const TokenVocabulary& vocabulary_;
    PairMerger merger_;
    std::array<TokenId, 256> byte_ids_{};  // [byte]; -1: no token
    std::optional<TokenId> unk_;
    StringIndex words_;  // finds a token by its bytes; empty with WholeWords::Merge
};

// BPE over characters with ranked merges: the model of a tokenizer.json that was made from a SentencePiece vocabulary
// (Llama 2, Mistral, Gemma). A character that is no token becomes its byte tokens, or the unknown token if there are
// none.

class CharacterBpe final : public WordModel {
public:
    struct Options {
        std::optional<TokenId> unk;
        bool byte_fallback = false;   // tokens "<0x00>" to "<0xFF>" spell the bytes of unknown characters
        bool fuse_unk = false;        // consecutive unknown characters become one unknown token
        bool ignore_merges = false;   // a word that is itself a token is not merged
        bool whole_newlines = false;  // a word of newlines that is itself a token is not merged
    };

    /// `index` must find the spellings of the model's own tokens in `vocabulary`, which must outlive the model. Throws
    /// FormatError if some character would have no id: there is neither an unknown token nor a byte token for every
    /// byte. `name` is the name of the file, for the message.
    CharacterBpe(const TokenVocabulary& vocabulary, StringIndex index, MergeTable merges, const Options& options,
                 std::string_view name);

    [[nodiscard]] std::string_view kind() const override { return "BPE"; }
    void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const override;
    void encode_byte(unsigned char byte, std::vector<TokenId>& out) const override;
    [[nodiscard]] std::optional<TokenId> unknown() const override { return options_.unk; }

    /// Returns whether some normal token contains `mark` after another character. Then a merge can cross the beginning
    /// of a word, and text must not be cut into words at `mark`.
    [[nodiscard]] static bool merges_across(const TokenVocabulary& vocabulary, std::string_view mark);

private:
    [[nodiscard]] TokenId find(std::string_view spelling) const {
        return index_.find(spelling, [this](TokenId id) { return vocabulary_.spelling(id); });
    }

    const TokenVocabulary& vocabulary_;
    StringIndex index_;
    PairMerger merger_;
    Options options_;
    std::array<TokenId, 256> byte_ids_{};  // [byte]; -1: no token
};

/// Appends the byte tokens of all bytes of `text` to `out` and returns true. If some byte has no token, returns false
/// and appends nothing. byte_ids[byte] is -1 for a byte without a token.
bool append_byte_tokens(const std::array<TokenId, 256>& byte_ids, std::string_view text, std::vector<TokenId>& out);
/// Returns for each byte the id of its token "<0x00>" to "<0xFF>", or -1 if `index` does not contain it. `index` must
/// be over the spellings of `vocabulary`.
[[nodiscard]] std::array<TokenId, 256> byte_fallback_ids(const TokenVocabulary& vocabulary, const StringIndex& index);

// The unigram model of a tokenizer.json, applied to one word at a time. Consecutive unknown characters become their
// byte tokens if byte_fallback is set and the vocabulary has all of them, else one unknown token.

class UnigramWords final : public WordModel {
public:
    struct Options {
        std::optional<TokenId> unk;
        bool byte_fallback = false;
    };
    /// scores[id] is the score of a token. `vocabulary` must have as many tokens as there are scores, and must outlive
    /// the model. Throws FormatError if there is no unknown token, since some characters would have no id; `name` is
    /// the name of the file, for the message.
    UnigramWords(const TokenVocabulary& vocabulary, StringIndex index, const std::vector<double>& scores,
                 const Options& options, std::string_view name);

    [[nodiscard]] std::string_view kind() const override { return "unigram"; }
    void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const override;
    void encode_byte(unsigned char byte, std::vector<TokenId>& out) const override;
    [[nodiscard]] std::optional<TokenId> unknown() const override { return options_.unk; }

private:
    void encode_unknown(std::string_view run, std::vector<TokenId>& out) const;

    const TokenVocabulary& vocabulary_;
    StringIndex index_;
    UnigramSegmenter segmenter_;
    Options options_;
    std::array<TokenId, 256> byte_ids_{};  // [byte]; -1: no token
};

}  // namespace slipstream
