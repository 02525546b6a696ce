// Cacheback (Ma, Gim, Zhong 2025): guesses from a table of what followed what, learnt from committed tokens alone, and
// optionally from a frozen one made of a corpus. A window of LL + FL tokens slides over the text, across the borders of
// passes and over the whole prompt at the start, and gives one pair of leader and follower for each position (section
// 3.3). Alone, it grows the paper's tree (cacheback_tree.h).
//
// Among other sources it is walked a token at a time: behind a path it lists the first tokens of the followers of the
// path's last LL tokens, and, where the path itself leads into a follower, what comes next inside it. A proposal's
// probability is the share of its followers' weights 1/age (age 1 is the most recent, of a frozen table the most
// frequent), the table's ignorance included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "draft/sources/cacheback_tree.h"
#include "draft/sources/lru_table.h"
#include "draft/sources/table_source.h"
#include "draft/tables/cacheback_options.h"
#include "draft/tables/frozen_table.h"

namespace slipstream::draft {

class Cacheback final : public TableSource {
public:
    /// What save() writes at most.
    static constexpr std::size_t kMaxSavedBytes = std::size_t{8} << 20;

    /// Ids are below `vocab`. Throws RequestError where a setting is out of range.
    Cacheback(const CachebackOptions& options, std::int64_t vocab, std::optional<FrozenTable> frozen = std::nullopt);

    [[nodiscard]] std::string_view name() const override { return "cacheback"; }
    /// Recency (or frequency) rank 0, 1, 2, 3-4, 5-8, 9 and more; inside a follower or at its start; dynamic or frozen.
    [[nodiscard]] std::uint16_t n_bins() const override;

    void observe(const Observation& observation) override;
    void reset() override;

    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override;
    /// The dynamic table: where it is larger than kMaxSavedBytes, the most recent followers of the most recent leaders.
    void save(TableWriter& writer) const override;
    /// A table of other LL or FL is passed over: the source stays as it is.
    void load(TableReader& reader) override;

    [[nodiscard]] const LruTable& dynamic_table() const { return dynamic_; }

private:
    /// Where a path stands in one table: its last tokens as a leader, and the follower it leads into.
    struct Spot {
        std::uint32_t leader = LruTable::kNone;
        std::uint32_t follower =
            LruTable::kNone;          // the first of its leader's whose first n_matched tokens end the path
        std::uint32_t n_matched = 0;  // 1 ... FL - 1 where there is a follower
    };
    struct Place {
        Spot dynamic, frozen;
    };
    class Candidates;

    void forget_places();
    void learn(std::span<const TokenId> text, std::size_t n_known);
    Cursor add_place(const Place& place);
    [[nodiscard]] std::span<TokenId> context(Cursor cursor);
    template <typename Table>
    [[nodiscard]] Spot spot_behind(const Table& table, const Spot& spot, TokenId token,
                                   std::span<const TokenId> context) const;

    CachebackOptions options_;
    std::int64_t vocab_;
    LruTable dynamic_;
    std::optional<FrozenTable> frozen_;
    CachebackTree tree_;
    bool seen_any_ = false;  // since construction or reset()
    // Places that cursors stand for, until the next observation, and the last n_context_ tokens of each (-1 before the
    // text's start).
    std::size_t n_context_;
    std::vector<Place> places_;
    Cursor root_ = kNowhere;
    std::vector<TokenId> contexts_;  // [places][n_context_]
};

}  // namespace slipstream::draft
