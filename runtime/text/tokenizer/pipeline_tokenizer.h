// The tokenizer that a tokenizer.json describes, which also serves the other byte-level vocabularies. It finds added
// tokens, normalises the text between them, cuts it into words, and encodes each word with a word model. The readers of
// files put the parts together; the tokenizer itself knows no file format.
//
// Bytes that are not valid UTF-8, which the original programs refuse, are encoded one by one. No prefix space and no
// other prefix is put at the beginning of the text that follows such bytes.
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
    std::unique_ptr<TokenVocabulary> vocabulary;  // at a fixed address: the model refers to it
    std::unique_ptr<WordModel> model;
    TextNormalizer normalizer;
    std::vector<PreTokenizerStep> pre_tokenizer;
    std::vector<AddedToken> added_tokens;  // their ids are in the vocabulary
    std::optional<TokenId> bos_id, eos_id;
    bool adds_bos = false, adds_eos = false;
    bool adds_space_prefix = false;
    std::vector<TokenId> end_tokens;  // tokens that end a text, in any order; may repeat
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
    /// Returns the ids of `text`. Added tokens that are not special are found in both modes of `special`. Throws
    /// RequestError if the text is larger than 512 MiB or a pattern of the file needs too many steps on it, and
    /// Interrupted if *cancel turned true.
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
    AddedTokenMatcher in_text_;        // added tokens that are found before the text is normalised
    AddedTokenMatcher in_normalised_;  // added tokens that are found in normalised text
    std::optional<TokenId> bos_id_, eos_id_;
    bool adds_bos_, adds_eos_, adds_space_prefix_;
    std::vector<TokenId> end_tokens_;  // ascending, each once
    std::vector<bool> trusted_only_;   // [id], see Tokenizer::trusted_only_ids()
};

// Shared by the readers of byte-level vocabularies: placing added tokens in the vocabulary, and choosing the tokens
// that begin and end a text from the files of a model's directory.

/// The contents of tokenizer_config.json of a Hugging Face directory that concern ids: the class of tokenizer that the
/// files are for, the tokens that begin and end a text, and the added tokens.
struct TokenizerSettings {
    std::string tokenizer_class;  // "Qwen2Tokenizer", for example; or empty
    std::optional<std::string> bos_token, eos_token, unk_token;
    std::optional<bool> add_bos, add_eos, add_prefix_space;
    std::vector<AddedToken> added_tokens;  // from "added_tokens_decoder", by ascending id
};

/// The tokens that the post_processor of a tokenizer.json puts before and after a text.
struct TextTemplate {
    std::optional<TokenId> before, after;
};

/// What the other files of a model's directory (config.json) say about BOS. add_bos overrides the files of the
/// tokenizer.
struct TextEnds {
    std::optional<std::int64_t> bos_id;  // used only if no file of the tokenizer names a BOS token
    std::optional<bool> add_bos;
};

/// Adds each of `tokens` to the vocabulary at its id. A token whose spelling is in the vocabulary already gets that id
/// instead. Returns the tokens with their ids, ordered by content; of tokens with equal content, the last counts.
/// Throws FormatError if an id belongs to another token or a content has more than 1 KiB; `name` is the name of the
/// file, for the message.
[[nodiscard]] std::vector<AddedToken> place_added_tokens(std::vector<AddedToken> tokens, IndexedVocabulary& vocabulary,
                                                         const std::string& name);

/// Sets the BOS, EOS and end tokens of `parts`, whose vocabulary and added tokens must be set before. Throws
/// FormatError if an id is not in the vocabulary; `name` is the name of the file, for the message.
void set_text_ends(const TokenizerSettings& settings, const TextTemplate& around, const TextEnds& ends,
                   PipelineParts& parts, const std::string& name);

}  // namespace slipstream
