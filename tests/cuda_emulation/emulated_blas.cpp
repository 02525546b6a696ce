#include "emulated_blas.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "emulated_machine.h"
#include "kernels/base/check.h"
#include "kernels/base/float16.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/matmul/prompt_plan.h"

namespace slipstream::emulation {

namespace {

using cuda::kPromptTokens;
using cuda::PromptOperands;
using cuda::PromptProductLaunch;

// Rows of 16-bit floats as floats, transposed: [k][n_rows], so that sums over k vectorise over rows.
std::vector<float> columns_of(const void* rows, std::int64_t n_rows, std::int64_t k, PromptOperands operands) {
    std::vector<float> out(static_cast<std::size_t>(n_rows * k));
    for (std::int64_t row = 0; row < n_rows; ++row)
        for (std::int64_t i = 0; i < k; ++i) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, static_cast<const char*>(rows) + (row * k + i) * 2, sizeof(bits));
            out[i * n_rows + row] = operands == PromptOperands::F16 ? to_float(Half{bits}) : to_float(BFloat16{bits});
        }
    return out;
}

void multiply(const PromptProductLaunch& of) {
    constexpr std::int64_t kChains = 4;
    // A library may leave anything there meanwhile.
    std::memset(of.workspace, 0x7f, cuda::kPromptBlasBytes);
    const std::vector<float> weights = columns_of(of.weights, of.slab_rows, of.k, of.operands);
    const std::vector<float> tokens = columns_of(of.activations, kPromptTokens, of.k, of.operands);
    const auto n = static_cast<std::size_t>(of.slab_rows);
    std::array<std::vector<float>, kChains> chains;
    for (std::int64_t token = 0; token < kPromptTokens; ++token) {
        for (std::vector<float>& chain : chains) chain.assign(n, 0.0F);
        for (std::int64_t k = of.k - 1; k >= 0; --k) {
            const float x = tokens[k * kPromptTokens + token];
            const float* w = weights.data() + static_cast<std::size_t>(k) * n;
            float* chain = chains[k % kChains].data();
            for (std::size_t row = 0; row < n; ++row) chain[row] += w[row] * x;
        }
        float* to = of.product + token * of.product_stride;
        for (std::size_t row = 0; row < n; ++row)
            to[row] = (chains[0][row] + chains[1][row]) + (chains[2][row] + chains[3][row]);
    }
}

}  // namespace

cuda::Status prompt_product(cuda::Place place, const PromptProductLaunch* launch, cuda::ErrorText* error) {
    const auto is_on = [](const void* data, std::uintptr_t alignment) {
        return data != nullptr && reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
    };
    if (launch->blas == nullptr || launch->slab_rows <= 0 || launch->slab_rows % 128 != 0 || launch->k <= 0 ||
        launch->k % 32 != 0 || !is_on(launch->activations, 16) || !is_on(launch->weights, 16) ||
        !is_on(launch->product, 16) || launch->product_stride % 4 != 0 || launch->product_stride < launch->slab_rows ||
        !is_on(launch->workspace, 256)) {
        std::snprintf(error->text, sizeof(error->text), "an operand that cuBLASLt would refuse");
        return cuda::Status::Failed;
    }
    return enqueue_product(
        place, [launch = *launch] { multiply(launch); }, error);
}

}  // namespace slipstream::emulation
