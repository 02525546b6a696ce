// Lookahead decoding (Fu et al. 2024, "Break the sequential dependency of LLM inference using lookahead decoding",
// sections 3.1 to 3.3) as a source: n-grams that the target itself produces by Jacobi iteration, in nodes of the tree
// that no other source needs.
//
// The window has W columns of up to N - 1 rows. Row 0 guesses the next W tokens. The later rows of a column are what
// the target predicted after the row above, pass by pass. As a subtree: row 0 is a trunk under node 0, and at each node
// of the trunk the other rows of its column are a branch, so a token sees row 0 up to its column and then its own
// column. The argmax after a branch's end is the column's next row. A column of N tokens is an n-gram: it is added to
// the pool, and the column drops its first row. The pool keeps the G newest n-grams of each first token.
//
// Deviations from the paper: columns grow and shift independently, since budget and depth may leave room for only some
// of them. Logits are used wherever the whole path of a window token is in the tree, whichever source proposed it.
#pragma once

#include <cstdint>
#include <vector>

#include "draft/logit_row.h"
#include "draft/paper_tree.h"
#include "draft/sources/lru_table.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// Parameters of Lookahead, with the letters of the paper; out of range they are a bug (CHECKed).
struct LookaheadOptions {
    std::int64_t vocab = 0;
    std::int64_t ngram_tokens = 5;    // N, tokens of an n-gram, the first one included; 2 to 128
    std::int64_t window_columns = 7;  // W, columns of the window; at least 1
    std::int64_t max_ngrams = 7;      // G: n-grams kept for each first token, 1 to 16
};

/// Lookahead decoding as a source, `--draft lookahead`: proposes n-grams that the target itself has produced.
class Lookahead final : public TableSource, public PaperTree {
public:
    /// The options must be in their ranges (CHECKed).
    explicit Lookahead(const LookaheadOptions& options);

    [[nodiscard]] std::string_view name() const override { return "lookahead"; }
    /// Bins: position 0, 1 or later in the list of proposals x (at the start of an n-gram / inside one).
    [[nodiscard]] std::uint16_t n_bins() const override { return 2 * kRankBins; }
    /// Learns only from logits: the best token of each row.
    [[nodiscard]] LogitRequest logit_request() const override { return {.n_best = 1}; }
    void observe(const Observation& observation) override;
    void reset() override;

    /// A cursor holds the first token of an n-gram, the number of its tokens that the path has followed, and which
    /// n-grams agree with the path.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// Adds the n-grams of the last token as branches, then the window.
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;
    /// Adds the window to a finished tree: as many whole columns as fit. Called with as many nodes as cost nothing.
    void fill_unused_nodes(TokenTree& tree, const ShapeRequest& request);

    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    static constexpr std::uint16_t kRankBins = 3;

    using Column = std::vector<TokenId>;  // rows of a column: 1 to N - 1 tokens, capacity N

    /// Calls fn(age, tokens after the first [N - 1]) for each n-gram of the pool that begins with `first`, newest (age
    /// 0) first.
    template <typename Fn>
    void for_each_ngram(TokenId first, const Fn& fn) const;
    [[nodiscard]] Cursor walk(TokenId first, std::size_t n_walked, std::uint32_t agreeing, TokenId token) const;
    void start_window(std::span<const TokenId> text);

    LookaheadOptions options_;
    std::size_t followers_;       // N - 1
    LruTable pool_;               // the G newest n-grams of each first token
    std::vector<Column> window_;  // [W] columns; empty before the first tree
    RowTop row_top_;
};

}  // namespace slipstream::draft
