// How many distinct experts of a layer tokens need together, by their number: D(n) of n tokens. Passes are counted as
// they ran, with all nodes of a draft tree; so are neighbouring committed tokens, as if a pass had computed them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

/// Sums over groups of tokens: passes, or neighbouring tokens.
struct DistinctSum {
    std::uint64_t groups = 0;
    std::uint64_t tokens = 0;
    std::uint64_t distinct = 0;  // experts that the tokens of a group chose, each once
    friend bool operator==(const DistinctSum&, const DistinctSum&) = default;
};

/// On average, a group of `n_tokens` tokens needs `n_distinct` experts of a layer.
struct DistinctPoint {
    double n_tokens = 0.0;
    double n_distinct = 0.0;
    friend bool operator==(const DistinctPoint&, const DistinctPoint&) = default;
};

/// Sums over the groups of a layer, by their size.
class DistinctExperts {
public:
    /// Sizes: sums()[i] are over groups of 2^i to 2^(i+1) - 1 tokens, the last ones over larger groups, too.
    static constexpr std::size_t kSizes = 10;
    /// Groups of a size, and their tokens, that points() requires.
    static constexpr std::uint64_t kLeastGroups = 8;
    static constexpr std::uint64_t kLeastTokens = 256;
    /// Most tokens of a size in the sum of limited().
    static constexpr std::uint64_t kMostTokens = 65536;

    DistinctExperts() = default;
    explicit DistinctExperts(const std::array<DistinctSum, kSizes>& sums) : sums_(sums) {}

    /// Counts a group; of no token, nothing.
    void add(std::int64_t n_tokens, std::int64_t n_distinct);
    [[nodiscard]] const std::array<DistinctSum, kSizes>& sums() const { return sums_; }
    [[nodiscard]] bool empty() const { return *this == DistinctExperts(); }
    /// Returns a copy in which each size with more than kMostTokens tokens is scaled down to about that many, so that
    /// later groups weigh more.
    [[nodiscard]] DistinctExperts limited() const;
    /// Returns a point for each size of at least two tokens that has enough groups. Tokens ascend, and distinct experts
    /// never fall. Empty: too little is known.
    [[nodiscard]] std::vector<DistinctPoint> points() const;

    DistinctExperts& operator+=(const DistinctExperts& other);
    /// `earlier`: these sums, at an earlier time.
    friend DistinctExperts operator-(const DistinctExperts& later, const DistinctExperts& earlier);
    friend bool operator==(const DistinctExperts&, const DistinctExperts&) = default;

private:
    std::array<DistinctSum, kSizes> sums_{};
};

/// Counts groups of 2, 4, 8, ... kMostNeighbours neighbouring tokens of a layer: groups of a size follow one another,
/// and each token is in one group of each size.
class NeighbourExperts {
public:
    static constexpr std::int64_t kMostNeighbours = 256;

    /// A layer of so many experts; 0: of none.
    explicit NeighbourExperts(std::int64_t n_experts) : last_(static_cast<std::size_t>(n_experts), 0) {}

    /// `chosen`: the experts that the next token chose, each once; empty if that is not known, which begins all groups
    /// anew.
    void add(std::span<const std::uint16_t> chosen);
    [[nodiscard]] const DistinctExperts& distinct() const { return distinct_; }

private:
    static constexpr std::size_t kGroupSizes = 8;  // 2 to kMostNeighbours
    std::vector<std::uint64_t> last_;  // [n_experts]: number of the last token that chose it, from 1; 0: none
    std::uint64_t first_ = 1;          // number of the token with which all groups began
    std::uint64_t n_tokens_ = 0;       // number of the last token
    std::array<std::int64_t, kGroupSizes> n_distinct_{};  // of the group of 2^(i+1) tokens that is not complete
    DistinctExperts distinct_;
};

}  // namespace slipstream
