// The source "bigram": what the model itself predicts after the last token alone (N-Grammys, Stewart et al. 2024,
// section 4.1). Bigrams are extended: the best token of a row, then the best token after that one, and so on. The
// source learns nothing from the sequence; its table is built once per model (draft/tables/model_ngrams.h). Its own
// tree is rows of extended bigrams (ngrammys_shape.h). With noise, children and extensions are ranked by it.
//
// Only the best k candidates of a distribution are kept, so its sum at temperature T is estimated. The candidates after
// the k-th have mass r at T = 1. Each is assumed to be as probable as the k-th, p_k, so their sum at T is r p_k^(1/T -
// 1). For T < 1 this is at least the true sum, for T > 1 at most.
#pragma once

#include <memory>
#include <vector>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"
#include "draft/tables/model_ngrams.h"

namespace slipstream::draft {

class ModelBigram final : public TableSource, public PaperTree {
public:
    /// `temperature`: the target's; at 0 (greedy) probabilities are those of temperature 1. Uses the best min(k,
    /// table->k, kMaxCandidates) candidates of every row.
    ModelBigram(std::shared_ptr<const BigramTable> table, double temperature, std::int64_t k);

    [[nodiscard]] std::string_view name() const override { return "bigram"; }
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation&) override {}
    /// Computes all probabilities again, from the table.
    void set_temperature(double temperature) override;
    void reset() override {}
    /// Returns a cursor, which is the last token of its path.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    [[nodiscard]] std::size_t memory_bytes() const override;

    /// Returns the best candidate after `token` by noise.rank(), without noise the most probable one; -1 if there is
    /// none. `position` is the candidate's absolute position.
    [[nodiscard]] TokenId best(TokenId token, std::int64_t position, const PathNoise& noise);
    /// Returns the most candidates that a token has.
    [[nodiscard]] std::int64_t k() const { return k_; }

private:
    [[nodiscard]] std::span<const std::int32_t> tokens_after(std::int64_t token) const;

    std::shared_ptr<const BigramTable> table_;
    std::int64_t k_;
    std::vector<Half> probabilities_;  // [vocab, k], in (0, 1), at the target's temperature
};

}  // namespace slipstream::draft
