// Packing: it loses nothing, fills the last group with zeros, stays inside its bytes; unpacked codes and scales give
// the weights of dequantize_row to the bit; activations are rounded as activations.h says.

#include "kernels/pack_weights.h"

#include <bit>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/interleaved.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "tests/kernels/matmul_cases.h"
#include "tests/kernels/unpack_one.h"

namespace slipstream {
namespace {

using namespace testing_matmul;  // NOLINT: the cases are this test's own

class PackWeightsTest : public testing::TestWithParam<DType> {};

TEST_P(PackWeightsTest, EveryRowComesBackAndMissingRowsAreZero) {
    const DType type = GetParam();
    for (const int n_threads : {1, 2}) {
        Runner run(CpuForm::Scalar, n_threads);
        for (const std::int64_t m : {1, 15, 16, 17, 70}) {
            const std::int64_t k = is_quantized(type) ? 768 : 37;
            const std::size_t bytes = row_bytes(type, k);
            const Weights weights = random_weights(type, m, k, 1, 3);
            const ConstTensorView packed = run.pack(weights.view());
            EXPECT_EQ(packed_bytes(type, m, k), static_cast<std::size_t>((m + 15) / 16 * 16) * bytes);
            std::vector<std::byte> row(bytes);
            for (std::int64_t r = 0; r < (m + 15) / 16 * 16; ++r) {
                cpu::deinterleave_row(type, packed.data + static_cast<std::size_t>(r / 16 * 16) * bytes,
                                      static_cast<int>(r % 16), k, row.data());
                if (r < m) {
                    ASSERT_EQ(std::memcmp(row.data(), weights.view().row(r), bytes), 0) << "row " << r << " of " << m;
                } else if (!is_quantized(type) || type == DType::Q4_0) {
                    ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](std::byte b) { return b == std::byte{0}; }));
                }
            }
        }
    }
}

class UnpackTest : public testing::TestWithParam<DType> {};

