// The device dialect on the host: the names of kernels/cuda/card/gpu.cuh, which says what they mean, over the emulated
// blocks of block.h. Compiled with g++ -x c++ from the very kernel sources. Sums of mma are float in ascending k: not
// the bits of a card, so emulated bits are compared with emulated bits only.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/base/float16.h"
#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/warp_operations.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

#define threadIdx (::slipstream::emulation::thread->index)
#define blockIdx (::slipstream::emulation::block->index)
#define blockDim (::slipstream::emulation::block->block_dim)
#define gridDim (::slipstream::emulation::block->grid_dim)

namespace gpu {

namespace emulation = ::slipstream::emulation;

struct Bf16 {
    uint16_t bits;
};
struct Half {
    uint16_t bits;
};
struct alignas(16) U32x4 {
    uint32_t x[4];
};
struct alignas(8) U32x2 {
    uint32_t x[2];
};

/// Bounds are checked at every access.
template <class T>
struct SharedPtr {
    char* base = nullptr;
    ptrdiff_t offset = 0;  // bytes

    T& operator[](ptrdiff_t i) const {
        return *reinterpret_cast<T*>(bytes(i * static_cast<ptrdiff_t>(sizeof(T)), sizeof(T), alignof(T)));
    }
    T& operator*() const { return (*this)[0]; }
    SharedPtr operator+(ptrdiff_t i) const { return {base, offset + i * static_cast<ptrdiff_t>(sizeof(T))}; }
    template <class U>
    SharedPtr<U> as() const {
        return {base, offset};
    }
    /// [offset + at, + n) inside the block's memory, aligned.
    char* bytes(ptrdiff_t at, size_t n, size_t alignment) const {
        const ptrdiff_t from = offset + at;
        if (from < 0 || static_cast<size_t>(from) + n > emulation::block->shared_bytes)
            emulation::fail("indexes outside shared memory");
        if (static_cast<size_t>(from) % alignment != 0) emulation::fail("accesses misaligned shared memory");
        return base + from;
    }
};

template <class T>
inline SharedPtr<T> dynamic_shared(size_t byte_offset = 0) {
    return {emulation::block->shared, static_cast<ptrdiff_t>(byte_offset)};
}

inline unsigned block_y() {
    return blockIdx.y;
}
inline void sync_threads() {
    emulation::block_barrier();
}
inline void sync_warp() {
    emulation::warp_meet("sync_warp", nullptr);
}
template <class T>
inline T shfl(T value, int source) {
    static_assert(sizeof(T) == 4);
    if (source < 0 || source > 31) emulation::fail("shuffles from a lane outside 0 to 31");
    return __builtin_bit_cast(T, emulation::exchange(__builtin_bit_cast(uint32_t, value), source));
}
template <class T>
inline T shfl_xor(T value, int mask) {
    return shfl(value, static_cast<int>(emulation::thread->lane()) ^ mask);
}
inline uint32_t ballot(bool predicate) {
    return emulation::ballot(predicate ? 1U : 0U);
}
inline void mma_bf16_16816(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulation::mma_bf16(acc, a, b);
}
inline void mma_f16_16816(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulation::mma_f16(acc, a, b);
}
template <class T>
inline void ldmatrix_x4(uint32_t (&r)[4], SharedPtr<T> row) {
    static_assert(sizeof(T) == 2);
    emulation::ldmatrix(r, row.bytes(0, 16, 16), 0);
}
template <class T>
inline void ldmatrix_x4_trans(uint32_t (&r)[4], SharedPtr<T> row) {
    static_assert(sizeof(T) == 2);
    emulation::ldmatrix(r, row.bytes(0, 16, 16), 1);
}

template <class T>
inline void copy_async_16_or_zero(SharedPtr<T> dst, const void* src, int n_bytes) {
    if (n_bytes != 0 && n_bytes != 16) emulation::fail("copies neither 0 nor 16 bytes");
    emulation::copy_async(dst.bytes(0, 16, 16), src, static_cast<uint32_t>(n_bytes));
}
template <class T>
inline void copy_async_16(SharedPtr<T> dst, const void* src) {
    copy_async_16_or_zero(dst, src, 16);
}
inline void copy_async_commit() {
    ++emulation::thread->open_group;
}
template <int N>
inline void copy_async_wait() {
    emulation::copy_async_wait(N);
}

template <class V>
inline V load_global(const void* src) {
    if (reinterpret_cast<uintptr_t>(src) % sizeof(V) != 0) emulation::fail("loads from misaligned global memory");
    V v;
    std::memcpy(&v, src, sizeof(V));
    return v;
}
inline U32x4 load_16(const void* src) {
    return load_global<U32x4>(src);
}
inline U32x4 load_16_cached(const void* src) {
    return load_global<U32x4>(src);
}
inline U32x2 load_8(const void* src) {
    return load_global<U32x2>(src);
}
inline uint32_t load_4(const void* src) {
    return load_global<uint32_t>(src);
}
inline uint16_t load_2(const void* src) {
    return load_global<uint16_t>(src);
}
template <class V>
inline void store_global(void* dst, V v) {
    if (reinterpret_cast<uintptr_t>(dst) % sizeof(V) != 0) emulation::fail("stores to misaligned memory");
    std::memcpy(dst, &v, sizeof(V));
}
inline void store_16(void* dst, U32x4 v) {
    store_global(dst, v);
}
inline void store_8(void* dst, U32x2 v) {
    store_global(dst, v);
}
template <class T>
inline U32x4 load_shared_16(SharedPtr<T> src) {
    return load_global<U32x4>(src.bytes(0, 16, 16));
}
template <class T>
inline U32x2 load_shared_8(SharedPtr<T> src) {
    return load_global<U32x2>(src.bytes(0, 8, 8));
}
template <class T>
inline void store_shared_16(SharedPtr<T> dst, U32x4 v) {
    std::memcpy(dst.bytes(0, 16, 16), &v, 16);
}

inline float exp2_approx(float x) {
    const float r = std::exp2(x);
    return r < 0x1p-126F ? 0.0F : r;
}
inline float exp_approx(float x) {
    return exp2_approx(x * 1.4426950408889634F);
}
inline float reciprocal_approx(float x) {
    return 1.0F / x;
}
using std::fma;
inline int max(int a, int b) {
    return a < b ? b : a;
}
inline int min(int a, int b) {
    return b < a ? b : a;
}

inline float half_to_float(Half h) {
    return slipstream::to_float(slipstream::Half{h.bits});
}
inline float bf16_to_float(Bf16 h) {
    return slipstream::to_float(slipstream::BFloat16{h.bits});
}
inline uint32_t pack_bf16(float lo, float hi) {
    return slipstream::to_bfloat16(lo).bits | static_cast<uint32_t>(slipstream::to_bfloat16(hi).bits) << 16;
}
inline uint32_t pack_f16(float lo, float hi) {
    return slipstream::to_half(lo).bits | static_cast<uint32_t>(slipstream::to_half(hi).bits) << 16;
}
/// The float result is exact where the inputs are small integers, as kernels use it; else it may be rounded twice.
inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    const auto half = [](uint32_t v, int h) {
        return bf16_to_float(Bf16{static_cast<uint16_t>(h == 0 ? v & 0xffffU : v >> 16)});
    };
    return pack_bf16(std::fma(half(a, 0), half(b, 0), half(c, 0)), std::fma(half(a, 1), half(b, 1), half(c, 1)));
}
inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t set) {
    return (a & mask) | set;
}
inline uint32_t byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; ++i)
        r |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7U)) & 0xffU) << (8 * i);
    return r;
}

inline uint64_t nanoseconds() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}
inline uint64_t atomic_swap_if(uint64_t* at, uint64_t from, uint64_t to) {
    const uint64_t seen = *at;
    if (seen == from) *at = to;
    return seen;
}

/// Runs the kernel before it returns; `stream` is not looked at.
template <class... Params, class... Args>
inline void launch(void (*kernel)(Params...), dim3 grid, dim3 block_dim, size_t shared_bytes, void*, Args... args) {
    emulation::run_grid(grid, block_dim, shared_bytes, [&] { kernel(args...); });
}

}  // namespace gpu
