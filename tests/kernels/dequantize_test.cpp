// Decoding of every weight format against the gguf Python package, bit for bit (golden data and its generator:
// tests/golden/dequantize), at several alignments, and its preconditions.

#include "kernels/cpu/matmul/dequantize.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/matmul/block_fields.h"

namespace slipstream {
namespace {

class DequantizeTest : public testing::TestWithParam<DType> {};

/// The golden files hold plain types in runs of 32 elements.
std::int64_t golden_elements(DType type) {
    return is_quantized(type) ? dtype_info(type).block_elements : 32;
}

std::vector<std::byte> bytes_from_hex(const std::string& hex) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

/// The n-th number of splitmix64 (Steele, Lea, Flood 2014), n from 1.
std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t n) {
    std::uint64_t z = seed + n * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/// Byte offsets of the upper bytes of a block's binary16 fields (make.py's table).
std::vector<std::size_t> half_high_bytes(DType type) {
    switch (type) {
        case DType::F32:
        case DType::BF16:
        case DType::MXFP4:
            return {};
        case DType::F16: {
            std::vector<std::size_t> all;
            for (std::size_t i = 1; i < 64; i += 2) all.push_back(i);
            return all;
        }
        case DType::Q8_0:
        case DType::Q4_0:
        case DType::Q5_0:
        case DType::IQ4_NL:
        case DType::IQ4_XS:
            return {1};
        case DType::Q2_K:
            return {81, 83};
        case DType::Q3_K:
            return {109};
        case DType::Q6_K:
            return {209};
        default:
            return {1, 3};
    }
}

std::vector<std::byte> random_blocks(DType type, std::uint64_t seed, std::size_t n_blocks) {
    const std::size_t block_bytes = row_bytes(type, golden_elements(type));
    std::vector<std::byte> bytes(n_blocks * block_bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(splitmix64(seed, i / 8 + 1) >> (8 * (i % 8)));
    for (std::size_t block = 0; block < n_blocks; ++block)
        for (const std::size_t offset : half_high_bytes(type)) bytes[block * block_bytes + offset] &= std::byte{0xfb};
    return bytes;
}

TEST_P(DequantizeTest, EqualsGoldenBlocksAtAnyAlignment) {
    const DType type = GetParam();
    std::ifstream file(fmt::format("{}/dequantize/{}.txt", SLIPSTREAM_GOLDEN_DIR, dtype_name(type)));
    ASSERT_TRUE(file) << "golden file of " << dtype_name(type) << " is missing";
    int n_blocks = 0;
    std::vector<std::byte> block;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word == "block") {
            words >> word;
            block = bytes_from_hex(word);
            ASSERT_EQ(block.size(), row_bytes(type, golden_elements(type)));
            continue;
        }
        if (word != "float") continue;
        std::vector<std::uint32_t> expected;
        while (words >> word) expected.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
        ASSERT_EQ(expected.size(), static_cast<std::size_t>(golden_elements(type)));
        ++n_blocks;
        for (std::size_t offset = 0; offset < 4; ++offset) {
            std::vector<std::byte> shifted(offset + block.size());
            std::copy(block.begin(), block.end(), shifted.begin() + static_cast<std::ptrdiff_t>(offset));
            std::vector<float> out(expected.size());
            cpu::dequantize_row(type, shifted.data() + offset, out.data(), golden_elements(type));
            for (std::size_t i = 0; i < out.size(); ++i) {
                if (std::isnan(std::bit_cast<float>(expected[i]))) {
                    EXPECT_TRUE(std::isnan(out[i])) << "block " << n_blocks << " weight " << i;
                } else {
                    EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), expected[i])
                        << "block " << n_blocks << " weight " << i << " offset " << offset;
                }
            }
        }
    }
    EXPECT_GE(n_blocks, 2);
}

TEST_P(DequantizeTest, EqualsChecksumOfManyRandomBlocks) {
    const DType type = GetParam();
    std::ifstream file(fmt::format("{}/dequantize/{}.txt", SLIPSTREAM_GOLDEN_DIR, dtype_name(type)));
    std::string line;
    std::string last;
    while (std::getline(file, line)) last = line;
    std::istringstream words(last);
    std::string word;
    std::uint64_t seed = 0;
    std::size_t n_blocks = 0;
    std::uint64_t expected = 0;
    words >> word >> seed >> n_blocks >> std::hex >> expected;
    ASSERT_EQ(word, "many");
    ASSERT_GT(n_blocks, 0U);

    const std::vector<std::byte> blocks = random_blocks(type, seed, n_blocks);
    const std::int64_t n = golden_elements(type) * static_cast<std::int64_t>(n_blocks);
    std::vector<float> out(static_cast<std::size_t>(n));
    cpu::dequantize_row(type, blocks.data(), out.data(), n);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
        sum += (std::uint64_t{std::bit_cast<std::uint32_t>(out[i])} + 1) * (2 * i + 1);
    EXPECT_EQ(sum, expected);
}

TEST_P(DequantizeTest, NothingToDecodeTouchesNothing) {
    float untouched = 7.0F;
    cpu::dequantize_row(GetParam(), nullptr, &untouched, 0);
    EXPECT_EQ(untouched, 7.0F);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, DequantizeTest,
                         testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_1,
                                         DType::Q5_0, DType::Q5_1, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K,
                                         DType::IQ4_NL, DType::MXFP4, DType::IQ4_XS, DType::Q2_K),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST(DequantizeDeathTest, RefusesPartOfABlock) {
    std::vector<std::byte> block(256);
    std::vector<float> out(256);
    EXPECT_DEATH(cpu::dequantize_row(DType::Q8_0, block.data(), out.data(), 31), "31 elements of Q8_0");
}

}  // namespace
}  // namespace slipstream
