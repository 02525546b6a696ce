// The source "cacheback" (Ma, Gim, Zhong 2025): proposals from a table of token n-grams, learnt from committed tokens
// alone, and optionally from a frozen table made of a corpus. A window of LL + FL tokens slides over the sequence,
// across the borders of passes and over the whole prompt at the start. Each position gives one pair of leader (LL
// tokens) and follower (FL tokens) (section 3.3). Alone, the source grows the paper's tree (cacheback_tree.h).
//
// Among other sources it is walked token by token. After a path it lists the first tokens of the followers of the
// path's last LL tokens and, if the path itself leads into a follower, the next token inside that follower. A
// proposal's probability is its share of the weights 1 / age of a list's followers plus a constant for unseen tokens.
// Age 1 is the most recent follower of the list, or the most frequent one of a frozen table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "draft/paper_tree.h"
#include "draft/sources/cacheback_tree.h"
#include "draft/sources/lru_table.h"
#include "draft/sources/table_source.h"
#include "draft/tables/cacheback_options.h"
#include "draft/tables/frozen_table.h"

namespace slipstream::draft {

class Cacheback final : public TableSource, public PaperTree {
public:
    /// Most bytes of tokens that save() writes.
    static constexpr std::size_t kMaxSavedBytes = std::size_t{8} << 20;

    /// All token ids must be below `vocab`. Throws RequestError if a setting is out of range.
    Cacheback(const CachebackOptions& options, std::int64_t vocab, std::optional<FrozenTable> frozen = std::nullopt);

    [[nodiscard]] std::string_view name() const override { return "cacheback"; }
    /// Returns the number of bins: position in a list of proposals (0, 1, 2, 3-4, 5-8, 9 and more) x (inside a
    /// follower, at its start) x (dynamic, frozen table).
    [[nodiscard]] std::uint16_t n_bins() const override;

    void observe(const Observation& observation) override;
    void reset() override;

    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    [[nodiscard]] std::size_t memory_bytes() const override;
    /// Writes the dynamic table. If it is larger than kMaxSavedBytes, writes the most recent followers of the most
    /// recent leaders.
    void save(TableWriter& writer) const override;
    /// Reads what save() wrote. Ignores a table whose leaders or followers have other lengths. Throws FormatError if
    /// the table is damaged. In both cases the source is unchanged.
    void load(TableReader& reader) override;

    [[nodiscard]] const LruTable& dynamic_table() const { return dynamic_; }

private:
    /// Position of a path in one table: its last tokens as a leader, and the follower that it leads into.
    struct Spot {
        std::uint32_t leader = LruTable::kNone;
        std::uint32_t follower = LruTable::kNone;  // the first whose first n_matched tokens end the path; kNone: none
        std::uint32_t n_matched = 0;  // tokens of the follower that end the path: 1 to FL - 1; 0: no follower
    };
    /// Position of a path in both tables. A cursor is an index into places_.
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
    bool seen_any_ = false;  // observe() was called since construction or reset(); else the next text is learnt whole
    // Tokens of a path that contexts_ keeps: the longer leader of the two tables.
    std::size_t n_context_;
    // Places of the cursors since the last observation.
    std::vector<Place> places_;
    Cursor root_ = kNowhere;  // cursor after the text; kNowhere: not asked for since the last observation
    // [places][n_context_]: last tokens of each path; -1 before the start of the sequence.
    std::vector<TokenId> contexts_;
};

}  // namespace slipstream::draft
