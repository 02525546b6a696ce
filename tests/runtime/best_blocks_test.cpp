// The sieve against a sort of the whole row: nobody of the best k is missing, and few others come along.
#include "runtime/loop/sampling/best_blocks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_row(std::size_t n, std::uint32_t seed, float deviation = 4.0F) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<float> row(n);
    for (float& logit : row) logit = normal(random);
    return row;
}

// What reaches the bound for k: all that do, and at least the best k of those that are numbers above -inf.
std::size_t check(const std::vector<float>& row, std::size_t k, Lanes lanes) {
    BestBlocks blocks(row.size(), lanes);
    float greatest = -kInfinity;
    std::vector<float> numbers;
    for (const float logit : row) {
        if (!(logit > -kInfinity)) continue;
        numbers.push_back(logit);
        greatest = std::max(greatest, logit);
    }
    EXPECT_EQ(blocks.scan(row), greatest);
    const float bound = blocks.bound(k);
    const auto found = blocks.reaching(bound);
    std::vector<std::uint32_t> expected;
    for (std::uint32_t id = 0; id < row.size(); ++id)
        if (row[id] >= bound && row[id] > -kInfinity) expected.push_back(id);
    EXPECT_TRUE(std::ranges::equal(found, expected)) << "k " << k << " of " << row.size();
    EXPECT_GE(found.size(), std::min(k, numbers.size())) << "k " << k << " of " << row.size();
    return found.size();
}

// The same with all vectors that this processor has; the most of what was found.
std::size_t check(const std::vector<float>& row, std::size_t k) {
    std::size_t most = 0;
    for (const Lanes lanes : {Lanes::Portable, Lanes::Avx2, Lanes::Avx512})
        if (lanes <= widest_lanes()) most = std::max(most, check(row, k, lanes));
    return most;
}

TEST(BestBlocks, NobodyOfTheBestIsMissing) {
    for (const std::size_t n : {1, 15, 16, 17, 100, 1000, 4096, 4099})
        for (std::uint32_t seed = 0; seed < 10; ++seed)
            for (const std::size_t k : {1, 2, 40, 64, 255, 5000}) check(random_row(n, seed), k);
}

TEST(BestBlocks, FewOthersComeAlong) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
        EXPECT_LE(check(random_row(32000, seed), 40), 80U);
        EXPECT_LE(check(random_row(32000, seed, 0.01F), 40), 80U) << "a flat row";
        std::vector<float> padded = random_row(32000, seed, 0.2F);
        std::fill(padded.end() - 300, padded.end(), seed % 2 == 0 ? -1e4F : -kInfinity);
        EXPECT_LE(check(padded, 40), 250U) << "a flat row with padding";
    }
}

TEST(BestBlocks, RowsThatAreOddInAnyWay) {
    std::vector<float> row = random_row(4096, 3);
    row[100] = kInfinity;
    check(row, 40);
    for (std::size_t id = 1024; id < 3072; ++id) row[id] = id % 2 == 0 ? kNan : -kInfinity;
    check(row, 40);
    row[100] = 3.0F;
    check(row, 40);
    for (std::size_t id = 0; id < 1024; ++id) row[id] = -1e30F;
    check(row, 40);
    check(std::vector<float>(4096, 2.5F), 40);
    check(std::vector<float>(4096, -kInfinity), 40);
    check(std::vector<float>(4096, kNan), 40);
    std::vector<float> far(4096, -3e38F);
    far[7] = 3e38F;
    check(far, 1);
    check(far, 40);
}

}  // namespace
}  // namespace slipstream
