// The SentencePiece tokenizer: normalisation, special and user-defined pieces, and the algorithm of the model behind
// them, BPE word by word or unigram over the whole text. What the original does with text that is not UTF-8 is not
// followed: it puts U+FFFD in, we keep the bytes (byte fallback).
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/indexed.h"
#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/pre_tokenizer.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/token_matchers.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

class SentencePieceTokenizer final : public Tokenizer {
public:
    /// `model` has passed validate().
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
    /// SpecialTokens::Parse: each part between special tokens is a text of its own, with its own leading space, unless
    /// it spells one behind a control token: Mistral's "[INST] Hi" is [INST], "▁Hi".
    /// User-defined pieces are matched in either mode, as their vocabulary wants it. Throws RequestError beyond 512
    /// MiB.
    [[nodiscard]] std::vector<TokenId> encode(std::string_view text, SpecialTokens special,
                                              const std::atomic<bool>* cancel = nullptr) const override;
    [[nodiscard]] std::string_view piece(TokenId id) const override;
    [[nodiscard]] std::string_view token_bytes(TokenId id) const override;
    [[nodiscard]] bool adds_space_prefix() const override { return model_.add_dummy_prefix; }

protected:
    [[nodiscard]] std::vector<TokenId> encode_marked(std::string_view text, SaidBytes said,
                                                     const std::atomic<bool>* cancel) const override;

private:
    /// Scratch space of one call.
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
    /// Returns false, and appends nothing, if a token that is trusted_only_ came of bytes that were said.
    [[nodiscard]] bool append_segments(std::string_view normalised, SaidBytes said, Scratch& scratch,
                                       std::vector<TokenId>& out) const;
    /// `encode` appends the ids of a text between tokens; those that are trusted_only_ are refused if any of `part` was
    /// said.
    template <typename Encode>
    void encode_between(const AddedTokenMatcher::Part& part, bool is_said, const Encode& encode,
                        std::vector<TokenId>& out) const;
    void append_unknown(std::string_view bytes, std::vector<TokenId>& out) const;
    [[nodiscard]] MarkedText normalise(std::string_view text, SaidBytes said, const std::atomic<bool>* cancel) const;
    [[nodiscard]] MarkedText normalise_by_rules(std::string_view text, SaidBytes said,
                                                const std::atomic<bool>* cancel) const;
    [[nodiscard]] bool in_range(TokenId id) const { return id >= 0 && id < vocab_size(); }

    const SentencePieceModel model_;
    std::optional<BpeMerger> merger_;            // refers to model_; of a BPE model
    std::optional<UnigramSegmenter> segmenter_;  // of a unigram model
    std::array<TokenId, 256> byte_ids_{};        // -1: none
    Indexed<std::string> token_bytes_;           // by id
    std::vector<bool> trusted_only_;             // by id
    AddedTokenMatcher control_;                  // in the text as it comes
    AddedTokenMatcher user_defined_;             // in normalised text
    SpellingMatcher protected_;                  // user-defined pieces in the text as it comes: no rule touches them
};

}  // namespace slipstream
