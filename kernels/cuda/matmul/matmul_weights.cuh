// Readers of the weights of every type for a warp. A reader loads a unit of a row group (16 rows x 64, 128 or 256 k)
// with wide loads directly into registers, in fragment order (fragments.h). Then it returns, for one slab of 64 k at a
// time, operands A of mma and the scales of the lane's two rows. Codes are exact in bfloat16: for c < 128 the bits
// 0x4300 | c are 128 + c, and one fma subtracts 128 and the code's offset.
//
// Constants of a reader W:
// - kSlabs: slabs in a unit. kRunSteps: steps of 16 k that share a scale (4 if there is no scale).
// - kScaled, kOffsets: w = scale * code + offset. kHalf: operands are binary16. kTail: K may end inside a unit.
// - kUnitsAhead: units whose slabs are under way together (OfMany: where the sums of 32 and more tokens take the
//   registers).
// - kMinBlocks: thread blocks per multiprocessor that matmul_split is compiled for (0: the compiler decides; 1: where
//   it would spill registers to fit two).
// - For weights that can go through a ring in shared memory (kPieces > 0): kPieces, 16-byte pieces per lane in a ring
//   slot, which holds a slab; kSlots, ring slots; kRingGroups, row groups of a thread block for 8 tokens; kUnitBytes,
//   bytes from one unit to the next; kUnitsWhole, whether these bytes also contain the unit's head.
//
// Types: Head and Slab, what is loaded of a unit and of each of its slabs; Units, what scales are computed from; Kept,
// what a slab leaves in registers for the next. Functions, called by the whole warp:
// clang-format off
//     load_head(head, group, k, unit, lane)          past the end of K it gives zeros
//     load_slab(slab, group, k, unit, number, lane)  past the end of K it gives zeros
//     units_of(head, lane)                           what scales of the unit are computed from; exchanges between lanes
//     slab_scales(head, units, number, lane, many, scales)  exchanges between lanes; `many`, a constant: the sums of
//                                                           tokens take the registers
//     operand(head, slab, number, step, a)           step of the slab; number and step are constants after unrolling
//     copy_slab(to, unit, number)                    with a ring: begins copies of the lane's bytes of a slab; whole units
//     read_slab(slab, from, number, kept)            with a ring: reads what the lane copied
// clang-format on
#pragma once

#include "gpu.cuh"
#include "kernels/base/code_tables.h"
#include "kernels/cuda/matmul/fragment_layout.h"

