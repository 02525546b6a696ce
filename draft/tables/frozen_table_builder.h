// Builds Cacheback's frozen table from token ids (Ma, Gim, Zhong 2025, section 3.3): the LC most frequent leaders, for
// each the FC most frequent followers. Exact counts in bounded memory: the ids are kept (4 bytes each), and the windows
// of LL + FL ids are sorted and counted a share of the leaders at a time. Ties go to the lower ids, so equal texts give
// equal tables, whatever their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "draft/sources/cacheback_options.h"
#include "draft/tables/frozen_table.h"
#include "draft/tables/table_file.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

struct FrozenTableFigures {
    std::size_t n_tokens = 0;
    std::size_t n_leaders = 0;
    std::size_t n_followers = 0;
};

class FrozenTableBuilder {
public:
    /// Windows that are sorted at once: 16 MiB of numbers, about a second.
    static constexpr std::size_t kMaxSortedWindows = std::size_t{1} << 22;
    /// The ids of a corpus: 4 GiB of them.
    static constexpr std::size_t kMaxTokens = std::size_t{1} << 30;

    /// Uses LL, FL, LC and FC of `options`. `max_sorted` bounds the windows that are sorted at once, leaders being
    /// spread evenly. Throws RequestError where a setting is out of range.
    FrozenTableBuilder(const CachebackOptions& options, const FrozenTableKey& key,
                       std::size_t max_sorted = kMaxSortedWindows);

    /// A text of its own: no window crosses its borders. Ids are in the vocabulary (CHECKed). Throws RequestError where
    /// the corpus gets too large.
    void add(std::span<const TokenId> document);

    /// The section of the table. `on_progress` (may be empty) is told how much is done, of how much, and may throw to
    /// give up. Throws RequestError where no text had a whole window.
    [[nodiscard]] TableSection build(const std::function<void(double, double)>& on_progress);
    /// Of what was added, and of the last build().
    [[nodiscard]] const FrozenTableFigures& figures() const { return figures_; }

private:
    struct Leader {
        std::uint32_t window;           // one that begins with it
        std::uint32_t n_followers = 0;  // kept
        std::uint64_t count = 0;
        std::size_t first_follower;  // in followers_
    };

    [[nodiscard]] std::span<const TokenId> leader_at(std::uint32_t window) const;
    [[nodiscard]] std::span<const TokenId> follower_at(std::uint32_t window) const;
    void collect_windows(std::size_t part, std::size_t n_parts);
    void count_part();
    void keep_leader(std::span<const std::uint32_t> windows);
    void keep_most_frequent(std::size_t n_leaders);

    std::size_t leader_tokens_, follower_tokens_, max_leaders_, max_followers_, max_sorted_;
    FrozenTableKey key_;
    std::vector<TokenId> tokens_;             // all documents
    std::vector<std::size_t> document_ends_;  // in tokens_
    std::vector<std::uint32_t> windows_;      // of the part at hand: where each begins
    std::vector<Leader> leaders_;             // the best so far
    std::vector<std::uint32_t> followers_;    // of leaders_, as a window that holds each
    FrozenTableFigures figures_;
};

}  // namespace slipstream::draft
