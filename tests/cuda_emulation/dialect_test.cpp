// The emulation itself: what the dialect's operations compute, and that it sees what a card would leave undefined.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/cuda_emulation/gpu.cuh"

namespace slipstream::emulation {
namespace {

// NOLINTBEGIN: kernels, in their dialect
constexpr int kPitch = 24;  // halves a row: 16-byte aligned rows

/// y[16, 8] = a[16, 16] b[8, 16]^T of one warp, through asynchronous copies and ldmatrix.
void multiply_kernel(const gpu::Bf16* a, const gpu::Bf16* b, float* y) {
    auto sa = gpu::dynamic_shared<gpu::Bf16>(0);
    auto sb = gpu::dynamic_shared<gpu::Bf16>(16 * kPitch * 2);
    const int lane = threadIdx.x;
    gpu::copy_async_16(sa + (lane / 2 * kPitch + lane % 2 * 8), a + lane * 8);
    if (lane < 16) gpu::copy_async_16(sb + (lane / 2 * kPitch + lane % 2 * 8), b + lane * 8);
    gpu::copy_async_commit();
    gpu::copy_async_wait<0>();
    gpu::sync_warp();
    uint32_t fa[4], fb[4];
    gpu::ldmatrix_x4(fa, sa + (lane % 16 * kPitch + lane / 16 * 8));
    gpu::ldmatrix_x4(fb, sb + (lane % 8 * kPitch + lane / 8 % 2 * 8));
    float acc[4] = {};
    const uint32_t b0[2] = {fb[0], fb[1]};
    gpu::mma_bf16_16816(acc, fa, b0);
    for (int h = 0; h < 4; ++h) y[(lane / 4 + h / 2 * 8) * 8 + lane % 4 * 2 + h % 2] = acc[h];
}

/// out[t] = in[n - 1 - t] by way of shared memory; `barriers` 0 forgets the barrier.
void reverse_kernel(const float* in, float* out, int n, int barriers) {
    auto s = gpu::dynamic_shared<float>(0);
    const int t = threadIdx.x;
    s[t] = in[t];
    if (barriers != 0) gpu::sync_threads();
    out[t] = s[n - 1 - t];
}

void half_barrier_kernel() {
    if (threadIdx.x < 32) gpu::sync_threads();
    if (threadIdx.x >= 32) gpu::sync_warp();
    if (threadIdx.x == 40) gpu::shfl(1, 0);
}
void outside_kernel(int index) {
    gpu::dynamic_shared<float>(0)[index] = 1.0F;
}
void unwaited_kernel(const void* src) {
    gpu::copy_async_16(gpu::dynamic_shared<float>(0), src);
    gpu::copy_async_commit();
}
void early_read_kernel(const float* src, float* out) {
    auto s = gpu::dynamic_shared<float>(0);
    gpu::copy_async_16(s, src);
    gpu::copy_async_commit();
    out[0] = s[0];
    gpu::copy_async_wait<0>();
    out[1] = s[0];
}
void zero_copy_kernel(const float* src, float* out) {
    auto s = gpu::dynamic_shared<float>(0);
    gpu::copy_async_16_or_zero(s, src, 0);
    gpu::copy_async_16_or_zero(s + 4, src, 16);
    gpu::copy_async_commit();
    gpu::copy_async_wait<0>();
    for (int i = 0; i < 8; ++i) out[i] = s[i];
}
void exchange_kernel(uint32_t* out) {
    const int lane = threadIdx.x % 32;
    out[threadIdx.x] = gpu::shfl_xor(lane * 3, 5) + gpu::shfl(lane, (lane + 1) % 32) * 1000;
    const uint32_t votes = gpu::ballot(lane % 3 == 0);
    out[threadIdx.x] += (votes >> lane & 1U) * 1000000;
}
// NOLINTEND

class DialectTest : public testing::TestWithParam<Schedule> {
protected:
    ScopedSchedule schedule_{GetParam()};
};

TEST_P(DialectTest, MmaMultipliesFragmentsFromLdmatrix) {
    std::mt19937 random(7);
    alignas(16) gpu::Bf16 a[16 * 16];
    alignas(16) gpu::Bf16 b[8 * 16];
    const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
    for (gpu::Bf16& v : a) v.bits = to_bfloat16(small()).bits;
    for (gpu::Bf16& v : b) v.bits = to_bfloat16(small()).bits;
    float y[16 * 8];
    std::fill(std::begin(y), std::end(y), NAN);
    gpu::launch(multiply_kernel, dim3(1), dim3(32), (16 + 8) * kPitch * 2, nullptr, a, b, y);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) {
            float sum = 0;  // exact: small integers
            for (int k = 0; k < 16; ++k) sum += gpu::bf16_to_float(a[i * 16 + k]) * gpu::bf16_to_float(b[j * 16 + k]);
            ASSERT_EQ(y[i * 8 + j], sum) << i << " " << j;
        }
}

TEST_P(DialectTest, BlocksOfOneGridRunTheirThreadsThroughBarriers) {
    std::vector<float> in(96);
    std::vector<float> out(96, NAN);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    gpu::launch(reverse_kernel, dim3(2, 1, 2), dim3(96), 96 * 4, nullptr, in.data(), out.data(), 96, 1);
    std::reverse(in.begin(), in.end());
    EXPECT_EQ(in, out);
}

TEST_P(DialectTest, LanesExchange) {
    std::vector<std::uint32_t> out(64);
    gpu::launch(exchange_kernel, dim3(1), dim3(64), 0, nullptr, out.data());
    for (std::uint32_t i = 0; i < 64; ++i) {
        const std::uint32_t lane = i % 32;
        EXPECT_EQ(out[i], (lane ^ 5U) * 3 + (lane + 1) % 32 * 1000 + (lane % 3 == 0 ? 1000000 : 0));
    }
}

TEST_P(DialectTest, ACopyOfNothingIsZeros) {
    alignas(16) const float src[4] = {1, 2, 3, 4};
    float out[8];
    gpu::launch(zero_copy_kernel, dim3(1), dim3(1), 32, nullptr, src, out);
    const float expected[8] = {0, 0, 0, 0, 1, 2, 3, 4};
    EXPECT_EQ(std::memcmp(out, expected, sizeof(out)), 0);
}

INSTANTIATE_TEST_SUITE_P(Schedules, DialectTest, testing::ValuesIn(kAllSchedules),
                         [](const auto& which) { return schedule_name(which.param); });

TEST(EmulationTest, AMissingBarrierShowsWhenAWarpRunsAhead) {
    std::vector<float> in(64, 1.0F);
    for (const Order order : {Order::RunAhead, Order::ReverseRunAhead}) {
        const ScopedSchedule schedule({order, CopyLands::AtIssue});
        std::vector<float> out(64, 0.0F);
        gpu::launch(reverse_kernel, dim3(1), dim3(64), 64 * 4, nullptr, in.data(), out.data(), 64, 0);
        EXPECT_TRUE(std::any_of(out.begin(), out.end(), [](float v) { return std::isnan(v); }));
    }
}

TEST(EmulationTest, AReadBeforeTheWaitSeesPoisonWhereCopiesLandLate) {
    alignas(16) const float src[4] = {5, 6, 7, 8};
    float out[2];
    const ScopedSchedule schedule({Order::Lockstep, CopyLands::AtWait});
    gpu::launch(early_read_kernel, dim3(1), dim3(1), 16, nullptr, src, out);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[1], 5.0F);
}

TEST(EmulationDeathTest, NamesWhatACardLeavesUndefined) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    alignas(16) const float src[4] = {};
    EXPECT_DEATH(gpu::launch(half_barrier_kernel, dim3(1), dim3(64), 0, nullptr), "not all threads reach");
    EXPECT_DEATH(gpu::launch(outside_kernel, dim3(1), dim3(32), 128, nullptr, 32), "outside shared memory");
    EXPECT_DEATH(gpu::launch(outside_kernel, dim3(1), dim3(32), 128, nullptr, -1), "outside shared memory");
    EXPECT_DEATH(gpu::launch(unwaited_kernel, dim3(1), dim3(1), 16, nullptr, static_cast<const void*>(src)),
                 "not waited for");
    EXPECT_DEATH(gpu::launch(outside_kernel, dim3(1), dim3(1025), 128, nullptr, 0), "1024 threads");
    EXPECT_DEATH(gpu::launch(outside_kernel, dim3(1), dim3(1), std::size_t{100} << 10, nullptr, 0), "99 KiB");
}

}  // namespace
}  // namespace slipstream::emulation