TEST_P(UnpackTest, CodesGiveTheWeightsToTheBit) {
    const DType type = GetParam();
    const std::int64_t k = dtype_info(type).block_elements;
    const cpu::CodeTraits traits = cpu::code_traits(type);
    for (std::uint32_t round = 0; round < 64; ++round) {
        Weights weights = random_weights(type, 16, k);
        // Any scale bits but infinity and NaN: subnormal, zero and large ones too.
        for (std::size_t row = 0; row < 16; ++row)
            for (const std::size_t field : half_fields(type)) {
                const auto bits = static_cast<std::uint16_t>(((round * 16 + row) * 40503U + field * 977U) & 0xfbffU);
                std::memcpy(weights.bytes.data() + row * weights.stride_bytes + field, &bits, sizeof(bits));
            }
        if (type == DType::MXFP4)  // every exponent, in the 64 rounds several times
            for (std::size_t row = 0; row < 16; ++row)
                weights.bytes[row * weights.stride_bytes] = static_cast<std::byte>(round * 16 + row);
        std::vector<std::byte> group(16 * row_bytes(type, k));
        cpu::interleave_rows(type, weights.bytes.data(), weights.stride_bytes, 16, k, group.data());
        auto chunk = std::make_unique<cpu::UnpackedChunk>();
        unpack_one(type, group.data(), *chunk);
        for (std::int64_t row = 0; row < 16; ++row) {
            const std::vector<float> expected = weights.decoded_row(row);
            const auto r = static_cast<std::size_t>(row);
            for (std::size_t i = 0; i < expected.size(); ++i) {
                const std::size_t s = i / 32;
                const int code = static_cast<int>((chunk->codes[s][i % 32 / 4][r] >> (8 * (i % 4))) & 0xffU);
                ASSERT_LT(code, 1 << traits.code_bits);
                const float scale = chunk->scale[traits.scale_run == 16 ? i / 16 : s][r];
                float weight = scale * static_cast<float>(code - traits.code_offset);
                const std::size_t run = traits.scale_run == 16 ? i / 16 : s;  // of weights that share a minimum
                const auto min = static_cast<float>(chunk->mins[run / 2][r] >> (16 * (run % 2)) & 0xffffU);
                if (traits.has_offset) weight += k == 32 ? chunk->offset[s][r] : chunk->minus_dmin[r] * min;
                ASSERT_EQ(weight, expected[i]) << "row " << row << " weight " << i << " round " << round;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, PackWeightsTest, testing::ValuesIn(kAllTypes),
                         [](const auto& which) { return std::string(dtype_name(which.param)); });

INSTANTIATE_TEST_SUITE_P(Types, UnpackTest,
                         testing::Values(DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q3_K,
                                         DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL, DType::MXFP4,
                                         DType::IQ4_XS, DType::Q2_K),
                         [](const auto& which) { return std::string(dtype_name(which.param)); });

TEST(PackWeights, UnpackingInEveryFormEqualsThePlainOne) {
    for (const CpuForm form : vector_forms()) {
        const cpu::InterleavedForm& table = form == CpuForm::Avx2         ? cpu::interleaved_form_avx2()
                                            : form == CpuForm::Avx512     ? cpu::interleaved_form_avx512()
                                            : form == CpuForm::Avx512Vnni ? cpu::interleaved_form_avx512_vnni()
                                                                          : cpu::interleaved_form_avx512_bf16();
        for (const DType type : kAllTypes) {
            if (!is_quantized(type)) continue;
            const std::int64_t k = dtype_info(type).block_elements;
            const Weights weights = random_weights(type, 16, k);
            std::vector<std::byte> group(16 * row_bytes(type, k));
            cpu::interleave_rows(type, weights.bytes.data(), weights.stride_bytes, 16, k, group.data());
            auto plain = std::make_unique<cpu::UnpackedChunk>();
            auto chunk = std::make_unique<cpu::UnpackedChunk>();
            std::memset(plain.get(), 0, sizeof(*plain));
            std::memset(chunk.get(), 0, sizeof(*chunk));
            unpack_one(type, group.data(), *plain);
            table.unpack[static_cast<std::size_t>(type)](group.data(), group.size(), static_cast<int>(k / 32), *chunk);
            EXPECT_EQ(std::memcmp(plain.get(), chunk.get(), sizeof(*chunk)), 0)
                << dtype_name(type) << " " << cpu_form_name(form);
        }
    }
}

TEST(Activations, AreRoundedToTheNearestOf255Steps) {
    float x[32];
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i - 20) * 0.37F;
    x[7] = -31.75F;  // d = 0.25
    x[8] = 0.125F;   // a tie, to even
    x[9] = 0.375F;
    std::byte out[2 * cpu::kBlockBytesPerToken];
    cpu::quantize_token(x, 32, 1, 2, cpu::code_traits(DType::Q8_0), out);  // the second of two tokens
    const auto word = [&](int index) {
        std::int32_t value;
        std::memcpy(&value, out + 4 * (index * 2 + 1), sizeof(value));
        return value;
    };
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
        const int q = static_cast<std::int8_t>(word(i / 4) >> (8 * (i % 4)));
        EXPECT_EQ(q, static_cast<int>(std::nearbyint(x[i] / 0.25F))) << i;
        sum += q;
    }
    EXPECT_EQ(word(8), -128 * sum);
    EXPECT_EQ(word(9), 0);
    EXPECT_EQ(std::bit_cast<float>(word(10)), 0.25F);
    EXPECT_EQ(std::bit_cast<float>(word(11)), 0.25F * static_cast<float>(sum));
}

TEST(Activations, ShareAScaleOver256WhereTheFormatDoes) {
    float x[256];
    for (int i = 0; i < 256; ++i) x[i] = static_cast<float>(i % 97 - 48) * 0.125F;
    x[200] = 31.75F;  // d = 0.25
    std::byte out[8 * cpu::kBlockBytesPerToken];
    cpu::quantize_token(x, 256, 0, 1, cpu::code_traits(DType::Q4_K), out);
    std::int32_t sum_before = 0;
    for (int block = 0; block < 8; ++block) {
        const std::byte* const at = out + block * cpu::kBlockBytesPerToken;
        const auto word = [&](int index) {
            std::uint32_t value;
            std::memcpy(&value, at + 4 * index, sizeof(value));
            return value;
        };
        std::int32_t sum = 0;
        for (int i = 0; i < 32; ++i) {
            const int q = static_cast<std::int8_t>(at[i]);
            EXPECT_EQ(q, static_cast<int>(std::nearbyint(x[32 * block + i] / 0.25F))) << block << " " << i;
            sum += q;
        }
        EXPECT_EQ(std::bit_cast<float>(word(10)), 0.25F);
        const bool second = block % 2 != 0;
        EXPECT_EQ(static_cast<std::int16_t>(word(11) & 0xffffU), second ? sum_before : 0) << block;
        EXPECT_EQ(static_cast<std::int16_t>(word(11) >> 16), second ? sum : 0) << block;
        sum_before = sum;
    }
}

TEST(Activations, BlocksTooSmallForAScaleAreZero) {
    float x[256] = {0x1p-130F, -0x1p-149F};
    std::byte out[8 * cpu::kBlockBytesPerToken];
    cpu::quantize_token(x, 256, 0, 1, cpu::code_traits(DType::Q6_K), out);
    for (const std::byte b : out) EXPECT_EQ(b, std::byte{0});
}

}  // namespace
}  // namespace slipstream
