// Products with quantised weights in plain loops, a quantisation block of 16 rows at a time.
#include "kernels/cpu/matmul/code_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/interleaved.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/packed_block.h"
#include "kernels/cpu/matmul/unpack_codes.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr int kRows = static_cast<int>(kInterleavedRows);
// Tokens whose sums are kept while the blocks of a row group are unpacked once.
constexpr std::int64_t kTokensAtOnce = 16;
// Tokens per task when threads round activations.
constexpr std::int64_t kTokensPerTask = 8;
// Float types, which are the first of DType.
constexpr std::size_t kFloatTypes = 3;
// Bytes of the largest quantisation block of 16 rows.
constexpr std::size_t kMostBlockBytes = [] {
    std::int64_t most = 0;
    for (std::size_t i = kFloatTypes; i < kDTypeCount; ++i)
        most = std::max(most, packed_block(static_cast<DType>(i)).bytes);
    return static_cast<std::size_t>(most);
}();

/// Unpacks the packed quantisation block at `src`, of 16 rows.
template <DType type>
void unpack(const std::byte* src, UnpackedChunk& out) {
    unpack_block<type>(src, 0, out);
    if constexpr (has_code_table(type)) {
        constexpr int kSubBlocksOfBlock = code_traits(type).activation_run / 32;
        for (int s = 0; s < kSubBlocksOfBlock; ++s)
            for (auto& word : out.codes[s])
                for (std::uint32_t& row : word) {
                    std::uint32_t codes = 0;
                    for (int j = 0; j < 32; j += 8) codes |= std::uint32_t{kCodeTable<type>[row >> j & 0xffU]} << j;
                    row = codes;
                }
    }
}

using UnpackFn = void (*)(const std::byte* src, UnpackedChunk& out);
constexpr std::array<UnpackFn, kDTypeCount> kUnpack = []<std::size_t... i>(std::index_sequence<i...>) {
    std::array<UnpackFn, kDTypeCount> all{};
    ((all[i + kFloatTypes] = unpack<static_cast<DType>(i + kFloatTypes)>), ...);
    return all;
}
(std::make_index_sequence<kDTypeCount - kFloatTypes>());

/// Adds a block's products with one token to the sums of 16 rows. `x`: the token's activations of the block's first
/// sub-block, as a tile of one token (activations.h), of which codes and d are read.
void add_block(const UnpackedChunk& weights, const CodeTraits& traits, const std::byte* x, float (&sums)[kRows]) {
    const int n_runs = traits.activation_run / traits.scale_run;
    float d;
    std::memcpy(&d, x + BlockOffsets<1>::kD, sizeof(d));
    float of_block[kRows] = {};
    std::int32_t of_minimums[kRows] = {};
    for (int run = 0; run < n_runs; ++run) {
        const int first = run * traits.scale_run;  // element of the block
        const auto& codes = weights.codes[first / 32];
        const std::byte* const q = x + first / 32 * kBlockBytesPerToken;
        std::int32_t dots[kRows] = {};
        std::int32_t total = 0;
        for (int i = first % 32; i < first % 32 + traits.scale_run; ++i) {
            const std::int32_t activation = static_cast<std::int8_t>(q[i]);
            total += activation;
            for (int r = 0; r < kRows; ++r)
                dots[r] += static_cast<std::int32_t>(codes[i / 4][r] >> (8 * (i % 4)) & 0xffU) * activation;
        }
        for (int r = 0; r < kRows; ++r) {
            const auto dot = static_cast<float>(dots[r] - traits.code_offset * total);
            if (traits.activation_run == 256) {
                of_block[r] = std::fma(dot, weights.scale[run][r], of_block[r]);
                if (traits.has_offset)
                    of_minimums[r] +=
                        static_cast<std::int32_t>(weights.mins[run / 2][r] >> (16 * (run % 2)) & 0xffffU) * total;
            } else {
                sums[r] = std::fma(dot, weights.scale[run][r] * d, sums[r]);
                if (traits.has_offset)
                    sums[r] = std::fma(weights.offset[run][r], d * static_cast<float>(total), sums[r]);
            }
        }
    }
    if (traits.activation_run != 256) return;
    for (int r = 0; r < kRows; ++r) {
        if (traits.has_offset)
            of_block[r] = std::fma(static_cast<float>(of_minimums[r]), weights.minus_dmin[r], of_block[r]);
        sums[r] = std::fma(of_block[r], d, sums[r]);
    }
}

/// Computes the outputs of row group `group` for tokens [begin, end), at most kTokensAtOnce. `activations`: all rounded
/// tokens, token_bytes apart.
void multiply_group(const MatmulArgs& args, const std::byte* activations, std::int64_t group, std::int64_t begin,
                    std::int64_t end) {
    const ConstTensorView& weights = args.weights;
    const std::int64_t k = weights.shape[1];
    const DTypeInfo& info = dtype_info(weights.dtype);
    const CodeTraits traits = code_traits(weights.dtype);
    const std::int64_t token_bytes = k / 32 * kBlockBytesPerToken;
    const std::int64_t first_row = group * kRows;
    const auto n_rows = static_cast<int>(std::min<std::int64_t>(kRows, weights.shape[0] - first_row));
    float sums[kTokensAtOnce][kRows] = {};
    for (std::int64_t block = 0; block < k / info.block_elements; ++block) {
        UnpackedChunk unpacked;
        alignas(64) std::byte interleaved[kMostBlockBytes];
        const std::byte* packed = interleaved;
        if (weights.layout == Layout::RowMajor) {
            interleave_rows(weights.dtype, weights.row(first_row) + block * static_cast<std::int64_t>(info.block_bytes),
                            weights.row_stride_bytes, n_rows, info.block_elements, interleaved);
        } else {
            packed = weights.data +
                     (group * (k / info.block_elements) + block) * kRows * static_cast<std::int64_t>(info.block_bytes);
        }
        kUnpack[static_cast<std::size_t>(weights.dtype)](packed, unpacked);
        for (std::int64_t t = begin; t < end; ++t)
            add_block(unpacked, traits,
                      activations + t * token_bytes + block * (info.block_elements / 32) * kBlockBytesPerToken,
                      sums[t - begin]);
    }
    for (std::int64_t t = begin; t < end; ++t)
        for (int r = 0; r < n_rows; ++r) {
            float& y = float_row(args.y, t)[first_row + r];
            y = finish_output(args, sums[t - begin][r], first_row + r, y);
        }
}

}  // namespace

void matmul_code_chain(ExecRef exec, const MatmulArgs& args) {
    auto& device = static_cast<CpuDevice&>(exec.device);
    const std::int64_t k = args.weights.shape[1];
    const std::int64_t n = args.x.shape[0];
    const std::int64_t token_bytes = k / 32 * kBlockBytesPerToken;
    device.reserve_scratch({.thread_bytes = 0, .shared_bytes = static_cast<std::size_t>(n * token_bytes)});
    std::byte* const activations = device.shared_scratch();
    device.pool().run(n, kTokensPerTask, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t)
            quantize_token(float_row(args.x, t), k, 0, 1, code_traits(args.weights.dtype),
                           activations + t * token_bytes);
    });
    device.pool().run(ceil_div<std::int64_t>(args.weights.shape[0], kRows), 1,
                      [&](std::int64_t begin, std::int64_t end, int) {
                          for (std::int64_t group = begin; group < end; ++group)
                              for (std::int64_t t = 0; t < n; t += kTokensAtOnce)
                                  multiply_group(args, activations, group, t, std::min(n, t + kTokensAtOnce));
                      });
}

}  // namespace slipstream::cpu
