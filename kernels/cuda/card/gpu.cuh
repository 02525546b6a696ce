// The device dialect for a GPU: every instruction that kernels use beyond plain C++, and nothing else. This is the only
// file with PTX and intrinsics. Kernels include "gpu.cuh"; tests/cuda_emulation/gpu.cuh defines the same names for the
// host, and the include path chooses. A name that is added here must be added there.
//
// All warp operations (shuffles, votes, mma, ldmatrix, sync_warp) are for whole warps that reach them together.
// Arithmetic is IEEE with denormals (no fast-math flags; -fmad=false, so that a multiply-add is fused only where the
// code says so), except exp2_approx, exp_approx and reciprocal_approx.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace gpu {

/// 16-bit floats, which hold only their bits: arithmetic is done in float, by mma, or by fma_bf16x2.
struct Bf16 {
    uint16_t bits;
};
struct Half {
    uint16_t bits;
};

/// What one wide load or store of a lane moves: 16 or 8 bytes, aligned to their size.
struct alignas(16) U32x4 {
    uint32_t x[4];
};
struct alignas(8) U32x2 {
    uint32_t x[2];
};

/// Pointer into dynamic shared memory, to elements of T.
template <class T>
struct SharedPtr {
    T* p;
    __device__ __forceinline__ T& operator[](ptrdiff_t i) const { return p[i]; }
    __device__ __forceinline__ T& operator*() const { return *p; }
    __device__ __forceinline__ SharedPtr operator+(ptrdiff_t i) const { return {p + i}; }
    template <class U>
    __device__ __forceinline__ SharedPtr<U> as() const {
        return {reinterpret_cast<U*>(p)};
    }
};

/// Returns the thread block's dynamic shared memory from `byte_offset` on; its base is aligned to 128 bytes.
template <class T>
__device__ __forceinline__ SharedPtr<T> dynamic_shared(size_t byte_offset = 0) {
    extern __shared__ __align__(128) char shared_bytes[];
    return {reinterpret_cast<T*>(shared_bytes + byte_offset)};
}

/// Returns blockIdx.y, read again: so the compiler need not keep values in registers that were computed from it before.
__device__ __forceinline__ unsigned block_y() {
    unsigned y;
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
    return y;
}
__device__ __forceinline__ void sync_threads() {
    __syncthreads();
}
__device__ __forceinline__ void sync_warp() {
    __syncwarp();
}
/// Returns the value of lane (own lane xor mask); T has four bytes.
template <class T>
__device__ __forceinline__ T shfl_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffU, value, mask);
}
/// Returns the value of lane `source`, 0 to 31, which may differ between lanes.
template <class T>
__device__ __forceinline__ T shfl(T value, int source) {
    return __shfl_sync(0xffffffffU, value, source);
}
/// Returns the predicates of all lanes of the warp: bit l is that of lane l.
__device__ __forceinline__ uint32_t ballot(bool predicate) {
    return __ballot_sync(0xffffffffU, predicate);
}

/// acc[16, 8] += a[16, 16] b[16, 8], with 16-bit inputs and float sums (PTX ISA, mma.m16n8k16). With g = lane / 4 and t
/// = lane % 4 * 2: register h of a holds row g + h % 2 * 8, columns t + h / 2 * 8 and the next (low half first);
/// register h of b holds rows t + h * 8 and the next, column g; element h of acc is row g + h / 2 * 8, column t + h %
/// 2.
__device__ __forceinline__ void mma_bf16_16816(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_f16_16816(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads four 8x8 matrices of 16-bit elements. Lane l passes the address of row l % 8 of matrix l / 8 (16 bytes,
/// aligned); register m of lane l receives row l / 4, columns l % 4 * 2 and the next, of matrix m. With _trans, of the
/// transposed matrix.
template <class T>
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], SharedPtr<T> row) {
    static_assert(sizeof(T) == 2);
    const unsigned s = static_cast<unsigned>(__cvta_generic_to_shared(row.p));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(s)
                 : "memory");
}
template <class T>
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], SharedPtr<T> row) {
    static_assert(sizeof(T) == 2);
    const unsigned s = static_cast<unsigned>(__cvta_generic_to_shared(row.p));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(s)
                 : "memory");
}

