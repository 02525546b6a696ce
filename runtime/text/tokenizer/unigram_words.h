// The unigram model of a tokenizer.json, word by word: runs of unknown characters become byte tokens where the
// vocabulary has them and says so, else one unknown token.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "runtime/text/tokenizer/string_index.h"
#include "runtime/text/tokenizer/token_vocabulary.h"
#include "runtime/text/tokenizer/word_model.h"

namespace slipstream {

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

private:
    void encode_unknown(std::string_view run, std::vector<TokenId>& out) const;

    const TokenVocabulary& vocabulary_;
    StringIndex index_;
    UnigramSegmenter segmenter_;
    Options options_;
    std::array<TokenId, 256> byte_ids_{};  // -1: none
};

}  // namespace slipstream
