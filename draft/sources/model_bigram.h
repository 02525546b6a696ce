// The bigrams of the model itself as a source (N-Grammys, Stewart et al. 2024, section 4.2): what the model would say
// after the last token alone, and the extension of that: the row's best token, then that token's best, and so on. It
// learns nothing from the text; the table is built once a model (draft/tables/model_ngrams.h). Its own tree is rows of
// them (ngrammys_shape.h). Where there is noise, children and extensions are chosen by it.
//
// Only the best k candidates are kept of a distribution, so its sum at temperature T is estimated: what lies behind the
// k-th candidate, of mass r at T = 1, is taken to be as (im)probable as that candidate p_k, so that it sums to
// r p_k^(1/T - 1). For T < 1 this is at least the truth, for T > 1 at most.
#pragma once

#include <memory>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/tables/model_ngrams.h"

namespace slipstream::draft {

class ModelBigram final : public TableSource {
public:
    /// `temperature` as the target samples; 0 (greedy) leaves probabilities as at 1. Of every row the best min(k,
    /// table->k) candidates are used.
    ModelBigram(std::shared_ptr<const BigramTable> table, double temperature, std::int64_t k);

    [[nodiscard]] std::string_view name() const override { return "bigram"; }
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation&) override {}
    /// Computes all probabilities again, from the table.
    void set_temperature(double temperature) override;
    void reset() override {}
    /// A cursor is the last token of its path.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override;

    /// The best candidate after `token`, which would stand at `position`: by noise.rank(), without noise the most
    /// probable. -1 where there is none.
    [[nodiscard]] TokenId best(TokenId token, std::int64_t position, const PathNoise& noise);
    /// Most candidates of a token.
    [[nodiscard]] std::int64_t k() const { return k_; }

private:
    [[nodiscard]] std::span<const std::int32_t> tokens_after(std::int64_t token) const;

    std::shared_ptr<const BigramTable> table_;
    std::int64_t k_;
    std::vector<Half> probabilities_;  // [vocab, k], in (0, 1)
};

}  // namespace slipstream::draft
