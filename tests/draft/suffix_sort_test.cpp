// The suffix array against suffixes sorted by comparing them.
#include "draft/tables/suffix_sort.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

using Text = std::vector<std::int32_t>;

std::vector<std::uint32_t> sorted_by_comparison(const Text& text) {
    std::vector<std::uint32_t> out(text.size());
    std::iota(out.begin(), out.end(), 0U);
    std::ranges::sort(out, [&text](std::uint32_t a, std::uint32_t b) {
        return std::lexicographical_compare(text.begin() + a, text.end(), text.begin() + b, text.end());
    });
    return out;
}

TEST(SuffixSort, AgreesWithComparison) {
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        SCOPED_TRACE(round);
        Text text(random() % 200);
        const auto alphabet = 1 + random() % (round % 2 == 0 ? 3 : 1000);
        const std::size_t period = 1 + random() % 50;
        for (std::size_t i = 0; i < text.size(); ++i)
            text[i] = round % 3 == 0 && i >= period ? text[i - period] : static_cast<std::int32_t>(random() % alphabet);
        EXPECT_EQ(suffix_array(text, {}), sorted_by_comparison(text));
    }
}

TEST(SuffixSort, TellsItsProgressAndStopsWhereThatThrows) {
    std::mt19937 random(6);
    Text text(std::size_t{3} << 19);
    for (auto& token : text) token = static_cast<std::int32_t>(random() % 1000);
    double last = -1.0;
    const auto array = suffix_array(text, [&](double done, double all) {
        EXPECT_GE(done, last);
        EXPECT_LE(done, all);
        EXPECT_EQ(all, static_cast<double>(text.size()));
        last = done;
    });
    EXPECT_GE(last, 0.0);
    for (std::size_t i = 1; i < array.size(); i += 997)
        EXPECT_TRUE(
            std::lexicographical_compare(text.begin() + array[i - 1], text.end(), text.begin() + array[i], text.end()));
    EXPECT_THROW((void)suffix_array(text, [](double, double) { throw std::runtime_error("enough"); }),
                 std::runtime_error);
}

}  // namespace
}  // namespace slipstream::draft
