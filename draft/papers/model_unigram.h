// The unigrams of the model itself as a source (N-Grammys, Stewart et al. 2024, section 4.1): the same few tokens
// everywhere, those that the output embedding itself calls common. It learns nothing from the text; the table is built
// once a model (draft/tables/model_ngrams.h). Its own tree: k = 10 children of node 0. With noise it knows more: the
// best of them by log p + gumbel, which differ from position to position.
//
// The table gives no probabilities; by rank r (from 0) they are taken proportional to (1 / (r + 2.7))^(1/T), Zipf's law
// with Mandelbrot's correction at the target's temperature.
#pragma once

#include <vector>

#include "draft/sources/table_source.h"

namespace slipstream::draft {

class ModelUnigram final : public TableSource {
public:
    /// `common`: tokens of a vocabulary of `vocab`, most common first (ModelNgrams::common, not empty, CHECKed).
    /// `temperature`: of the target; 0 (greedy) leaves probabilities as at 1.
    ModelUnigram(std::span<const TokenId> common, std::int64_t vocab, double temperature);

    [[nodiscard]] std::string_view name() const override { return "unigram"; }
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation&) override {}
    void reset() override {}
    /// All paths look alike.
    [[nodiscard]] Cursor root(std::span<const TokenId>) override { return 0; }
    [[nodiscard]] Cursor advance(Cursor, TokenId) override { return 0; }
    /// At most 16.
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override { return proposals_.size() * sizeof(Proposal); }

private:
    std::vector<Proposal> proposals_;  // most probable first
};

}  // namespace slipstream::draft
