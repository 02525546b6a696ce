// The source "suffix" (SAM decoding, Hu et al. 2024, the dynamic automaton): proposes the tokens that followed the
// longest suffix of the path that occurs earlier in the sequence.
//
// A cursor is that match: a state of the automaton and a length. Proposed are the token that followed the match most
// recently and then the tokens that followed its shorter suffixes, without repetitions. Each gets the estimate of its
// match length (match_length.h) times what the longer matches have left over.
//
// Its own tree is a chain of the best proposals. The paper predicts 40 tokens for any match. Here the chain grows with
// the match: 8 tokens per matched token, at most 40. Measured by replay on Spec-Bench with Vicuna-7B's recorded
// answers: 1.827 committed tokens per pass (MAT) with 8.7 nodes per pass; always 40 tokens: 1.841 with 26.2; 4 per
// matched token: 1.797 with 5.5. The paper's other half, another drafter's tree if the match is short, corresponds to
// merging with other sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "draft/paper_tree.h"
#include "draft/sources/suffix_automaton.h"
#include "draft/sources/table_source.h"
#include "draft/sources/text_continuation.h"

namespace slipstream::draft {

struct SuffixOptions {
    /// Most tokens of the sequence that are held. When it is reached, the older half is forgotten (suffix_automaton.h).
    std::size_t max_tokens = std::size_t{1} << 20;
    std::uint32_t max_chain_tokens = 40;       // most draft tokens of the own chain
    std::uint32_t chain_tokens_per_match = 8;  // draft tokens of the own chain per matched token
};

class SuffixSource final : public TableSource, public PaperTree {
public:
    explicit SuffixSource(SuffixOptions options = {});

    [[nodiscard]] std::string_view name() const override { return "suffix"; }
    /// Returns the number of bins: bucket of the match's length (match_length.h) x place in the list of proposals (1st,
    /// 2nd, later).
    [[nodiscard]] std::uint16_t n_bins() const override;

    /// Takes amortised O(1) time per token. A text that was cut or replaced is learnt again from its start.
    void observe(const Observation& observation) override;
    void reset() override;

    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    /// Proposes the tokens that followed the cursor's match and its shorter suffixes, at most kMaxSuffixes in all.
    /// Without noise, stops when `out` is full.
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override { return automaton_.memory_bytes(); }

private:
    SuffixOptions options_;
    SuffixAutomaton automaton_;
    TextContinuation continuation_;
};

}  // namespace slipstream::draft
