// Prompt lookup (Saxena 2023; the rule as Spec-Bench runs it). The last n tokens, for n from max_ngram down to 1, are
// searched for earlier in the sequence, earliest place first. The first place whose continuation (a) has 10 tokens and
// (b) begins before position L - n, where L is the length of the sequence, gives those 10 tokens as a chain.
//
// If both conditions hold for a place, they hold for every earlier place too, so only the earliest place of each n-gram
// can be the answer. It is searched for in the sequence once per tree, which takes microseconds for thousands of
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

struct PromptLookupOptions {
    std::int64_t max_ngram = 3;  // longest n-gram that is searched for, 1 to 64
};

/// Prompt lookup as a source, `--draft lookup`: proposes what followed the last tokens earlier in the sequence.
class PromptLookup final : public TableSource, public PaperTree {
public:
    /// Tokens of a chain: 10, as Spec-Bench runs prompt lookup. A place with a shorter continuation gives no chain.
    static constexpr std::uint32_t kChainTokens = 10;

    /// Throws RequestError if options.max_ngram is out of range.
    explicit PromptLookup(PromptLookupOptions options = {});

    [[nodiscard]] std::string_view name() const override { return "lookup"; }
    /// Returns the number of bins: n tokens matched x depth in the chain (1, 2, 3-4, 5-10).
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation&) override {}
    void reset() override { text_ = {}; }

    /// Searches `text` for an earlier occurrence of its last n tokens. A cursor holds three numbers: the position in
    /// `text` of the chain's next token, the length n of the match, and the depth in the chain. advance() returns
    /// kNowhere for a token that is not the chain's next one, and after the chain's last token (kChainTokens). `text`
    /// must stay alive and unchanged while cursors are used: advance() and propose() read it.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// Adds the chain, cut to the limits of `request`. There is one proposal per place, so noise has nothing to rank.
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override { return 0; }

private:
    std::size_t max_ngram_;
    std::span<const TokenId> text_;  // argument of the latest root(), not owned
};

}  // namespace slipstream::draft
