// The plain reference of matmul: decodes one row of weights at a time and adds each output in double, so that its own
// rounding does not blur what it judges. Activations are rounded to 8 bits if the weights are quantised.

#include <algorithm>

#include "kernels/base/checked_math.h"
#include "kernels/base/kernel_reads.h"
#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/cpu/matmul/interleaved.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

// Rows of the weights that a thread takes per task.
constexpr std::int64_t kPieceRows = 16;
// Most bytes of a run of activations that share a scale, quantised: a run of 256, as a tile of one token.
constexpr std::int64_t kMostRunBytes = kSubBlocks * kBlockBytesPerToken;

/// Returns the scratch memory of a call. Per thread: an encoded row, then a decoded row. Shared: the activations,
/// [n_tokens, k] floats, then one run of quantised activations.
CpuScratch scratch_of(DType type, std::int64_t n_tokens, std::int64_t k) {
    return {.thread_bytes = round_up<std::size_t>(row_bytes(type, k), 64) + k * sizeof(float),
            .shared_bytes = n_tokens * k * sizeof(float) + kMostRunBytes};
}

/// Rounds the activations x[k] of a token as the kernels do, and writes them back as floats to out[k]. `run` is scratch
/// of kMostRunBytes bytes.
void rounded_activations(const float* x, std::int64_t k, const CodeTraits& traits, float* out, std::byte* run) {
    for (std::int64_t i = 0; i < k; i += traits.activation_run) {
        quantize_token(x + i, traits.activation_run, 0, 1, traits, run);
        for (std::int64_t j = 0; j < traits.activation_run; ++j) {
            const std::byte* const block = run + j / 32 * kBlockBytesPerToken;
            const auto d = *reinterpret_cast<const float*>(block + BlockOffsets<1>::kD);
            out[i + j] = d * static_cast<float>(static_cast<std::int8_t>(block[j % 32]));
        }
    }
}

}  // namespace

CpuScratch matmul_scratch_scalar(const WorkspaceShapes& shapes) {
    return scratch_of(DType::F32, shapes.n_tokens, shapes.max_cols);  // F32 rows are the longest of all types
}

void matmul_scalar(ExecRef exec, const MatmulArgs& args) {
    auto& device = static_cast<CpuDevice&>(exec.device);
    const ConstTensorView& weights = args.weights;
    const std::int64_t m = weights.shape[0];
    const std::int64_t k = weights.shape[1];
    const std::int64_t n_tokens = args.x.shape[0];
    const std::size_t bytes = row_bytes(weights.dtype, k);
    const std::size_t decoded_offset = round_up<std::size_t>(bytes, 64);
    const auto floats = static_cast<std::size_t>(n_tokens * k);
    device.reserve_scratch(scratch_of(weights.dtype, n_tokens, k));
    auto* rounded = reinterpret_cast<float*>(device.shared_scratch());
    for (std::int64_t t = 0; t < n_tokens; ++t) {
        const float* x = float_row(args.x, t);
        if (is_quantized(weights.dtype)) {
            rounded_activations(x, k, code_traits(weights.dtype), rounded + t * k,
                                reinterpret_cast<std::byte*>(rounded + floats));
        } else {
            std::copy(x, x + k, rounded + t * k);
        }
    }
    if (weights.layout != Layout::RowMajor) tell_kernel_reads(weights.data, round_up(m, kInterleavedRows) * bytes);
    device.pool().run(m, kPieceRows, [&](std::int64_t begin, std::int64_t end, int thread) {
        std::byte* scratch = device.thread_scratch(thread);
        auto* decoded = reinterpret_cast<float*>(scratch + decoded_offset);
        for (std::int64_t row = begin; row < end; ++row) {
            const std::byte* encoded = scratch;
            if (weights.layout == Layout::RowMajor) {
                encoded = weights.row(row);
            } else {
                const auto group = static_cast<std::size_t>(row / kInterleavedRows * kInterleavedRows);
                deinterleave_row(weights.dtype, weights.data + group * bytes, static_cast<int>(row % kInterleavedRows),
                                 k, scratch);
            }
            dequantize_row(weights.dtype, encoded, decoded, k);
            for (std::int64_t t = 0; t < n_tokens; ++t) {
                double sum = 0;
                for (std::int64_t i = 0; i < k; ++i)
                    sum += static_cast<double>(decoded[i]) * static_cast<double>(rounded[t * k + i]);
                float& y = float_row(args.y, t)[row];
                y = finish_output(args, static_cast<float>(sum), row, y);
            }
        }
    });
}

}  // namespace slipstream::cpu
