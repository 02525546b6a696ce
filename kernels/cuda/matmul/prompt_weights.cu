// Unpacks weights to rows for cuBLASLt: F16 as it is, all other types as bfloat16, with codes scaled in float and
// rounded once. A warp reads 16 rows x 64 k at a time with the readers of matmul_weights.cuh, transposes them in shared
// memory, and writes whole cache lines.
#include "gpu.cuh"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/matmul/matmul_weights_k.cuh"
#include "kernels/cuda/matmul/prompt_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;
constexpr int kSlabK = 64;
constexpr int kRowWords = kSlabK / 2 + 4;  // 32-bit words of a row in shared memory: rows are 4 banks apart, so that
                                           // lanes that write together use different banks
constexpr int kTileBytes = kGroupRows * kRowWords * 4;

struct Unpacking {
    const char* packed;
    int64_t group_bytes;
    int64_t k;
    int64_t n_units;  // units of a row group
    char* rows;
};

// Returns scale * code + offset of the two bfloat16 codes in `codes`, as a pair of bfloat16, rounded once.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t codes, float scale, float offset) {
    const float lo = gpu::bf16_to_float(gpu::Bf16{static_cast<uint16_t>(codes)});
    const float hi = gpu::bf16_to_float(gpu::Bf16{static_cast<uint16_t>(codes >> 16)});
    return gpu::pack_bf16(gpu::fma(scale, lo, offset), gpu::fma(scale, hi, offset));
}

// Unpacks weights with reader W. Grid: row groups x shares of their units; the warps of a thread block take units of
// its share in turn.
template <class W>
__global__ void __launch_bounds__(kWarps* kWarp) prompt_weights(Unpacking p) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto tile = gpu::dynamic_shared<uint32_t>(static_cast<size_t>(warp) * kTileBytes);
    const char* group = p.packed + int64_t{blockIdx.x} * p.group_bytes;
    char* rows = p.rows + int64_t{blockIdx.x} * kGroupRows * p.k * 2;
    for (int64_t unit = int64_t{blockIdx.y} * kWarps + warp; unit < p.n_units; unit += int64_t{gridDim.y} * kWarps) {
        typename W::Head head;
        W::load_head(head, group, p.k, unit, lane);
        const typename W::Units units = W::units_of(head, lane);
#pragma unroll
        for (int number = 0; number < W::kSlabs; ++number) {
            const int64_t first_k = (unit * W::kSlabs + number) * kSlabK;
            if (first_k < p.k) {  // all lanes take the same branch
                typename W::Slab slab;
                W::load_slab(slab, group, p.k, unit, number, lane);
                SlabScales scales{};
                if constexpr (W::kScaled) W::slab_scales(head, units, number, lane, false, scales);
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    uint32_t a[4];
                    W::operand(head, slab, number, step, a);
#pragma unroll
                    for (int h = 0; h < 4; ++h) {
                        uint32_t pair = a[h];
                        if constexpr (W::kScaled) {
                            constexpr int kSteps = W::kRunSteps;
                            float offset = 0.0F;
                            if constexpr (W::kOffsets) offset = scales.offset[step / kSteps][h % 2];
                            pair = scaled_pair(pair, scales.scale[step / kSteps][h % 2], offset);
                        }
                        tile[(lane / 4 + h % 2 * 8) * kRowWords + step * 8 + h / 2 * 4 + lane % 4] = pair;
                    }
                }
                gpu::sync_warp();
                const int64_t at = first_k + lane % 8 * 8;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = i * 4 + lane / 8;
                    if (at < p.k)
                        gpu::store_16(rows + (row * p.k + at) * 2,
                                      gpu::load_shared_16(tile + (row * kRowWords + lane % 8 * 4)));
                }
                gpu::sync_warp();
            }
        }
    }
}

template <class W>
void start(const PromptWeightsLaunch& launch, void* stream) {
    const auto type = static_cast<DType>(launch.dtype);
    const WeightBlock block = weight_block(type);
    const int64_t n_units = matmul_plan(type, launch.k).n_units;
    const Unpacking args{static_cast<const char*>(launch.packed), launch.k / block.elements * block.bytes * kGroupRows,
                         launch.k, n_units, static_cast<char*>(launch.rows)};
    // Four units per warp: enough to hide its start, and enough warps for a slab of few rows.
    const int64_t shares = (n_units + 4 * kWarps - 1) / (4 * kWarps);
    gpu::launch(prompt_weights<W>, dim3(static_cast<unsigned>(launch.n_groups), static_cast<unsigned>(shares)),
                dim3(kWarps * kWarp), kWarps * kTileBytes, stream, args);
}

}  // namespace

void launch_prompt_weights(const PromptWeightsLaunch& launch, void* stream) {
    if (launch.n_groups == 0) return;
    switch (static_cast<DType>(launch.dtype)) {
        case DType::F32:  // never called: prompt_uses_blas()
            return;
        case DType::F16:
            return start<FloatWeights<true, true>>(launch, stream);
        case DType::BF16:
            return start<FloatWeights<false, true>>(launch, stream);
        case DType::Q8_0:
            return start<ByteWeights>(launch, stream);
        case DType::Q4_0:
            return start<NibbleWeights<8, false, false>>(launch, stream);
        case DType::Q4_1:
            return start<NibbleWeights<0, true, false>>(launch, stream);
        case DType::Q5_0:
            return start<NibbleWeights<16, false, true>>(launch, stream);
        case DType::Q5_1:
            return start<NibbleWeights<0, true, true>>(launch, stream);
        case DType::Q3_K:
            return start<ThreeBitWeights>(launch, stream);
        case DType::Q4_K:
            return start<ScaledMinWeights<false>>(launch, stream);
        case DType::Q5_K:
            return start<ScaledMinWeights<true>>(launch, stream);
        case DType::Q6_K:
            return start<SixBitWeights>(launch, stream);
        case DType::IQ4_NL:
            return start<TableWeights<DType::IQ4_NL>>(launch, stream);
        case DType::MXFP4:
            return start<TableWeights<DType::MXFP4>>(launch, stream);
        case DType::IQ4_XS:  // never called: multiplies()
        case DType::Q2_K:
            return;
    }
}

}  // namespace slipstream::cuda
