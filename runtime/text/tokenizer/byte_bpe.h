// Byte-level BPE (GPT-2 and nearly all models after it): a word begins as its bytes, each of which is a token, and
// pairs merge by rank. Where the vocabulary says so (Llama 3, tiktoken) a word that is a token itself is not merged at
// all.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/text/tokenizer/string_index.h"
#include "runtime/text/tokenizer/token_vocabulary.h"
#include "runtime/text/tokenizer/word_model.h"

namespace slipstream {

class ByteBpe final : public WordModel {
public:
    enum class WholeWords : std::uint8_t { Merge, TakeFromVocabulary };

    /// Tokens of kind Normal with their bytes set are what words are made of. `vocabulary` stays alive and unchanged
    /// but for tokens of other kinds. Throws FormatError where a byte is no token and there is no `unk`; `name` is the
    /// file's.
    ByteBpe(const TokenVocabulary& vocabulary, MergeTable merges, WholeWords whole_words, std::optional<TokenId> unk,
            std::string_view name);

    [[nodiscard]] std::string_view kind() const override { return "byte-level BPE"; }
    void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const override;
    void encode_byte(unsigned char byte, std::vector<TokenId>& out) const override { out.push_back(byte_ids_[byte]); }

private:
    const TokenVocabulary& vocabulary_;
    PairMerger merger_;
    std::array<TokenId, 256> byte_ids_{};
    StringIndex words_;  // by bytes; empty where whole words merge
};

}  // namespace slipstream
