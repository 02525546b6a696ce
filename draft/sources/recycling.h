// Token Recycling (Luo et al. 2024, arXiv 2408.08696): a matrix of the eight best next tokens that the target itself
// named, last seen, after each token. Every node of a verified tree teaches, accepted or not; in the order of the
// nodes, so that the last occurrence of a token in a tree wins (the paper's ablation finds that best; its code leaves
// the order to chance). The prompt gives no logits and teaches nothing.
//
// In the merged tree rows are found by the longest of the last one to three tokens that a row was seen behind, not by
// one token alone: what the target said in this very place is worth more than what it said behind the same token
// elsewhere. Such rows live in a table of fixed size where a newer one takes the place of an older one.
//
// Its own tree is the paper's static one (appendix; papers' table of rank paths): 80 nodes below the root, filled layer
// by layer. Deviations: a row that was never filled gives no children (the authors draft token 0 there), and with noise
// a row's candidates are ranked by log p + gumbel before the tree's ranks are dealt out. For that the matrix keeps the
// candidates' probabilities at the target's temperature beside them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/logit_row.h"
#include "draft/sources/table_source.h"
#include "kernels/base/float16.h"

namespace slipstream::draft {

struct RecyclingOptions {
    std::int64_t vocab = 0;
    double temperature = 0.0;  // of the target; 0 (greedy) keeps probabilities as at 1
};

class Recycling final : public TableSource {
public:
    /// Candidates of a token (k of the paper).
    static constexpr std::size_t kCandidates = 8;
    /// Tokens of a vocabulary, at most: a cursor holds three ids, of 21 bits each.
    static constexpr std::int64_t kMaxVocab = (std::int64_t{1} << 21) - 1;

    /// options.vocab is at most kMaxVocab (CHECKed).
    explicit Recycling(const RecyclingOptions& options);

    [[nodiscard]] std::string_view name() const override { return "recycling"; }
    /// Tokens that a row stands behind at most.
    static constexpr std::size_t kOrders = 3;
    /// How many tokens the row stands behind, by the rank in it.
    [[nodiscard]] std::uint16_t n_bins() const override { return kOrders * kCandidates; }
    /// Learns from logits [tree size, vocab], where there are any: each row's best, and what they weigh.
    [[nodiscard]] LogitRequest logit_request() const override;
    void observe(const Observation& observation) override;
    /// Rows keep the probabilities that they were learnt with, and are sharpened when they are read.
    void set_temperature(double temperature) override;
    void reset() override;

    /// A cursor is the last tokens of its path, the last one in the low bits.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override;

    /// The rows that are not empty, and the temperature that they were made at.
    void save(TableWriter& out) const override;
    /// Rows may be of another temperature, as after set_temperature().
    void load(TableReader& in) override;

private:
    struct Row {
        std::array<TokenId, kCandidates> tokens;      // best first; -1 behind the last, all -1: empty
        std::array<Half, kCandidates> probabilities;  // > 0 where there is a token
        float sharpness = 1.0F;                       // 1 / temperature of the probabilities
    };

    struct LongRow {
        std::uint64_t behind = 0;  // its tokens, 0: none
        Row row;
    };

    void learn(Cursor behind, const LogitRows& logits, std::int32_t node);
    [[nodiscard]] const Row& row(TokenId token) const;
    [[nodiscard]] LongRow& place_of(std::uint64_t behind);
    [[nodiscard]] Row at_temperature(const Row& row) const;
    [[nodiscard]] std::size_t list(const Row& row, std::int64_t position, const PathNoise& noise,
                                   std::span<Proposal> out) const;

    RecyclingOptions options_;
    std::vector<Row> rows_;           // [vocab]
    std::vector<LongRow> long_rows_;  // behind two and three tokens
    std::vector<Cursor> cursors_;     // of a tree's nodes
    RowTop row_top_;
};

}  // namespace slipstream::draft
