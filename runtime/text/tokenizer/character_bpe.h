// BPE over characters with ranked merges, as a tokenizer.json has it for vocabularies that come from SentencePiece
// (Llama 2, Mistral, Gemma): a character that is no token becomes its byte tokens, else the unknown token.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/text/tokenizer/string_index.h"
#include "runtime/text/tokenizer/token_vocabulary.h"
#include "runtime/text/tokenizer/word_model.h"

namespace slipstream {

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

/// The id of each byte's token "<0x00>" to "<0xFF>"; -1 where there is none.
[[nodiscard]] std::array<TokenId, 256> byte_fallback_ids(const TokenVocabulary& vocabulary, const StringIndex& index);

}  // namespace slipstream
