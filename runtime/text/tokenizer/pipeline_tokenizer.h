// The tokenizer that a tokenizer.json describes, and the other byte-level kinds with it: added tokens are found, the
// text between them normalised and cut into words, each word encoded by the model. Made of parts that a reader of the
// file has put together; knows no file format.
//
// Bytes that are no UTF-8, which the originals do not take, are encoded one by one, and nothing is put in front of the
// text behind them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/marked_text.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/token_matchers.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"
#include "runtime/text/tokenizer/word_models.h"

namespace slipstream {

struct PipelineParts {
    std::unique_ptr<TokenVocabulary> vocabulary;  // where it is: the model refers to it
    std::unique_ptr<WordModel> model;
    TextNormalizer normalizer;
    std::vector<PreTokenizerStep> pre_tokenizer;
    std::vector<AddedToken> added_tokens;  // their ids are in the vocabulary
    std::optional<TokenId> bos_id, eos_id;
    bool adds_bos = false, adds_eos = false;
    bool adds_space_prefix = false;
    std::vector<TokenId> end_tokens;  // in any order
};

class PipelineTokenizer final : public Tokenizer {
public:
    explicit PipelineTokenizer(PipelineParts parts);

    [[nodiscard]] std::string_view kind() const override { return model_->kind(); }
    [[nodiscard]] std::int64_t vocab_size() const override { return vocabulary_->size(); }
    [[nodiscard]] std::optional<TokenId> bos_id() const override { return bos_id_; }
    [[nodiscard]] std::optional<TokenId> eos_id() const override { return eos_id_; }
    [[nodiscard]] bool adds_bos() const override { return adds_bos_; }
    [[nodiscard]] bool adds_eos() const override { return adds_eos_; }
    [[nodiscard]] TokenKind token_kind(TokenId id) const override { return vocabulary_->kind(id); }
    [[nodiscard]] std::vector<TokenId> end_tokens() const override { return end_tokens_; }
    /// Tokens that were added without being special are found in either mode. Throws RequestError beyond 512 MiB, and
    /// where a pattern of the file takes too long.
    [[nodiscard]] std::vector<TokenId> encode(std::string_view text, SpecialTokens special,
                                              const std::atomic<bool>* cancel = nullptr) const override;
    [[nodiscard]] std::string_view piece(TokenId id) const override { return vocabulary_->spelling(id); }
    [[nodiscard]] std::string_view token_bytes(TokenId id) const override { return vocabulary_->bytes(id); }
    [[nodiscard]] bool adds_space_prefix() const override { return adds_space_prefix_; }

protected:
    [[nodiscard]] std::vector<TokenId> encode_marked(std::string_view text, SaidBytes said,
                                                     const std::atomic<bool>* cancel) const override;

private:
    class Encoding;
    [[nodiscard]] std::vector<TokenId> encode_all(std::string_view text, SpecialTokens special, SaidBytes said,
                                                  const std::atomic<bool>* cancel) const;

    std::unique_ptr<TokenVocabulary> vocabulary_;
    std::unique_ptr<WordModel> model_;
    TextNormalizer normalizer_;
    PreTokenizer pre_tokenizer_;
    AddedTokenMatcher in_text_;        // added tokens that are found before normalising
    AddedTokenMatcher in_normalised_;  // and behind it
    std::optional<TokenId> bos_id_, eos_id_;
    bool adds_bos_, adds_eos_, adds_space_prefix_;
    std::vector<TokenId> end_tokens_;  // ascending
    std::vector<bool> trusted_only_;   // by id
};

// What the readers of byte-level vocabularies share: added tokens take their places in the vocabulary, and which tokens
// begin and end a text is settled between the files of a directory.

/// tokenizer_config.json of a Hugging Face directory, as far as it is about ids: which class of tokenizer the files are
/// for, which tokens begin and end a text, and the tokens that were added.
struct TokenizerSettings {
    std::string tokenizer_class;  // "Qwen2Tokenizer", or empty
    std::optional<std::string> bos_token, eos_token, unk_token;
    std::optional<bool> add_bos, add_eos, add_prefix_space;
    std::vector<AddedToken> added_tokens;  // "added_tokens_decoder", by ascending id
};

/// The tokens around a text, as a post_processor says.
struct TextTemplate {
    std::optional<TokenId> before, after;
};

/// What a directory says beside the tokenizer's files; add_bos overrules them.
struct TextEnds {
    std::optional<std::int64_t> bos_id;  // where no file names the token
    std::optional<bool> add_bos;
};

/// Adds each token at its id, or finds it where the model's vocabulary has its spelling already; returns them with
/// their ids. Of equal contents the last counts. Throws FormatError where an id belongs to another token; `name` is the
/// file's.
[[nodiscard]] std::vector<AddedToken> place_added_tokens(std::vector<AddedToken> tokens, IndexedVocabulary& vocabulary,
                                                         const std::string& name);

/// Sets BOS, EOS and end tokens of `parts`, whose vocabulary and added tokens are there. Throws FormatError.
void set_text_ends(const TokenizerSettings& settings, const TextTemplate& around, const TextEnds& ends,
                   PipelineParts& parts, const std::string& name);

}  // namespace slipstream
