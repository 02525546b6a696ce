// The unigrams of the model itself as a source (N-Grammys, Stewart et al. 2024, section 4.1): the same few tokens
// everywhere, those that the output embedding makes most common. It learns nothing from the sequence. Its table is
// built once per model (draft/tables/model_ngrams.h). Its own tree: k = 10 children of node 0. With noise the children
// are the best by log p + gumbel, which differ between positions.
//
// The table has no probabilities. That of the token with rank r (from 0) is taken proportional to (1 / (r +
// 2.7))^(1/T), Zipf's law with Mandelbrot's correction, at the target's temperature T.
#pragma once

#include <vector>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// The most common tokens of the model as a source, `--draft unigram`.
class ModelUnigram final : public TableSource, public PaperTree {
public:
    /// `common`: token ids, most common first (ModelNgrams::common; not empty, CHECKed), out of `vocab` ids.
    /// `temperature`: that of the target; 0 (greedy) gives the probabilities of temperature 1.
    ModelUnigram(std::span<const TokenId> common, std::int64_t vocab, double temperature);

    [[nodiscard]] std::string_view name() const override { return "unigram"; }
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation&) override {}
    void set_temperature(double temperature) override;
    void reset() override {}
    /// A cursor means nothing: all paths are alike.
    [[nodiscard]] Cursor root(std::span<const TokenId>) override { return 0; }
    [[nodiscard]] Cursor advance(Cursor, TokenId) override { return 0; }
    /// Proposes at most 16 tokens, the same at every path. `position`: that of the proposed token, for the noise.
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// Adds the 10 best tokens as children of node 0, within the limits of `request`.
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override { return proposals_.size() * sizeof(Proposal); }

private:
    std::int64_t vocab_;
    std::vector<Proposal> proposals_;  // most probable first
};

}  // namespace slipstream::draft
