// Prompt lookup (Saxena 2023; the rule as Spec-Bench runs it): the last n tokens, n from max_ngram
// down to 1, are looked for earlier in the text, earliest place first; the first place whose continuation (a) is a full
// 10 tokens long and (b) starts before position L - n, L the text's length, gives those 10 as a chain.
//
// Both conditions hold of every earlier place where they hold of a later one. So only the earliest place of each n-gram
// can ever be the answer, and that is all the index keeps: a hash table for each n, from n-gram to its earliest end.
// Invariant: a table holds each n-gram of the text once, under the lowest position behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/sources/text_continuation.h"

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
    /// Cells: n matched x how deep in the chain (1, 2, 3-4, 5-10).
    [[nodiscard]] std::uint16_t n_cells() const override;

    /// O(max_ngram) a token; a text that was cut or replaced is indexed anew.
    void observe(const Observation& observation) override;
    void reset() override;

    /// A cursor is a place in the text, with n and the depth in the chain. Off the chain there is nothing.
    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// The chain, cut to what the request leaves room for. One guess a place: noise has nothing to rank.
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    /// About 4 bytes a token and 8 to 16 a distinct n-gram of each n.
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    /// Where each n-gram of one n first ends. Open addressing, at most half full; 0 is a free slot.
    struct FirstEnds {
        std::vector<std::uint32_t> slots;  // position behind the n-gram
        std::size_t n_used = 0;
    };

    void append(TokenId token);
    /// The earliest end of the n-gram that ends at `end`, whose hash is `hash`; entered if it is new.
    std::uint32_t first_end(std::size_t n, std::uint64_t hash, std::uint32_t end);
    void grow(std::size_t n);
    [[nodiscard]] std::uint64_t hash(std::size_t n, std::uint32_t end) const;

    std::vector<TokenId> text_;
    std::vector<FirstEnds> ends_;            // [max_ngram], of n - 1
    std::vector<std::uint32_t> last_found_;  // [max_ngram]: first_end() of the text's own last n-grams
    TextContinuation continuation_;
};

}  // namespace slipstream::draft