namespace slipstream::cuda {

/// Bytes that a warp copies at once into shared memory, 16 per lane; those of a lane are at 16 * lane.
inline constexpr int kPieceBytes = 512;

/// Scales and offsets of rows g and g + 8 (g = lane / 4) for the runs of a slab, [run][row].
struct SlabScales {
    float scale[4][2];
    float offset[2][2];
};

/// 2^23. A float with the bits 0x4b000000 | v is 2^23 + v, for v < 2^23.
inline constexpr float kTwo23 = 8388608.0F;
/// Returns v, less than 2^23, as float, exactly.
__device__ __forceinline__ float small_to_float(uint32_t v) {
    return __builtin_bit_cast(float, v | 0x4b000000U) - kTwo23;
}

/// Returns v * unit, rounded once, for v less than 2^23 for which the product is finite: the same bits as unit *
/// small_to_float(v), except for the sign of a zero. `lifted` must be -2^23 * unit.
__device__ __forceinline__ float small_times(uint32_t v, float unit, float lifted) {
    return gpu::fma(__builtin_bit_cast(float, v | 0x4b000000U), unit, lifted);
}

/// Returns two codes minus `offset` as a pair of bfloat16. `lifted` must have the codes, below 128, in bits 0-6 and
/// 16-22, with 0x4300 set in both halves: the bfloat16 numbers 128 + code.
template <int offset>
__device__ __forceinline__ uint32_t lifted_to_bf16(uint32_t lifted) {
    constexpr uint32_t kMinus = 0xc300U | offset;  // -(128 + offset)
    return gpu::fma_bf16x2(lifted, 0x3f803f80U, kMinus << 16 | kMinus);
}
/// Returns two codes minus `offset` as a pair of bfloat16. `codes` has them, below 128, in bits 0-6 and 16-22.
template <int offset>
__device__ __forceinline__ uint32_t codes_to_bf16(uint32_t codes) {
    return lifted_to_bf16<offset>(codes | 0x43004300U);
}

/// Converts two signed bytes, in bits 0-7 and 16-23 of `bytes`, to a pair of bfloat16. The low seven bits are put into
/// a mantissa, which gives 128 + bits. Then 128 is subtracted, or 256 if the sign bit is set: the byte's value.
__device__ __forceinline__ uint32_t bytes_to_bf16(uint32_t bytes) {
    return gpu::fma_bf16x2(gpu::and_or(bytes, 0x007f007fU, 0x43004300U), 0x3f803f80U,
                           gpu::and_or(bytes, 0x00800080U, 0xc300c300U));
}

__device__ __forceinline__ float half_low(uint32_t pair) {
    return gpu::half_to_float(gpu::Half{static_cast<uint16_t>(pair)});
}
__device__ __forceinline__ float half_high(uint32_t pair) {
    return gpu::half_to_float(gpu::Half{static_cast<uint16_t>(pair >> 16)});
}

/// Returns the lane that is number j (0 to 3) of the four lanes with the same rows as `lane`.
__device__ __forceinline__ int lane_of_quad(int lane, int j) {
    return (lane & ~3) | j;
}

// Reader of BF16 and F16 weights, whose words are operands of mma as they are. `tail`: K may end inside a unit of 64 k,
// which it does in no model.
template <bool half, bool tail>
struct FloatWeights {
    static constexpr bool kTail = tail;
    static constexpr int kSlabs = 1;
    static constexpr int kRunSteps = 4;
    static constexpr bool kScaled = false;
    static constexpr bool kOffsets = false;
    static constexpr bool kHalf = half;
    static constexpr int kUnitsAhead = tail ? 1 : 3;
    static constexpr int kUnitsAheadOfMany = tail ? 1 : 2;
    static constexpr int kMinBlocks = tail ? 0 : 1;
    static constexpr int kPieces = 4;
    static constexpr int kSlots = 3;
    static constexpr int kRingGroups = 1;
    static constexpr bool kUnitsWhole = true;
    static constexpr int kUnitBytes = 4 * kFloatStepBytes;
    struct Head {};
    struct Units {};
    struct Kept {};
    struct Slab {
        gpu::U32x4 steps[4];
    };

    static __device__ __forceinline__ void load_head(Head&, const char*, int64_t, int64_t, int) {}
    static __device__ __forceinline__ void load_slab(Slab& slab, const char* group, int64_t k, int64_t unit, int,
                                                     int lane) {
        const char* at = group + unit * (4 * kFloatStepBytes);
        if constexpr (tail) {
            if (k - unit * (4 * kStepK) < 4 * kStepK) return load_last_slab(slab, at, k - unit * (4 * kStepK), lane);
        }
#pragma unroll
        for (int s = 0; s < 4; ++s) slab.steps[s] = gpu::load_16(at + s * kFloatStepBytes + lane * 16);
    }
    /// Loads the last slab of a row group, of which only `left` k exist; the rest becomes zeros.
    static __device__ __forceinline__ void load_last_slab(Slab& slab, const char* at, int64_t left, int lane) {
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int n = static_cast<int>(left) - s * kStepK;  // number of k of this step that exist
            slab.steps[s] = gpu::U32x4{};
            if (n >= kStepK) {
                slab.steps[s] = gpu::load_16(at + s * kFloatStepBytes + lane * 16);
            } else if (n > 0) {
                load_short_step(slab.steps[s], at + s * kFloatStepBytes, n, lane);
            }
        }
    }
    /// Loads a step of which only the first n < 16 k exist; they are stored row by row. The rest of `step` must be
    /// zeros.
    static __device__ __forceinline__ void load_short_step(gpu::U32x4& step, const char* rows, int n, int lane) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = lane / 4 + i / 2 % 2 * 8;
            const int at = lane % 4 * 2 + i % 2 + i / 4 * 8;
            const uint32_t bits = at < n ? gpu::load_2(rows + (row * n + at) * 2) : 0U;
            step.x[i / 2] |= bits << (i % 2 * 16);
        }
    }
    static __device__ __forceinline__ void copy_slab(gpu::SharedPtr<char> to, const char* unit, int) {
#pragma unroll
        for (int s = 0; s < 4; ++s) gpu::copy_async_16(to + s * kPieceBytes, unit + s * kFloatStepBytes);
    }
    static __device__ __forceinline__ void read_slab(Slab& slab, gpu::SharedPtr<char> from, int, Kept&) {
#pragma unroll
        for (int s = 0; s < 4; ++s) slab.steps[s] = gpu::load_shared_16(from + s * kPieceBytes);
    }
    static __device__ __forceinline__ Units units_of(const Head&, int) {
        return {};
    }
    static __device__ __forceinline__ void slab_scales(const Head&, const Units&, int, int, bool, SlabScales&) {}
    static __device__ __forceinline__ void operand(const Head&, const Slab& slab, int, int step, uint32_t (&a)[4]) {
#pragma unroll
        for (int h = 0; h < 4; ++h) a[h] = slab.steps[step].x[h];
    }
};

