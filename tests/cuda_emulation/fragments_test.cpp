// Packing into fragments: every row of every type comes back by the layout's own formula, missing rows are zeros, and
// nothing is written outside the groups asked for.

#include "kernels/cuda/matmul/fragments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/kernels/matmul_cases.h"

namespace slipstream::cuda {
namespace {

using testing_matmul::cuda_types;

class FragmentsTest : public testing::TestWithParam<DType> {};

/// Rows of random bytes: any bits are somebody's weights.
struct RandomRows {
    std::size_t stride;
    std::vector<std::byte> bytes;
    FileRows rows;

    RandomRows(DType type, std::int64_t m, std::int64_t k)
        : stride(row_bytes(type, k) + 3), bytes(1 + static_cast<std::size_t>(m) * stride) {
        std::mt19937 random(11);
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        rows = {type, bytes.data() + 1, stride, m, k};
    }
};

TEST_P(FragmentsTest, EveryRowComesBackAndMissingRowsAreZero) {
    const DType type = GetParam();
    const std::int64_t block = dtype_info(type).block_elements;
    const std::vector<std::int64_t> widths = block == 1    ? std::vector<std::int64_t>{1, 15, 16, 17, 37, 64, 83}
                                             : block == 32 ? std::vector<std::int64_t>{32, 64, 96, 128, 160, 352}
                                                           : std::vector<std::int64_t>{256, 768};
    for (const std::int64_t k : widths) {
        for (const std::int64_t m : {1, 8, 15, 16, 17, 41}) {
            SCOPED_TRACE(fmt::format("[{}, {}]", m, k));
            const RandomRows from(type, m, k);
            const std::size_t bytes = row_bytes(type, k);
            const std::int64_t n_groups = (m + 15) / 16;
            std::vector<std::byte> packed(static_cast<std::size_t>(n_groups * 16) * bytes, std::byte{0xee});
            pack_fragments(from.rows, 0, n_groups, packed.data());
            std::vector<std::byte> row(bytes);
            for (std::int64_t r = 0; r < n_groups * 16; ++r) {
                unpack_fragment_row(type, packed.data() + static_cast<std::size_t>(r / 16 * 16) * bytes,
                                    static_cast<int>(r % 16), k, row.data());
                if (r < m) {
                    ASSERT_EQ(
                        std::memcmp(row.data(), from.rows.data + static_cast<std::size_t>(r) * from.stride, bytes), 0)
                        << "row " << r;
                } else {
                    ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](std::byte b) { return b == std::byte{0}; }))
                        << "row " << r;
                }
            }
        }
    }
}

TEST_P(FragmentsTest, GroupsArePackedByThemselves) {
    const DType type = GetParam();
    const std::int64_t k = std::max<std::int64_t>(64, dtype_info(type).block_elements);
    const RandomRows from(type, 60, k);
    const std::size_t group = 16 * row_bytes(type, k);
    std::vector<std::byte> whole(4 * group);
    pack_fragments(from.rows, 0, 4, whole.data());
    std::vector<std::byte> part(4 * group, std::byte{0xee});
    pack_fragments(from.rows, 1, 3, part.data());
    EXPECT_EQ(std::memcmp(part.data() + group, whole.data() + group, 2 * group), 0);
    EXPECT_TRUE(std::all_of(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(group),
                            [](std::byte b) { return b == std::byte{0xee}; }));
    EXPECT_TRUE(std::all_of(part.end() - static_cast<std::ptrdiff_t>(group), part.end(),
                            [](std::byte b) { return b == std::byte{0xee}; }));
    pack_fragments(from.rows, 0, 0, nullptr);  // no groups, no bytes
}

INSTANTIATE_TEST_SUITE_P(Types, FragmentsTest, testing::ValuesIn(cuda_types()),
                         [](const auto& which) { return std::string(dtype_name(which.param)); });

}  // namespace
}  // namespace slipstream::cuda
