// The plain reference of matmul: a block of weights decoded at a time, one sum an output, in double (so that its own
// rounding does not blur what it judges).

#include <algorithm>
#include <array>

#include "kernels/cpu/dequantize.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr std::int64_t kChunk = 256;  // a multiple of every block
constexpr std::int64_t kTokens = 16;  // tokens that share a decoded chunk

void multiply_row(const MatmulArgs& args, std::int64_t row) {
    const std::int64_t k = args.x.cols();
    const std::int64_t n_tokens = args.x.shape[0];
    const std::byte* weights = args.weights.row(row);
    std::array<float, kChunk> decoded;
    for (std::int64_t token = 0; token < n_tokens; token += kTokens) {
        const std::int64_t n = std::min(kTokens, n_tokens - token);
        std::array<double, kTokens> sums{};
        for (std::int64_t begin = 0; begin < k; begin += kChunk) {
            const std::int64_t count = std::min(kChunk, k - begin);
            dequantize_row(args.weights.dtype, weights + row_bytes(args.weights.dtype, begin), decoded.data(), count);
            for (std::int64_t t = 0; t < n; ++t) {
                const float* x = float_row(args.x, token + t) + begin;
                double& sum = sums[static_cast<std::size_t>(t)];
                for (std::int64_t i = 0; i < count; ++i)
                    sum += static_cast<double>(decoded[static_cast<std::size_t>(i)]) * static_cast<double>(x[i]);
            }
        }
        for (std::int64_t t = 0; t < n; ++t) {
            float& y = float_row(args.y, token + t)[row];
            y = finish_output(args, static_cast<float>(sums[static_cast<std::size_t>(t)]), row, y);
        }
    }
}

}  // namespace

void matmul_scalar(ExecRef exec, const MatmulArgs& args) {
    static_cast<CpuDevice&>(exec.device)
        .pool()
        .run(args.weights.shape[0], 16, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t row = begin; row < end; ++row) multiply_row(args, row);
        });
}

}  // namespace slipstream::cpu
