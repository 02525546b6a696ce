// The source "recycling" (Token Recycling, Luo et al. 2024, arXiv 2408.08696): a matrix with the eight best next tokens
// that the target itself gave when it last saw each token. Every node of a verified tree teaches, accepted or not.
// Nodes teach in their order, so the last occurrence of a token in a tree wins (the paper's ablation finds that best;
// its code leaves the order to chance). The prompt has no logits and teaches nothing.
//
// In the merged tree a row is found by the longest context, of one to three tokens, that a row was learnt after: what
// the target said after this very context is worth more than what it said after the same token elsewhere. Rows of two
// and three tokens are in a table of fixed size, in which a newer row replaces an older one.
//
// Its own tree is the paper's static one (recycling_tree.h): 80 nodes below the root, filled layer by layer. Deviations
// from the paper: a row that was never learnt gives no children (the authors draft token 0 there), and with noise the
// candidates of a row are ranked by log p + gumbel before the tree's ranks are assigned. For that the matrix also keeps
// the candidates' probabilities at the target's temperature.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/logit_row.h"
#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"
#include "kernels/base/float16.h"

namespace slipstream::draft {

struct RecyclingOptions {
    std::int64_t vocab = 0;
    double temperature = 0.0;  // the target's; at 0 (greedy) probabilities are those of temperature 1
};

class Recycling final : public TableSource, public PaperTree {
public:
    /// Candidates of a row (k of the paper).
    static constexpr std::size_t kCandidates = 8;
    /// Largest vocabulary: a cursor holds three token ids of 21 bits each.
    static constexpr std::int64_t kMaxVocab = (std::int64_t{1} << 21) - 1;

    /// options.vocab must be at most kMaxVocab (CHECKed).
    explicit Recycling(const RecyclingOptions& options);

    [[nodiscard]] std::string_view name() const override { return "recycling"; }
    /// Most tokens of the context of a row.
    static constexpr std::size_t kOrders = 3;
    /// Returns the number of bins: length of the row's context x rank in the row.
    [[nodiscard]] std::uint16_t n_bins() const override { return kOrders * kCandidates; }
    /// Returns what observe() reads of each row of logits [tree size, vocab]: its best tokens and the sum that
    /// normalises them.
    [[nodiscard]] LogitRequest logit_request() const override;
    void observe(const Observation& observation) override;
    /// Sets the target's temperature. Rows keep the probabilities that they were learnt with, and are sharpened when
    /// they are read.
    void set_temperature(double temperature) override;
    void reset() override;

    /// Returns a cursor, which is the last three tokens of its path, the last one in the low bits.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override;

    /// Writes the rows of one token that are not empty, and the temperature of their probabilities. Rows of two and
    /// three tokens are not kept.
    void save(TableWriter& out) const override;
    /// Reads what save() wrote, and empties the rows of two and three tokens. The saved temperature may be another one,
    /// as after set_temperature(). Throws FormatError as TableSource::load() does.
    void load(TableReader& in) override;

private:
    /// The candidates after a context.
    struct Row {
        std::array<TokenId, kCandidates> tokens;      // best first, then -1; all -1: empty
        std::array<Half, kCandidates> probabilities;  // > 0 for each token
        float sharpness = 1.0F;                       // 1 / temperature of the probabilities
    };

    /// A row that was learnt after two or three tokens.
    struct LongRow {
        std::uint64_t behind = 0;  // context of the row, as last_tokens() packs it; 0: none
        Row row;
    };

    void learn(Cursor behind, const LogitRows& logits, std::int64_t logits_row);
    [[nodiscard]] const Row& row(TokenId token) const;
    [[nodiscard]] LongRow& place_of(std::uint64_t behind);
    [[nodiscard]] Row at_temperature(const Row& row) const;
    [[nodiscard]] std::size_t list(const Row& row, std::int64_t position, const PathNoise& noise,
                                   std::span<Proposal> out) const;

    RecyclingOptions options_;
    std::vector<Row> rows_;           // [vocab]
    std::vector<LongRow> long_rows_;  // [2^15], by hash of the context
    std::vector<Cursor> cursors_;     // cursors of the nodes of the observed tree
    RowTop row_top_;
};

}  // namespace slipstream::draft
