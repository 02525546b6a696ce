// Readers of the weights of K formats (what a reader has: matmul_weights.cuh).
#pragma once

#include "kernels/cuda/matmul/matmul_weights.cuh"

namespace slipstream::cuda {

// Reader of Q4_K and Q5_K: blocks of 256 with 6-bit scales and minimums.
template <bool has_high>
struct ScaledMinWeights {
    static constexpr bool kTail = false;
    static constexpr int kSlabs = 4;
    static constexpr int kRunSteps = 2;
    static constexpr bool kScaled = true;
    static constexpr bool kOffsets = true;
    static constexpr bool kHalf = false;
    static constexpr int kUnitsAhead = 1;
    static constexpr int kUnitsAheadOfMany = 1;
    static constexpr int kMinBlocks = 1;
    static constexpr int kPieces = 1;
    static constexpr int kSlots = 4;
    static constexpr int kRingGroups = has_high ? 1 : 2;
    static constexpr bool kUnitsWhole = true;
    static constexpr int kUnitBytes = has_high ? Q5KLayout::kBytes : Q4KLayout::kBytes;
    struct Head {
        gpu::U32x4 high;
        gpu::U32x2 scales;
    };
    struct Kept {};
    /// d and -dmin of the lane's two rows, g and g + 8 with g = lane / 4, and the third argument of small_times() for
    /// each.
    struct Units {
        float scale[2];
        float scale_lifted[2];
        float offset[2];
        float offset_lifted[2];
    };
    struct Slab {
        gpu::U32x4 codes;
    };

    static __device__ __forceinline__ void load_head(Head& head, const char* group, int64_t, int64_t unit, int lane) {
        const char* block = group + unit * (has_high ? Q5KLayout::kBytes : Q4KLayout::kBytes);
        if constexpr (has_high) head.high = gpu::load_16(block + Q5KLayout::kHigh + lane * 16);
        head.scales = gpu::load_8(block + (has_high ? Q5KLayout::kScales : Q4KLayout::kScales) + lane * 8);
    }
    static __device__ __forceinline__ void load_slab(Slab& slab, const char* group, int64_t, int64_t unit, int number,
                                                     int lane) {
        slab.codes = gpu::load_16(group + unit * (has_high ? Q5KLayout::kBytes : Q4KLayout::kBytes) +
                                  number * kQuadBytes + lane * 16);
    }
    static __device__ __forceinline__ void copy_slab(gpu::SharedPtr<char> to, const char* unit, int number) {
        gpu::copy_async_16(to, unit + number * kQuadBytes);
    }
    static __device__ __forceinline__ void read_slab(Slab& slab, gpu::SharedPtr<char> from, int, Kept&) {
        slab.codes = gpu::load_shared_16(from);
    }
    /// Returns d and -dmin of the lane's two rows, gathered from the four lanes that share them. The whole warp must
    /// call it.
    static __device__ __forceinline__ Units units_of(const Head& head, int lane) {
        // A byte of d or dmin of row g, then the same byte of row g + 8.
        const uint32_t own = head.scales.x[0] >> 24 | head.scales.x[1] >> 24 << 8;
        const uint32_t pair = own | gpu::shfl_xor(own, 1) << 16;
        // The low bytes of rows g and g + 8, then the high bytes.
        const uint32_t ordered = lane % 2 == 0 ? pair : pair >> 16 | pair << 16;
        const uint32_t other = gpu::shfl_xor(ordered, 2);
        const uint32_t d = lane % 4 < 2 ? ordered : other;
        const uint32_t dmin = lane % 4 < 2 ? other : ordered;
        Units out;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const uint32_t selector = r == 0 ? 0x0020U : 0x0031U;
            out.scale[r] = half_low(gpu::byte_perm(d, 0, selector));
            out.offset[r] = -half_low(gpu::byte_perm(dmin, 0, selector));
            out.scale_lifted[r] = -kTwo23 * out.scale[r];
            out.offset_lifted[r] = -kTwo23 * out.offset[r];
        }
        return out;
    }
    /// Returns the scales and offsets of slab `number` (64 k), which lane `number` of the four lanes with the same rows
    /// holds. With `many`, Q5_K takes one instruction more for each scale, and four registers fewer per row group.
    static __device__ __forceinline__ void slab_scales(const Head& head, const Units& units, int number, int lane,
                                                       bool many, SlabScales& out) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const uint32_t packed = gpu::shfl(head.scales.x[r], lane_of_quad(lane, number));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                if (has_high && many) {
                    out.scale[i][r] = units.scale[r] * small_to_float(packed >> (12 * i) & 63U);
                    out.offset[i][r] = units.offset[r] * small_to_float(packed >> (12 * i + 6) & 63U);
                    continue;
                }
                out.scale[i][r] = small_times(packed >> (12 * i) & 63U, units.scale[r], units.scale_lifted[r]);
                out.offset[i][r] = small_times(packed >> (12 * i + 6) & 63U, units.offset[r], units.offset_lifted[r]);
            }
        }
    }
    static __device__ __forceinline__ void operand(const Head& head, const Slab& slab, int number, int step,
                                                   uint32_t (&a)[4]) {
#pragma unroll
        for (int h = 0; h < 4; ++h) {
            uint32_t v = gpu::and_or(slab.codes.x[step] >> (4 * h), 0x000f000fU, 0x43004300U);
            if constexpr (has_high) v |= (head.high.x[number] >> (4 * step + h) & 0x00010001U) << 4;
            a[h] = lifted_to_bf16<0>(v);
        }
    }
};