// Reader of Q4_0, Q4_1, Q5_0 and Q5_1: blocks of 32 with codes of 4 bits and possibly a fifth bit. `code_offset` is
// subtracted from each code; it is 0 if there is an m.
template <int code_offset, bool has_m, bool has_high>
struct NibbleWeights {
    static constexpr bool kTail = true;
    static constexpr int kSlabs = 2;
    static constexpr int kRunSteps = 2;
    static constexpr bool kScaled = true;
    static constexpr bool kOffsets = has_m;
    static constexpr bool kHalf = false;
    static constexpr int kUnitsAhead = has_high ? 1 : 2;
    static constexpr int kUnitsAheadOfMany = has_high ? 1 : 2;
    static constexpr int kMinBlocks = has_m || has_high ? 1 : 0;
    static constexpr int kPieces = 1;
    static constexpr int kSlots = 4;
    static constexpr int kRingGroups = has_m && has_high ? 1 : 2;
    static constexpr bool kUnitsWhole = false;
    static constexpr int kUnitBytes = 2 * kQuadBytes;
    struct Units {};
    struct Kept {};
    struct Head {
        uint32_t d;        // scales of rows g and g + 8 in block lane % 4 of the unit
        uint32_t m;        // offsets of rows g and g + 8 in block lane % 4 of the unit
        uint32_t high[2];  // fifth bits of four blocks of the unit, 16 bits each
    };
    struct Slab {
        gpu::U32x4 codes;
    };