/// Begins a copy of 16 bytes from global to shared memory, both aligned to 16. The bytes are visible to the thread
/// after copy_async_wait of their group, and to the thread block after a sync_threads after that. Every copy must be
/// waited for before the thread ends.
template <class T>
__device__ __forceinline__ void copy_async_16(SharedPtr<T> dst, const void* src) {
    const unsigned s = static_cast<unsigned>(__cvta_generic_to_shared(dst.p));
    asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(s), "l"(src) : "memory");
}
/// Begins a copy of 16 bytes from global to shared memory, as copy_async_16() does, if `n_bytes` is 16. If `n_bytes` is
/// 0, writes 16 zero bytes to `dst` and does not read `src`, which must still be an address in global memory. Both
/// addresses are aligned to 16.
template <class T>
__device__ __forceinline__ void copy_async_16_or_zero(SharedPtr<T> dst, const void* src, int n_bytes) {
    const unsigned s = static_cast<unsigned>(__cvta_generic_to_shared(dst.p));
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(s), "l"(src), "r"(n_bytes) : "memory");
}
/// Ends a group of copies: all that this thread has begun since its last call. copy_async_wait() waits for groups.
__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all groups of copies of this thread are done, except at most the latest N.
template <int N>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// These load 16, 8, 4 or 2 bytes, aligned to their size, from global memory that nothing writes during the kernel.
/// load_16 is for bytes that are read once, and does not cache them in L1; the others do.
__device__ __forceinline__ U32x4 load_16(const void* src) {
    U32x4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
                 : "l"(src));
    return v;
}
__device__ __forceinline__ U32x4 load_16_cached(const void* src) {
    const uint4 v = __ldg(static_cast<const uint4*>(src));
    return {{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ U32x2 load_8(const void* src) {
    const uint2 v = __ldg(static_cast<const uint2*>(src));
    return {{v.x, v.y}};
}
__device__ __forceinline__ uint32_t load_4(const void* src) {
    return __ldg(static_cast<const unsigned*>(src));
}
__device__ __forceinline__ uint16_t load_2(const void* src) {
    return __ldg(static_cast<const unsigned short*>(src));
}
/// Plain stores and loads of 16 or 8 bytes; addresses must be aligned to the size.
__device__ __forceinline__ void store_16(void* dst, U32x4 v) {
    *static_cast<uint4*>(dst) = {v.x[0], v.x[1], v.x[2], v.x[3]};
}
__device__ __forceinline__ void store_8(void* dst, U32x2 v) {
    *static_cast<uint2*>(dst) = {v.x[0], v.x[1]};
}
template <class T>
__device__ __forceinline__ U32x4 load_shared_16(SharedPtr<T> src) {
    const uint4 v = *reinterpret_cast<const uint4*>(src.p);
    return {{v.x, v.y, v.z, v.w}};
}
template <class T>
__device__ __forceinline__ U32x2 load_shared_8(SharedPtr<T> src) {
    const uint2 v = *reinterpret_cast<const uint2*>(src.p);
    return {{v.x, v.y}};
}
template <class T>
__device__ __forceinline__ void store_shared_16(SharedPtr<T> dst, U32x4 v) {
    *reinterpret_cast<uint4*>(dst.p) = {v.x[0], v.x[1], v.x[2], v.x[3]};
}

/// Returns 2^x, with a relative error below 2^-22; results below 2^-126 are 0. exp_approx(x) is exp2_approx of x *
/// log2(e), with the product rounded to float: so 1 at 0, 0 at -infinity, NaN at NaN.
__device__ __forceinline__ float exp2_approx(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float exp_approx(float x) {
    return exp2_approx(__fmul_rn(x, 1.4426950408889634F));
}

/// Returns 1 / x, with an error of at most 1 ulp; 1 at 1, 0 at infinity, NaN at NaN.
__device__ __forceinline__ float reciprocal_approx(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
    return r;
}

/// Fused multiply-add, rounded once: fma(float, float, float) of the toolkit.
using ::fma;
/// The smaller or larger of two ints; for floats use fminf and fmaxf.
using ::max;
using ::min;

/// Returns two floats rounded to 16-bit floats, to nearest even, with `lo` in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
__device__ __forceinline__ uint32_t pack_f16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
/// Returns the 16-bit float as float, exactly, also denormals.
__device__ __forceinline__ float half_to_float(Half h) {
    float f;
    asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h.bits));
    return f;
}
__device__ __forceinline__ float bf16_to_float(Bf16 h) {
    return __uint_as_float(uint32_t{h.bits} << 16);
}

/// Returns a * b + c of each bfloat16 half, rounded once.
__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r;
    asm("fma.rn.bf16x2 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
/// Returns (a & mask) | set, in one instruction; from C++ the compiler makes two if both are constants.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t set) {
    uint32_t r;
    asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(set));
    return r;
}
/// Returns four bytes: byte i is byte (selector >> 4 i) & 7 of the eight bytes of a (0-3) and b (4-7).
__device__ __forceinline__ uint32_t byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    return __byte_perm(a, b, selector);
}

/// Returns the GPU's clock in nanoseconds; it advances at least about once per microsecond.
__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t t;
    asm volatile("mov.u64 %0,%%globaltimer;" : "=l"(t));
    return t;
}
/// Atomically, for the whole GPU: returns the value at `at`, and replaces it by `to` if it is `from`.
__device__ __forceinline__ uint64_t atomic_swap_if(uint64_t* at, uint64_t from, uint64_t to) {
    return atomicCAS(reinterpret_cast<unsigned long long*>(at), from, to);
}

/// Launches a kernel; `stream` is a cudaStream_t. The caller must check cudaGetLastError.
template <class... Params, class... Args>
inline void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, void* stream, Args... args) {
    constexpr size_t kAlwaysThere = 48 << 10;
    if (shared_bytes > kAlwaysThere) {
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes));
    }
    kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(args...);
}

}  // namespace gpu
