#include "tests/cuda_emulation/warp_operations.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/float16.h"
#include "tests/cuda_emulation/block.h"

namespace slipstream::emulation {

namespace {

// Slots of an mma: words 0-3 a, 4-5 b, 6-9 acc.
constexpr int kB = 4;
constexpr int kAcc = 6;

/// The whole product, by the last lane to arrive. With g = lane / 4, t = lane % 4 * 2: fragments as gpu.cuh tells.
template <class From16>
void multiply(Warp& warp, unsigned turn) {
    if (warp.n_lanes != kWarpThreads) fail("mma in a warp that is not full");
    float a[16][16];
    float b[16][8];
    auto& tile = warp.tile[turn];
    const auto value = [](std::uint32_t half) { return to_float(From16{static_cast<std::uint16_t>(half)}); };
    for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
        const std::uint32_t* s = warp.slot[turn][lane];
        const unsigned g = lane / 4;
        const unsigned t = lane % 4 * 2;
        for (unsigned h = 0; h < 4; ++h) {
            a[g + h % 2 * 8][t + h / 2 * 8] = value(s[h]);
            a[g + h % 2 * 8][t + 1 + h / 2 * 8] = value(s[h] >> 16);
        }
        for (unsigned h = 0; h < 2; ++h) {
            b[t + h * 8][g] = value(s[kB + h]);
            b[t + 1 + h * 8][g] = value(s[kB + h] >> 16);
        }
        std::memcpy(&tile[g][t], s + kAcc, 8);
        std::memcpy(&tile[g + 8][t], s + kAcc + 2, 8);
    }
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k)
            for (int j = 0; j < 8; ++j) tile[i][j] += a[i][k] * b[k][j];
}

void mma(float (&acc)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const char* where,
         void (*last)(Warp&, unsigned)) {
    std::uint32_t* s = own_slot();
    std::memcpy(s, a, sizeof(a));
    std::memcpy(s + kB, b, sizeof(b));
    std::memcpy(s + kAcc, acc, sizeof(acc));
    const unsigned turn = warp_meet(where, last);
    const auto& tile = own_warp().tile[turn];
    const unsigned lane = thread->lane();
    std::memcpy(acc, &tile[lane / 4][lane % 4 * 2], 8);
    std::memcpy(acc + 2, &tile[lane / 4 + 8][lane % 4 * 2], 8);
}

}  // namespace

std::uint32_t exchange(std::uint32_t value, int source) {
    *own_slot() = value;
    const unsigned turn = warp_meet("a shuffle", nullptr);
    const Warp& warp = own_warp();
    if (static_cast<unsigned>(source) >= warp.n_lanes) fail("shuffles from a lane that is not there");
    return *warp.slot[turn][source];
}

std::uint32_t ballot(std::uint32_t value) {
    *own_slot() = value;
    const unsigned turn = warp_meet("a vote", nullptr);
    const Warp& warp = own_warp();
    std::uint32_t bits = 0;
    for (unsigned lane = 0; lane < kWarpThreads; ++lane)
        if (lane < warp.n_lanes) bits |= *warp.slot[turn][lane] << lane;
    return bits;
}

void mma_bf16(float (&acc)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    mma(acc, a, b, "mma_bf16_16816", &multiply<BFloat16>);
}
void mma_f16(float (&acc)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    mma(acc, a, b, "mma_f16_16816", &multiply<Half>);
}

void ldmatrix(std::uint32_t (&r)[4], const char* row, int transposed) {
    std::memcpy(own_slot(), row, 16);
    const unsigned turn = warp_meet("ldmatrix", nullptr);
    const Warp& warp = own_warp();
    if (warp.n_lanes != kWarpThreads) fail("ldmatrix in a warp that is not full");
    const auto element = [&](unsigned matrix, unsigned i, unsigned j) -> std::uint32_t {
        std::uint16_t bits;
        std::memcpy(&bits, reinterpret_cast<const char*>(warp.slot[turn][matrix * 8 + i]) + 2 * j, 2);
        return bits;
    };
    const unsigned g = thread->lane() / 4;
    const unsigned t = thread->lane() % 4 * 2;
    for (unsigned m = 0; m < 4; ++m)
        r[m] = transposed != 0 ? element(m, t, g) | element(m, t + 1, g) << 16
                               : element(m, g, t) | element(m, g, t + 1) << 16;
}

void copy_async(char* dst, const void* src, std::uint32_t n_bytes) {
    if (reinterpret_cast<std::uintptr_t>(src) % 16 != 0) fail("copies from misaligned global memory");
    const PendingCopy copy{dst, src, n_bytes, thread->open_group};
    thread->copies.push_back(copy);
    if (block->schedule.copies != CopyLands::AtIssue) return;
    std::memset(dst, 0, 16);
    std::memcpy(dst, src, n_bytes);
}

void copy_async_wait(int n_groups) {
    auto& copies = thread->copies;
    const auto landed = [&](const PendingCopy& copy) { return copy.group < thread->open_group - n_groups; };
    if (block->schedule.copies == CopyLands::AtWait) {
        for (const PendingCopy& copy : copies) {
            if (!landed(copy)) continue;
            std::memset(copy.dst, 0, 16);
            std::memcpy(copy.dst, copy.src, copy.n_bytes);
        }
    }
    std::erase_if(copies, landed);
}

}  // namespace slipstream::emulation
