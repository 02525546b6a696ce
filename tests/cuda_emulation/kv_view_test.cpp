// The kernels of KV views on emulated blocks: the same bits in every schedule. What they compute: tests/cuda.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/base/float16.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/kv_view_launch.h"
#include "tests/cuda_emulation/schedule.h"

namespace slipstream {
namespace {

class CudaKvViewTest : public testing::TestWithParam<DType> {
protected:
    // Two chunks of plain rows, with Q8 of codes and scales at random places; the second's last slots are NaN.
    explicit CudaKvViewTest() {
        std::mt19937 random(4);
        std::normal_distribution<float> normal;
        for (std::vector<std::byte>& chunk : storage_) {
            chunk.resize(shape_.chunk_bytes(), std::byte{0xff});
            if (shape_.has_scales()) {
                fill_q8(chunk, &chunk == &storage_[1] ? kCommitted - 256 : kChunkTokens, random);
                chunks_.push_back(chunk.data());
                continue;
            }
            const std::int64_t n = std::ssize(chunk) / static_cast<std::int64_t>(row_bytes(GetParam(), 1));
            for (std::int64_t i = 0; i < n; ++i) {
                const bool behind = &chunk == &storage_[1] && i / shape_.head_dim % kChunkTokens >= kCommitted - 256;
                if (!behind) put(chunk.data() + row_bytes(GetParam(), i), normal(random));
            }
            chunks_.push_back(chunk.data());
        }
        for (std::int64_t i = 0; i < kHeads * shape_.head_dim; ++i) q_.push_back(normal(random));
    }
    [[nodiscard]] std::vector<float> scores(bool mass) const {
        std::vector<float> out(kHeads * kGroups, 77.0F);
        cuda::launch_kv_score({.type = cuda::kv_type(GetParam()),
                               .mass = mass,
                               .n_q_heads = kHeads,
                               .n_kv_heads = static_cast<std::int32_t>(shape_.n_kv_heads),
                               .head_dim = static_cast<std::int32_t>(shape_.head_dim),
                               .q = q_.data(),
                               .chunks = chunks_.data(),
                               .n_chunks = 2,
                               .first_chunk = 1,
                               .n_committed = kChunkTokens + kCommitted,
                               .scale = 0.125F,
                               .out = out.data(),
                               .n_groups = kGroups},
                              nullptr);
        return out;
    }

    static constexpr std::int32_t kHeads = 10;
    static constexpr std::int64_t kCommitted = 256 + 83;
    static constexpr std::int64_t kGroups = 32 + 43 + 2;
    const KvLayout shape_{2, 64, GetParam()};
    std::vector<std::byte> storage_[2];
    std::vector<const std::byte*> chunks_;
    std::vector<float> q_;

private:
    // Fills the first n_slots of each part; the codes of a step are followed by its scales.
    void fill_q8(std::vector<std::byte>& chunk, std::int64_t n_slots, std::mt19937& random) const {
        const std::size_t codes = shape_.head_code_bytes();
        const std::size_t scales = shape_.head_row_bytes() - codes;
        for (std::int64_t part = 0; part < 2 * shape_.n_kv_heads; ++part)
            for (std::int64_t slot = 0; slot < n_slots; ++slot) {
                std::byte* step = chunk.data() + static_cast<std::size_t>(part) * shape_.part_bytes() +
                                  static_cast<std::size_t>(slot / kStepTokens) * shape_.step_bytes();
                const auto in_step = static_cast<std::size_t>(slot % kStepTokens);
                for (std::size_t i = 0; i < codes; ++i) step[in_step * codes + i] = static_cast<std::byte>(random());
                for (std::size_t at = 0; at < scales; at += sizeof(BFloat16)) {
                    const BFloat16 scale = to_bfloat16(std::ldexp(1.0F + static_cast<float>(random() % 64) / 64, -7));
                    std::memcpy(step + kStepTokens * codes + in_step * scales + at, &scale, sizeof(scale));
                }
            }
    }
    static void put(std::byte* at, float value) {
        if (GetParam() == DType::F32) std::memcpy(at, &value, 4);
        if (GetParam() == DType::F16) *reinterpret_cast<Half*>(at) = to_half(value);
        if (GetParam() == DType::BF16) *reinterpret_cast<BFloat16*>(at) = to_bfloat16(value);
    }
};

TEST_P(CudaKvViewTest, ScoresHaveTheSameBitsInEverySchedule) {
    for (const bool mass : {true, false}) {
        const std::vector<float> plain = scores(mass);
        for (std::int64_t i = 0; i < std::ssize(plain); ++i) {
            const std::int64_t group = i % kGroups;
            const float score = plain[i];
            ASSERT_EQ(score == 77.0F, group < 32 || group >= 32 + 43) << "group " << group;
            ASSERT_TRUE(std::isfinite(score)) << "group " << group;
        }
        for (const emulation::Schedule schedule : emulation::kAllSchedules) {
            const emulation::ScopedSchedule scope(schedule);
            const std::vector<float> found = scores(mass);
            EXPECT_EQ(std::memcmp(plain.data(), found.data(), plain.size() * sizeof(float)), 0)
                << emulation::schedule_name(schedule);
        }
    }
}

TEST_P(CudaKvViewTest, GathersInEverySchedule) {
    const std::size_t group_bytes = row_bytes(GetParam(), 8 * shape_.head_dim);
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scope(schedule);
        std::vector<std::byte> to(shape_.chunk_bytes(), std::byte{0xa5});
        // Groups 3 and 30 of head 0 of both chunks.
        const std::vector<cuda::KvGroupMove> moves{{chunks_[0] + 3 * group_bytes, to.data()},
                                                   {chunks_[1] + 30 * group_bytes, to.data() + 31 * group_bytes}};
        cuda::launch_kv_gather({.n_moves = 2,
                                .group_pieces = static_cast<std::int32_t>(group_bytes / 16),
                                .part_bytes = static_cast<std::int64_t>(shape_.part_bytes()),
                                .moves = moves.data()},
                               nullptr);
        std::vector<std::byte> expected(to.size(), std::byte{0xa5});
        for (const std::size_t part : {std::size_t{0}, shape_.part_bytes()}) {
            std::memcpy(expected.data() + part, moves[0].from + part, group_bytes);
            std::memcpy(expected.data() + part + 31 * group_bytes, moves[1].from + part, group_bytes);
        }
        EXPECT_EQ(to, expected) << emulation::schedule_name(schedule);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaKvViewTest, testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace slipstream
