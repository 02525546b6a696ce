// The SentencePiece tokenizer: normalises the text, finds special and user-defined pieces, and runs the model's
// algorithm, BPE word by word or unigram over the whole text, on what is left. It differs from the original for text
// that is not valid UTF-8: the original inserts U+FFFD, this tokenizer keeps the bytes (byte fallback).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/token_matchers.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

class SentencePieceTokenizer final : public Tokenizer {
public:
    /// `model` must have passed validate().
    explicit SentencePieceTokenizer(SentencePieceModel model);
    SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
    SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;

    [[nodiscard]] std::string_view kind() const override {
        return merger_ ? "SentencePiece BPE" : "SentencePiece unigram";
    }
    [[nodiscard]] std::int64_t vocab_size() const override { return std::ssize(model_.pieces); }
    [[nodiscard]] std::optional<TokenId> bos_id() const override { return model_.bos_id; }
    [[nodiscard]] std::optional<TokenId> eos_id() const override { return model_.eos_id; }
    [[nodiscard]] bool adds_bos() const override { return model_.adds_bos; }
    [[nodiscard]] bool adds_eos() const override { return model_.adds_eos; }
    [[nodiscard]] TokenKind token_kind(TokenId id) const override;
    [[nodiscard]] std::vector<TokenId> end_tokens() const override { return model_.end_tokens; }
    /// Returns the ids of `text`. With SpecialTokens::Parse, each part between control tokens is encoded as a text of
    /// its own and gets its own leading space, unless it spells a space after the control token itself: Mistral's
    /// "[INST] Hi" becomes [INST], "▁Hi". User-defined pieces are found in both modes, as SentencePiece does. Throws
    /// RequestError if the text is larger than 512 MiB, and Interrupted if *cancel turned true.
    [[nodiscard]] std::vector<TokenId> encode(std::string_view text, SpecialTokens special,
                                              const std::atomic<bool>* cancel = nullptr) const override;
    [[nodiscard]] std::string_view piece(TokenId id) const override;
    [[nodiscard]] std::string_view token_bytes(TokenId id) const override;
    [[nodiscard]] bool adds_space_prefix() const override { return model_.add_dummy_prefix; }

protected:
    [[nodiscard]] std::vector<TokenId> encode_marked(std::string_view text, SaidBytes said,
                                                     const std::atomic<bool>* cancel) const override;

private:
    /// Scratch space of one call of encode().
    struct Scratch {
        explicit Scratch(const std::atomic<bool>* cancel) { merger.cancel = segmenter.cancel = cancel; }
        BpeMerger::Scratch merger;
        WordCache words;
        UnigramSegmenter::Scratch segmenter;
        std::vector<UnigramSegmenter::Segment> segments;
    };
    [[nodiscard]] std::vector<TokenId> encode_all(std::string_view text, SpecialTokens special, SaidBytes said,
                                                  const std::atomic<bool>* cancel) const;
    void encode_text(std::string_view text, SaidBytes said, PieceStart start, Scratch& scratch,
                     std::vector<TokenId>& out) const;
    void encode_by_merging(std::string_view normalised, SaidBytes said, Scratch& scratch,
                           std::vector<TokenId>& out) const;
    void encode_words(std::string_view normalised, Scratch& scratch, std::vector<TokenId>& out) const;
    void encode_by_score(std::string_view normalised, SaidBytes said, Scratch& scratch,
                         std::vector<TokenId>& out) const;
    /// Appends the ids of `normalised` by the unigram model and returns true. Returns false and appends nothing if a
    /// token that is trusted_only_ would be made of bytes that were said.
    [[nodiscard]] bool append_segments(std::string_view normalised, SaidBytes said, Scratch& scratch,
                                       std::vector<TokenId>& out) const;
    /// Appends the ids of a part of a text: the id of a user-defined piece, or the ids that `encode` appends for the
    /// text between such pieces. If `is_said` is true (a byte of `part` was said), ids that are trusted_only_ are
    /// refused (encode_refusing()).
    template <typename Encode>
    void encode_between(const AddedTokenMatcher::Part& part, bool is_said, const Encode& encode,
                        std::vector<TokenId>& out) const;
    void append_unknown(std::string_view bytes, std::vector<TokenId>& out) const;
    [[nodiscard]] MarkedText normalise(std::string_view text, SaidBytes said, const std::atomic<bool>* cancel) const;
    [[nodiscard]] MarkedText normalise_by_rules(std::string_view text, SaidBytes said,
                                                const std::atomic<bool>* cancel) const;
    [[nodiscard]] bool in_range(TokenId id) const { return id >= 0 && id < vocab_size(); }

    const SentencePieceModel model_;
    std::optional<BpeMerger> merger_;            // refers to model_; only for BPE models
    std::optional<UnigramSegmenter> segmenter_;  // only for unigram models
    std::array<TokenId, 256> byte_ids_{};        // [byte]; -1: no byte piece
    std::vector<std::string> token_bytes_;       // [id]
    std::vector<bool> trusted_only_;             // [id], see Tokenizer::trusted_only_ids()
    AddedTokenMatcher control_;                  // control tokens, found in the text before it is normalised
    AddedTokenMatcher user_defined_;             // user-defined pieces, found in normalised text
    // Finds the user-defined pieces that normalising must not change, in the text before it is normalised.
    SpellingMatcher protected_;
};

}  // namespace slipstream
