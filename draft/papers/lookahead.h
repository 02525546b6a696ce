// Lookahead decoding (Fu et al. 2024, "Break the sequential dependency of LLM inference using lookahead decoding",
// sections 3.1 to 3.3) as a source: n-grams that the target itself produces by Jacobi iteration, in nodes of the tree
// that nobody else needs.
//
// The window has W columns of N - 1 rows. Row 0 is a guess at the next W tokens; a column's later rows are what the
// target said behind the one above it, pass by pass. As a subtree: row 0 is a trunk under node 0, and at each of its
// nodes the column's other rows hang as a branch, so that a token sees row 0 up to its column and then its own column.
// The argmax behind a branch's end is the column's next row; a column of N tokens is an n-gram: it goes to the pool and
// the column drops its first row. The pool keeps the G newest n-grams of each first token.
//
// Deviations: columns grow and shift each for itself, since budget and depth may leave room for some of them only, and
// logits count wherever a window token's whole path stands in the tree, whoever proposed it.
#pragma once

#include <cstdint>
#include <vector>

#include "draft/logit_row.h"
#include "draft/sources/lru_table.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

struct LookaheadOptions {
    std::int64_t vocab = 0;
    std::int64_t ngram_tokens = 5;    // N, at least 2, the first token included
    std::int64_t window_columns = 7;  // W
    std::int64_t max_ngrams = 7;      // G: kept of each first token, at most 16
};

class Lookahead final : public TableSource {
public:
    explicit Lookahead(const LookaheadOptions& options);

    [[nodiscard]] std::string_view name() const override { return "lookahead"; }
    /// A bin is rank 0, 1 or more x (at an n-gram's start / inside it).
    [[nodiscard]] std::uint16_t n_bins() const override { return 2 * kRankBins; }
    /// Learns from logits alone, the best of a row.
    [[nodiscard]] LogitRequest logit_request() const override { return {.n_best = 1}; }
    void observe(const Observation& observation) override;
    void reset() override;

    /// A cursor: an n-gram's first token, how many tokens behind it were walked, which of its n-grams agree.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// The n-grams of the last token as branches, then the window.
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    /// The window, as many whole columns as fit.
    void fill_unused_nodes(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    static constexpr std::uint16_t kRankBins = 3;

    using Column = std::vector<TokenId>;  // its rows: 1 to N - 1 of them, capacity N

    /// fn(age, what follows the first token [N - 1]) of each n-gram that begins with it, the newest (age 0) first.
    template <typename Fn>
    void for_each_ngram(TokenId first, const Fn& fn) const;
    [[nodiscard]] Cursor walk(TokenId first, std::size_t n_walked, std::uint32_t agreeing, TokenId token) const;
    void start_window(std::span<const TokenId> text);

    LookaheadOptions options_;
    std::size_t followers_;       // N - 1
    LruTable pool_;               // of each first token the G newest n-grams
    std::vector<Column> window_;  // [W], or empty before the first tree
    RowTop row_top_;
};

}  // namespace slipstream::draft