// Reader of Q6_K: blocks of 256 with a signed scale for each step of 16 k.
struct SixBitWeights {
    static constexpr bool kTail = false;
    static constexpr int kSlabs = 4;
    static constexpr int kRunSteps = 1;
    static constexpr bool kScaled = true;
    static constexpr bool kOffsets = false;
    static constexpr bool kHalf = false;
    static constexpr int kUnitsAhead = 1;
    static constexpr int kUnitsAheadOfMany = 1;
    static constexpr int kMinBlocks = 0;
    static constexpr int kPieces = 2;
    static constexpr int kSlots = 4;
    static constexpr int kRingGroups = 1;
    static constexpr bool kUnitsWhole = true;
    static constexpr int kUnitBytes = Q6KLayout::kBytes;
    struct Units {};
    /// Upper two bits of the codes of the next slab (64 k), which are stored next to those of the current slab.
    struct Kept {
        gpu::U32x2 high;
    };
    struct Head {
        gpu::U32x2 scales;
        uint32_t d;
    };
    struct Slab {
        gpu::U32x4 codes;
        gpu::U32x2 high;
    };

    static __device__ __forceinline__ void load_head(Head& head, const char* group, int64_t, int64_t unit, int lane) {
        const char* block = group + unit * Q6KLayout::kBytes;
        head.scales = gpu::load_8(block + Q6KLayout::kScales + lane * 8);
        head.d = gpu::load_4(block + Q6KLayout::kD + lane / 4 * 4);
    }
    static __device__ __forceinline__ void load_slab(Slab& slab, const char* group, int64_t, int64_t unit, int number,
                                                     int lane) {
        const char* block = group + unit * Q6KLayout::kBytes;
        slab.codes = gpu::load_16(block + number * kQuadBytes + lane * 16);
        slab.high = gpu::load_8(block + Q6KLayout::kHigh + number / 2 * kQuadBytes + lane * 16 + number % 2 * 8);
    }
    static __device__ __forceinline__ void copy_slab(gpu::SharedPtr<char> to, const char* unit, int number) {
        gpu::copy_async_16(to, unit + number * kQuadBytes);
        if (number % 2 == 0) gpu::copy_async_16(to + kPieceBytes, unit + Q6KLayout::kHigh + number / 2 * kQuadBytes);
    }
    static __device__ __forceinline__ void read_slab(Slab& slab, gpu::SharedPtr<char> from, int number, Kept& kept) {
        slab.codes = gpu::load_shared_16(from);
        if (number % 2 == 0) {
            const gpu::U32x4 both = gpu::load_shared_16(from + kPieceBytes);
            slab.high = {{both.x[0], both.x[1]}};
            kept.high = {{both.x[2], both.x[3]}};
        } else {
            slab.high = kept.high;
        }
    }
    static __device__ __forceinline__ Units units_of(const Head&, int) { return {}; }
    static __device__ __forceinline__ void slab_scales(const Head& head, const Units&, int number, int lane, bool,
                                                       SlabScales& out) {
        const float d[2] = {half_low(head.d), half_high(head.d)};
#pragma unroll
        for (int w = 0; w < 2; ++w) {
            const uint32_t four = gpu::shfl(head.scales.x[w], lane_of_quad(lane, number)) ^ 0x80808080U;
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // 2^23 + (signed byte + 128)
                const uint32_t bits = gpu::byte_perm(four, 0x4b000000U, 0x7540U + static_cast<uint32_t>(i));
                out.scale[2 * w + i / 2][i % 2] = d[i % 2] * (__builtin_bit_cast(float, bits) - (kTwo23 + 128.0F));
            }
        }
    }
    static __device__ __forceinline__ void operand(const Head&, const Slab& slab, int, int step, uint32_t (&a)[4]) {
        const uint32_t high = slab.high.x[step / 2];
#pragma unroll
        for (int h = 0; h < 4; ++h)
            a[h] = codes_to_bf16<32>((slab.codes.x[step] >> (4 * h) & 0x000f000fU) |
                                     (high >> (2 * (4 * (step % 2) + h)) & 0x00030003U) << 4);
    }
};

