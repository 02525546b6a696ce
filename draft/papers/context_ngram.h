// What followed the last q tokens in this text: the index behind the context n-gram drafts of N-Grammys (Stewart et al.
// 2024, section 4.1, "context-derived n-grams"). It keeps the text and, for each place, the place before it that ends
// with the same q tokens: a token costs constant time, and a cut takes tokens off the end again.
//
// A draft is the w tokens after an earlier place; drafts are ranked by how many places are followed by those w tokens,
// ties to the most recent. A place with fewer than w tokens behind it gives none. Deviation: of a common token only the
// most recent 512 places are counted, so that the work has a bound whatever the text's length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/loop/guesser.h"

namespace slipstream::draft {

struct ContextNgramOptions {
    std::int64_t query_tokens = 1;  // q; the paper finds 2 and 3 worse everywhere
    std::int64_t max_places = 512;  // of the last q tokens, most recent first, that are looked at
};

/// One draft: tokens of the text, and how many of the places looked at they followed.
struct ContextDraft {
    std::span<const TokenId> tokens;  // [w]
    std::int64_t count = 0;
};

/// The best drafts of one query. Valid until the next call of the index.
struct ContextDrafts {
    std::span<const ContextDraft> best;  // at most k
    std::int64_t n_places = 0;           // that gave a draft
};

class ContextNgramIndex {
public:
    explicit ContextNgramIndex(const ContextNgramOptions& options);

    /// Follows the text, cuts included (TableSource::observe).
    void observe(const Observation& observation);
    void reset();

    /// At most k drafts of w tokens each, for the end of the text that was observed last. k, w >= 1.
    [[nodiscard]] ContextDrafts drafts(std::int64_t k, std::int64_t w);

    [[nodiscard]] std::span<const TokenId> text() const { return text_; }
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    static constexpr std::int32_t kNoPlace = -1;

    [[nodiscard]] std::uint64_t query_at(std::size_t last) const;
    [[nodiscard]] bool same_query(std::size_t a, std::size_t b) const;
    void push(TokenId token);
    void pop();

    ContextNgramOptions options_;
    std::vector<TokenId> text_;
    std::vector<std::int32_t> earlier_;  // [text]: the place before with the same digest of q tokens, or kNoPlace
    std::unordered_map<std::uint64_t, std::int32_t> latest_;  // digest of q tokens -> its last place
    enum class Next : std::uint8_t { AnyText, Appended };
    Next next_ = Next::AnyText;  // what the next observation may bring

    struct Found {
        std::uint64_t digest = 0;
        std::int32_t begin = 0;  // of the most recent place's w tokens
        std::int32_t count = 0;
    };
    std::vector<Found> found_;         // distinct drafts of a query, most recent first
    std::vector<std::int32_t> slots_;  // open addressing over found_, a power of two
    std::vector<ContextDraft> drafts_;
};

}  // namespace slipstream::draft
