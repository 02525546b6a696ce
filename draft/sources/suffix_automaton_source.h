// Suffix-automaton drafting (SAM decoding, Hu et al. 2024, the dynamic automaton): guesses are what followed the
// longest suffix of the path that the text holds already.
//
// A cursor is that match, a state of the automaton and a length. Proposed are what followed the match most recently
// and, behind it, what followed its shorter suffixes where that differs; each with an estimate by match length, of what
// the longer ones have left over.
//
// Own shape: a chain of the best guess each. The paper predicts 40 tokens whatever the match; here the chain grows with
// the match, 8 tokens for each token matched, to 40 at most. Measured by replay on Spec-Bench with Vicuna-7B's recorded
// answers: MAT 1.827 with 8.7 nodes a pass, 40 tokens always give 1.841 with 26.2, 4 for each 1.797 with 5.5. The
// paper's other half, another drafter's tree where the match is short, is what merging with other sources does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "draft/sources/suffix_automaton.h"
#include "draft/sources/table_source.h"
#include "draft/sources/text_continuation.h"

namespace slipstream::draft {

struct SuffixOptions {
    /// Most tokens of the text that are held; beyond it the older half is forgotten (suffix_automaton.h).
    std::size_t max_tokens = std::size_t{1} << 20;
    std::uint32_t max_chain_tokens = 40;
    std::uint32_t chain_tokens_per_match = 8;
};

class SuffixSource final : public TableSource {
public:
    explicit SuffixSource(SuffixOptions options = {});

    [[nodiscard]] std::string_view name() const override { return "suffix"; }
    /// Bins: bucket of the match's length (match_length.h) x 1st, 2nd, later of a list.
    [[nodiscard]] std::uint16_t n_bins() const override;

    /// Amortised O(1) a token; a text that was cut or replaced is taken up anew.
    void observe(const Observation& observation) override;
    void reset() override;

    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    /// Looks at the match and at most kMaxSuffixes shorter ones; where there is noise at all of them, otherwise at as
    /// many as `out` has room for.
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