// Reader of Q3_K: blocks of 256 with a 6-bit scale, minus 32, for each step of 16 k.
struct ThreeBitWeights {
    static constexpr bool kTail = false;
    static constexpr int kSlabs = 4;
    static constexpr int kRunSteps = 1;
    static constexpr bool kScaled = true;
    static constexpr bool kOffsets = false;
    static constexpr bool kHalf = false;
    static constexpr int kUnitsAhead = 2;
    static constexpr int kUnitsAheadOfMany = 1;
    static constexpr int kMinBlocks = 1;
    static constexpr int kPieces = 0;  // no ring: 16 bytes per lane hold two slabs, too few to keep enough bytes under
                                       // way
    static constexpr int kRingGroups = 0;
    struct Units {};
    struct Head {
        gpu::U32x4 high;
        uint32_t scale_low;
        uint32_t scale_high;
        uint32_t d;
    };
    struct Slab {
        gpu::U32x2 low;
    };

    static __device__ __forceinline__ void load_head(Head& head, const char* group, int64_t, int64_t unit, int lane) {
        const char* block = group + unit * Q3KLayout::kBytes;
        head.high = gpu::load_16(block + Q3KLayout::kHigh + lane * 16);
        head.scale_low = gpu::load_4(block + Q3KLayout::kScaleLow + lane * 4);
        head.scale_high = gpu::load_2(block + Q3KLayout::kScaleHigh + lane * 2);
        head.d = gpu::load_4(block + Q3KLayout::kD + lane / 4 * 4);
    }
    static __device__ __forceinline__ void load_slab(Slab& slab, const char* group, int64_t, int64_t unit, int number,
                                                     int lane) {
        slab.low = gpu::load_8(group + unit * Q3KLayout::kBytes + number / 2 * kQuadBytes + lane * 16 + number % 2 * 8);
    }
    static __device__ __forceinline__ Units units_of(const Head&, int) { return {}; }
    static __device__ __forceinline__ void slab_scales(const Head& head, const Units&, int number, int lane, bool,
                                                       SlabScales& out) {
        const float d[2] = {half_low(head.d), half_high(head.d)};
        const uint32_t low = gpu::shfl(head.scale_low, lane_of_quad(lane, number));
        const uint32_t high = gpu::shfl(head.scale_high, lane_of_quad(lane, number));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const uint32_t scale = (low >> (4 * i) & 15U) | (high >> (2 * i) & 3U) << 4;
            out.scale[i / 2][i % 2] = d[i % 2] * (small_to_float(scale) - 32.0F);
        }
    }
    static __device__ __forceinline__ void operand(const Head& head, const Slab& slab, int number, int step,
                                                   uint32_t (&a)[4]) {
        const uint32_t low = slab.low.x[step / 2];
        const uint32_t high = head.high.x[number];
#pragma unroll
        for (int h = 0; h < 4; ++h)
            a[h] = codes_to_bf16<4>((low >> (2 * (4 * (step % 2) + h)) & 0x00030003U) |
                                    (high >> (4 * step + h) & 0x00010001U) << 2);
    }
};

}  // namespace slipstream::cuda
