// How one word becomes ids: the "model" of a tokenizer.json. One kind a class; each owns what it looks words up in and
// refers to the vocabulary for spellings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

/// Of one thread; grows to the longest word and stays.
struct WordScratch {
    std::vector<TokenId> symbols;
    PairMerger::Scratch merger;
    UnigramSegmenter::Scratch segmenter;
    std::vector<UnigramSegmenter::Segment> segments;
};

class WordModel {
public:
    virtual ~WordModel() = default;
    /// "byte-level BPE", ...
    [[nodiscard]] virtual std::string_view kind() const = 0;
    /// Appends the ids of `word`: valid UTF-8, not empty, less than 2^31 bytes.
    virtual void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const = 0;
    /// Appends the id of a byte that is part of no character.
    virtual void encode_byte(unsigned char byte, std::vector<TokenId>& out) const = 0;
    /// The token for text that has none.
    [[nodiscard]] virtual std::optional<TokenId> unknown() const = 0;
};

// Byte-level BPE (GPT-2 and nearly all models after it): a word begins as its bytes, each of which is a token, and
// pairs merge by rank. Where the vocabulary says so (Llama 3, tiktoken) a word that is a token itself is not merged at
// all.

class ByteBpe final : public WordModel {
public:
    enum class WholeWords : std::uint8_t { Merge, TakeFromVocabulary };

    /// Tokens of kind Normal with their bytes set are what words are made of. `vocabulary` stays alive and unchanged
    /// but for tokens of other kinds. A byte that is no token becomes `unk`, unless that is a control token; else it is
    /// dropped.
    ByteBpe(const TokenVocabulary& vocabulary, MergeTable merges, WholeWords whole_words, std::optional<TokenId> unk);

    [[nodiscard]] std::string_view kind() const override { return "byte-level BPE"; }
    void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const override;
    void encode_byte(unsigned char byte, std::vector<TokenId>& out) const override;
    [[nodiscard]] std::optional<TokenId> unknown() const override { return unk_; }

private:
    const TokenVocabulary& vocabulary_;
    PairMerger merger_;
    std::array<TokenId, 256> byte_ids_{};  // -1: none
    std::optional<TokenId> unk_;
    StringIndex words_;  // by bytes; empty where whole words merge
};

// BPE over characters with ranked merges, as a tokenizer.json has it for vocabularies that come from SentencePiece
// (Llama 2, Mistral, Gemma): a character that is no token becomes its byte tokens, else the unknown token.

class CharacterBpe final : public WordModel {
public:
    struct Options {
        std::optional<TokenId> unk;
        bool byte_fallback = false;  // "<0x0A>" stands for a byte of an unknown character
        bool fuse_unk = false;       // a run of unknown characters is one unknown token
        bool ignore_merges = false;  // a word that is a token is not merged
    };

    /// `index` finds the spellings of the model's own tokens in `vocabulary`, which stays alive. Throws FormatError
    /// where some character would have no id; `name` is the file's.
    CharacterBpe(const TokenVocabulary& vocabulary, StringIndex index, MergeTable merges, const Options& options,
                 std::string_view name);

    [[nodiscard]] std::string_view kind() const override { return "BPE"; }
    void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const override;
    void encode_byte(unsigned char byte, std::vector<TokenId>& out) const override;
    [[nodiscard]] std::optional<TokenId> unknown() const override { return options_.unk; }

    /// Whether a merge makes a token that holds `mark` behind another character, so that words cannot be cut there.
    [[nodiscard]] static bool merges_across(const TokenVocabulary& vocabulary, std::string_view mark);

private:
    [[nodiscard]] TokenId find(std::string_view spelling) const {
        return index_.find(spelling, [this](TokenId id) { return vocabulary_.spelling(id); });
    }

    const TokenVocabulary& vocabulary_;
    StringIndex index_;
    PairMerger merger_;
    Options options_;
    std::array<TokenId, 256> byte_ids_{};  // -1: none
};

/// Appends the tokens of the bytes of `text`; false, and none, where a byte has none.
bool append_byte_tokens(const std::array<TokenId, 256>& byte_ids, std::string_view text, std::vector<TokenId>& out);
/// The id of each byte's token "<0x00>" to "<0xFF>"; -1 where there is none.
[[nodiscard]] std::array<TokenId, 256> byte_fallback_ids(const TokenVocabulary& vocabulary, const StringIndex& index);

// The unigram model of a tokenizer.json, word by word: runs of unknown characters become byte tokens where the
// vocabulary has them and says so, else one unknown token.

class UnigramWords final : public WordModel {
public:
    struct Options {
        std::optional<TokenId> unk;
        bool byte_fallback = false;
    };
    /// `scores` are by id; `vocabulary` holds as many tokens, and stays alive. Throws FormatError where some character
    /// would have no id; `name` is the file's.
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
    std::array<TokenId, 256> byte_ids_{};  // -1: none
};

}  // namespace slipstream
