// What lanes of a warp do together, and asynchronous copies, on the emulated block (block.h). gpu.cuh wraps these under
// the dialect's names.
#pragma once

#include <cstdint>

namespace slipstream::emulation {

/// Value of lane `source` of the warp.
std::uint32_t exchange(std::uint32_t value, int source);
/// Bit l: value of lane l, 0 or 1.
std::uint32_t ballot(std::uint32_t value);

/// acc[16, 8] += a[16, 16] b[16, 8] in the fragments of mma.m16n8k16; float sums, k ascending.
void mma_bf16(float (&acc)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void mma_f16(float (&acc)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

/// `row`: 16 bytes of shared memory; `transposed` 0 or 1.
void ldmatrix(std::uint32_t (&r)[4], const char* row, int transposed);

/// 16 bytes, or zeros where n_bytes is 0.
void copy_async(char* dst, const void* src, std::uint32_t n_bytes);
/// Until at most the last `n_groups` groups of this thread are under way.
void copy_async_wait(int n_groups);

}  // namespace slipstream::emulation
