// Prompt lookup (Saxena 2023; the rule as Spec-Bench runs it): the last n tokens, n from max_ngram
// down to 1, are looked for earlier in the text, earliest place first; the first place whose continuation (a) is a full
// 10 tokens long and (b) starts before position L - n, L the text's length, gives those 10 as a chain.
//
// Both conditions hold of every earlier place where they hold of a later one, so only the earliest place of each n-gram
// can ever be the answer. It is searched for in the text, once a tree: microseconds behind thousands of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "draft/sources/table_source.h"

namespace slipstream::draft {

struct PromptLookupOptions {
    std::int64_t max_ngram = 3;  // 1 to 64
};

class PromptLookup final : public TableSource {
public:
    /// Tokens of a draft.
    static constexpr std::uint32_t kChainTokens = 10;

    /// Throws RequestError for an n that is out of range.
    explicit PromptLookup(PromptLookupOptions options = {});

    [[nodiscard]] std::string_view name() const override { return "lookup"; }
    /// Bins: n matched x how deep in the chain (1, 2, 3-4, 5-10).
    [[nodiscard]] std::uint16_t n_bins() const override;
    void observe(const Observation&) override {}
    void reset() override { text_ = {}; }

    /// A cursor is a place in the text, with n and the depth in the chain. Off the chain there is nothing. Cursors read
    /// `text` where it stands.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// The chain, cut to what the request leaves room for. One guess a place: noise has nothing to rank.
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override { return 0; }

private:
    std::size_t max_ngram_;
    std::span<const TokenId> text_;  // of the last root()
};

}  // namespace slipstream::draft
