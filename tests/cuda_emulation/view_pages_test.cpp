// The kernels of view pages on emulated blocks: the same bits in every schedule. What they compute: tests/cuda.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/float16.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/view_pages_launch.h"
#include "kernels/view_pages.h"
#include "tests/cuda_emulation/schedule.h"

namespace slipstream {
namespace {

class CudaViewPagesTest : public testing::TestWithParam<std::int64_t> {
protected:
    CudaViewPagesTest() {
        std::mt19937 random(4);
        std::normal_distribution<float> normal;
        for (std::vector<float>* rows : {&k_, &v_})
            for (std::int64_t i = 0; i < kPageSlots * shape_.head_dim; ++i) rows->push_back(normal(random));
        for (std::int64_t i = 0; i < kTokens * kHeads * shape_.head_dim; ++i) q_.push_back(normal(random));
    }
    // Returns six pages made from the same 64 rows. Pages 0 and 5, each the last of its head, have 50 slots.
    [[nodiscard]] std::vector<std::byte> pages() const {
        std::vector<std::byte> pages(kPages * view_page_bytes(shape_.head_dim), std::byte{0xff});
        std::vector<cuda::PagePlace> fills;
        for (std::int32_t page = 0; page < kPages; ++page)
            fills.push_back({reinterpret_cast<const std::byte*>(k_.data()),
                             reinterpret_cast<const std::byte*>(v_.data()), page == 0 || page == 5 ? 50 : 64, page});
        cuda::launch_pages_write({.type = cuda::KvType::F32,
                                  .head_dim = static_cast<std::int32_t>(shape_.head_dim),
                                  .n_fills = kPages,
                                  .fills = fills.data(),
                                  .pages = pages.data()},
                                 nullptr);
        return pages;
    }
    // One page of head 0, five of head 1, of a launch for three chunks; one chunk in a wave.
    [[nodiscard]] std::vector<float> fold(const std::vector<std::byte>& pages) const {
        std::vector<float> state(attention_state_floats(kTokens, kHeads, shape_.head_dim), std::nanf(""));
        const AttentionArgs args{.shape = shape_,
                                 .q = matrix_view(reinterpret_cast<const std::byte*>(q_.data()), DType::F32, kTokens,
                                                  kHeads * shape_.head_dim),
                                 .out = {},
                                 .n_q_heads = kHeads,
                                 .scale = 0.2F,
                                 .part = AttentionPart::First,
                                 .state = state.data()};
        cuda::AttentionPlan plan{.launch_chunks = 3, .way = cuda::AttentionWay::Parallel, .wave_chunks = 1};
        std::vector<float> scratch(cuda::attention_scratch_floats(plan, args), std::nanf(""));
        const std::vector<std::int32_t> ranges{0, 50, 1, 4 * 64 + 50};
        cuda::PagesAttentionLaunch launch{
            .fold = cuda::attention_launch(args, plan), .pages = pages.data(), .ranges = ranges.data()};
        cuda::place_scratch(plan, scratch.data(), launch.fold);
        cuda::launch_pages_attention(launch, nullptr);
        return state;
    }

    static constexpr std::int32_t kPages = 6;
    static constexpr std::int64_t kTokens = 3;
    static constexpr std::int64_t kHeads = 6;
    const KvLayout shape_{2, GetParam(), DType::F32};
    std::vector<float> k_, v_, q_;
};

TEST_P(CudaViewPagesTest, HaveTheSameBitsInEverySchedule) {
    const std::vector<std::byte> plain_pages = pages();
    const std::vector<float> plain = fold(plain_pages);
    for (const float x : plain) ASSERT_TRUE(std::isfinite(x));
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scope(schedule);
        EXPECT_EQ(plain_pages, pages()) << emulation::schedule_name(schedule);
        const std::vector<float> found = fold(plain_pages);
        EXPECT_EQ(std::memcmp(plain.data(), found.data(), plain.size() * sizeof(float)), 0)
            << emulation::schedule_name(schedule);
    }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, CudaViewPagesTest, testing::Values(1, 7, 64, 80, 256));

}  // namespace
}  // namespace slipstream