    static __device__ __forceinline__ void load_head(Head& head, const char* group, int64_t k, int64_t unit, int lane) {
        const int64_t n = k / 32;
        const int64_t b = unit * 4;
        const char* d = group + n * kBlock32NibbleBytes;
        const int64_t own = b + lane % 4;
        const int64_t at = own * kPairedScaleBytes + lane / 4 * 4;
        head.d = own < n ? gpu::load_4(d + at) : 0U;
        if constexpr (has_m) head.m = own < n ? gpu::load_4(d + n * kPairedScaleBytes + at) : 0U;
        if constexpr (has_high) {
            const char* high = d + n * kPairedScaleBytes * (has_m ? 2 : 1) + lane * 2;
            head.high[0] = head.high[1] = 0;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (b + i < n)
                    head.high[i / 2] |= uint32_t{gpu::load_2(high + (b + i) * kBlock32HighBytes)} << (i % 2 * 16);
        }
    }
    /// Loads slab `number` of a unit, two blocks of 32. An odd last block of K has its words apart; blocks past K are
    /// zeros.
    static __device__ __forceinline__ void load_slab(Slab& slab, const char* group, int64_t k, int64_t unit, int number,
                                                     int lane) {
        const int64_t pair = unit * 2 + number;
        const int64_t blocks = k / 32 - pair * 2;  // number of blocks from here to the end of K
        const char* codes = group + pair * kQuadBytes;
        if (blocks >= 2) {
            slab.codes = gpu::load_16(codes + lane * 16);
            return;
        }
        slab.codes = gpu::U32x4{};
        if (blocks < 1) return;
        const gpu::U32x2 last = gpu::load_8(codes + lane * 8);
        slab.codes.x[0] = last.x[0];
        slab.codes.x[1] = last.x[1];
    }
    static __device__ __forceinline__ void copy_slab(gpu::SharedPtr<char> to, const char* unit, int number) {
        gpu::copy_async_16(to, unit + number * kQuadBytes);
    }
    static __device__ __forceinline__ void read_slab(Slab& slab, gpu::SharedPtr<char> from, int, Kept&) {
        slab.codes = gpu::load_shared_16(from);
    }
    static __device__ __forceinline__ Units units_of(const Head&, int) {
        return {};
    }
    static __device__ __forceinline__ void slab_scales(const Head& head, const Units&, int number, int lane, bool,
                                                       SlabScales& out) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t d = gpu::shfl(head.d, lane_of_quad(lane, 2 * number + i));
            out.scale[i][0] = half_low(d);
            out.scale[i][1] = half_high(d);
            if constexpr (has_m) {
                const uint32_t m = gpu::shfl(head.m, lane_of_quad(lane, 2 * number + i));
                out.offset[i][0] = half_low(m);
                out.offset[i][1] = half_high(m);
            }
        }
    }
    static __device__ __forceinline__ void operand(const Head& head, const Slab& slab, int number, int step,
                                                   uint32_t (&a)[4]) {
        uint32_t high = 0;
        if constexpr (has_high) {
            const uint32_t half = head.high[number] >> (step / 2 * 16);
            high = (half & 0xffU) | (half & 0xff00U) << 8;
        }
#pragma unroll
        for (int h = 0; h < 4; ++h) {
            uint32_t v = gpu::and_or(slab.codes.x[step] >> (4 * h), 0x000f000fU, 0x43004300U);
            if constexpr (has_high) v |= (high >> (4 * (step % 2) + h) & 0x00010001U) << 4;
            a[h] = lifted_to_bf16<code_offset>(v);
        }
    }
};

// Reader of Q8_0: codes of 8 bits, two's complement.
struct ByteWeights {
    static constexpr bool kTail = true;
    static constexpr int kSlabs = 2;
    static constexpr int kRunSteps = 2;
    static constexpr bool kScaled = true;
    static constexpr bool kOffsets = false;
    static constexpr bool kHalf = false;
    static constexpr int kUnitsAhead = 2;
    static constexpr int kUnitsAheadOfMany = 1;
    static constexpr int kMinBlocks = 0;
    static constexpr int kPieces = 2;
    static constexpr int kSlots = 4;
    static constexpr int kRingGroups = 1;
    static constexpr bool kUnitsWhole = false;
    static constexpr int kUnitBytes = 4 * kBlock32ByteBytes;
    struct Units {};
    struct Kept {};
    struct Head {
        uint32_t d;
    };
    struct Slab {
        gpu::U32x4 codes[2];  // codes of the slab's two blocks of 32
    };

    static __device__ __forceinline__ void load_head(Head& head, const char* group, int64_t k, int64_t unit, int lane) {
        const int64_t n = k / 32;
        const int64_t own = unit * 4 + lane % 4;
        head.d = own < n ? gpu::load_4(group + n * kBlock32ByteBytes + own * kPairedScaleBytes + lane / 4 * 4) : 0U;
    }
    static __device__ __forceinline__ void load_slab(Slab& slab, const char* group, int64_t k, int64_t unit, int number,
                                                     int lane) {
        const int64_t n = k / 32;
        const int64_t b = unit * 4 + number * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i)
            slab.codes[i] = b + i < n ? gpu::load_16(group + (b + i) * kBlock32ByteBytes + lane * 16) : gpu::U32x4{};
    }
    static __device__ __forceinline__ void copy_slab(gpu::SharedPtr<char> to, const char* unit, int number) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            gpu::copy_async_16(to + i * kPieceBytes, unit + (number * 2 + i) * kBlock32ByteBytes);
    }
    static __device__ __forceinline__ void read_slab(Slab& slab, gpu::SharedPtr<char> from, int, Kept&) {
#pragma unroll
        for (int i = 0; i < 2; ++i) slab.codes[i] = gpu::load_shared_16(from + i * kPieceBytes);
    }
    static __device__ __forceinline__ Units units_of(const Head&, int) {
        return {};
    }
    static __device__ __forceinline__ void slab_scales(const Head& head, const Units&, int number, int lane, bool,
                                                       SlabScales& out) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t d = gpu::shfl(head.d, lane_of_quad(lane, 2 * number + i));
            out.scale[i][0] = half_low(d);
            out.scale[i][1] = half_high(d);
        }
    }
    static __device__ __forceinline__ void operand(const Head&, const Slab& slab, int, int step, uint32_t (&a)[4]) {
#pragma unroll
        for (int h = 0; h < 4; ++h) a[h] = bytes_to_bf16(slab.codes[step / 2].x[step % 2 * 2 + h / 2] >> (h % 2 * 8));
    }
};

/// Returns values 4 i to 4 i + 3 of a code table as the bytes of a word, the first in the low byte.
constexpr uint32_t table_word(const CodeValues& values, int i) {
    uint32_t word = 0;
    for (int j = 0; j < 4; ++j)
        word |= static_cast<uint32_t>(static_cast<uint8_t>(values[static_cast<size_t>(4 * i + j)])) << (8 * j);
    return word;
}

// Reader of IQ4_NL and MXFP4: blocks as in Q4_0, but 4-bit codes are places in a table of 16 bytes, and scales of MXFP4
// are exponents.
template <DType type>
struct TableWeights : NibbleWeights<0, false, false> {
    static constexpr bool kExponents = type == DType::MXFP4;
    static constexpr int kMinBlocks = 1;
    static constexpr uint32_t kTable0 = table_word(code_values(type), 0);
    static constexpr uint32_t kTable1 = table_word(code_values(type), 1);
    static constexpr uint32_t kTable2 = table_word(code_values(type), 2);
    static constexpr uint32_t kTable3 = table_word(code_values(type), 3);

    static __device__ __forceinline__ void load_head(Head& head, const char* group, int64_t k, int64_t unit, int lane) {
        if constexpr (!kExponents) {
            NibbleWeights<0, false, false>::load_head(head, group, k, unit, lane);
        } else {
            const int64_t n = k / 32;
            const int64_t own = unit * 4 + lane % 4;
            const char* at = group + n * kBlock32NibbleBytes + own * kPairedExponentBytes + lane / 4 * 2;
            head.d = own < n ? uint32_t{gpu::load_2(at)} : 0U;
        }
    }
    /// Returns 2^(exponent - 128), as mxfp4_scale_bits() (code_tables.h).
    static __device__ __forceinline__ float power(uint32_t exponent) {
        return __builtin_bit_cast(float, exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23);
    }
    static __device__ __forceinline__ void slab_scales(const Head& head, const Units& units, int number, int lane,
                                                       bool many, SlabScales& out) {
        if constexpr (!kExponents) {
            NibbleWeights<0, false, false>::slab_scales(head, units, number, lane, many, out);
        } else {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t d = gpu::shfl(head.d, lane_of_quad(lane, 2 * number + i));
                out.scale[i][0] = power(d & 0xffU);
                out.scale[i][1] = power(d >> 8);
            }
        }
    }
    /// Looks up the word's eight codes, four at a time: in both halves of the table by the low three bits of a code,
    /// and then one of the two by the upper bit.
    static __device__ __forceinline__ void operand(const Head&, const Slab& slab, int, int step, uint32_t (&a)[4]) {
        const uint32_t codes = slab.codes.x[step];
        const uint32_t which = (codes & 0x88888888U) >> 1 | 0x32103210U;
        // Table values of the eight codes, a byte each: [0] of the first code of each of four pairs, [1] of the second.
        uint32_t values[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t places = codes >> (16 * i) & 0x7777U;
            values[i] = gpu::byte_perm(gpu::byte_perm(kTable0, kTable1, places),
                                       gpu::byte_perm(kTable2, kTable3, places), which >> (16 * i) & 0x7777U);
        }
#pragma unroll
        for (int h = 0; h < 4; ++h)
            a[h] = bytes_to_bf16(gpu::byte_perm(values[0], values[1], static_cast<uint32_t>(h | (4 + h) << 8)));
    }
};

}  // namespace slipstream::cuda
