// Matmul over a prefill chunk by cuBLASLt (prompt_plan.h): each slab of the matrix is unpacked, multiplied and stored.
// If a slab's product is y without any change, it is written there directly: the same algorithm, the same bits.
#include "kernels/cuda/matmul/ops_prompt.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/host/preparation.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/matmul/prompt_plan.h"

namespace slipstream::cuda {

namespace {

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

// Whether `data` and all rows after it, `stride` floats apart, are aligned to 16 bytes, as cuBLASLt requires.
bool is_aligned(const float* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

// Returns a value for PreparedActivations::kind that stands for activations of a prefill chunk, and that no ScratchKind
// has.
std::int32_t prepared_kind(PromptOperands operands, std::int64_t first_token) {
    constexpr std::int32_t kFirst = 1000;
    return kFirst + static_cast<std::int32_t>(operands) * static_cast<std::int32_t>(kPromptTokens) +
           static_cast<std::int32_t>(first_token);
}

struct Product {
    const MatmulArgs& args;
    const PrefillChunk& chunk;
    PromptOperands operands;
    std::int64_t k;
    std::int64_t n_tokens;
    std::int64_t slab_rows;
    std::byte* base;
    PromptScratch scratch;
};

void round_tokens(Op& op, const Product& of) {
    const PromptActivationsLaunch launch{.operands = of.operands,
                                         .n_tokens = static_cast<std::int32_t>(of.n_tokens),
                                         .first_token = static_cast<std::int32_t>(of.chunk.first_token),
                                         .k = of.k,
                                         .x = float_row(of.args.x, 0),
                                         .x_stride = stride_floats(of.args.x),
                                         .activations = of.base,
                                         .factors = reinterpret_cast<float*>(of.base + of.scratch.factors)};
    op.launch(&Module::prompt_activations, launch,
              [&] { return fmt::format("activations of a prompt [{}, {}]", of.n_tokens, of.k); });
}

// Computes the outputs of rows [begin, end) of the weights, which must be in one slab.
void multiply_rows(Op& op, const Product& of, std::int64_t begin, std::int64_t end) {
    const DType type = of.args.weights.dtype;
    const std::int64_t in_slab = (of.chunk.first_row + begin) % of.slab_rows;
    const auto describe = [&] {
        return fmt::format("{} rows of {} [{}, {}] x prompt", end - begin, dtype_name(type), of.args.weights.shape[0],
                           of.k);
    };
    std::byte* rows = of.base + of.scratch.weights;
    const std::size_t group_bytes = row_bytes(type, of.k) * static_cast<std::size_t>(kInterleavedRows);
    const PromptWeightsLaunch unpack{.dtype = static_cast<std::int32_t>(type),
                                     .n_groups = (end - begin + kInterleavedRows - 1) / kInterleavedRows,
                                     .k = of.k,
                                     .packed = of.args.weights.data + (begin / kInterleavedRows) * group_bytes,
                                     .rows = rows + static_cast<std::size_t>(in_slab * of.k) * 2};
    op.launch(&Module::prompt_weights, unpack, describe);

    float* y = float_row(of.args.y, 0) + begin;
    const bool is_y = in_slab == 0 && end - begin == of.slab_rows && of.n_tokens == kPromptTokens &&
                      of.operands == PromptOperands::Bf16 && of.args.store == MatmulStore::Overwrite &&
                      of.args.bias.empty() && is_aligned(y, stride_floats(of.args.y));
    auto* product = reinterpret_cast<float*>(of.base + of.scratch.product);
    const PromptProductLaunch multiply{.blas = op.device().blas(),
                                       .operands = of.operands,
                                       .slab_rows = of.slab_rows,
                                       .k = of.k,
                                       .activations = of.base,
                                       .weights = rows,
                                       .product = is_y ? y : product,
                                       .product_stride = is_y ? stride_floats(of.args.y) : of.slab_rows,
                                       .workspace = of.base + of.scratch.workspace};
    op.launch(&Module::prompt_product, multiply, describe);
    if (is_y) return;

    const PromptStoreLaunch store{
        .n_tokens = static_cast<std::int32_t>(of.n_tokens),
        .n_rows = end - begin,
        .product = product + of.chunk.first_token * of.slab_rows + in_slab,
        .product_stride = of.slab_rows,
        .factors = of.operands == PromptOperands::F16
                       ? reinterpret_cast<const float*>(of.base + of.scratch.factors) + of.chunk.first_token
                       : nullptr,
        .bias = of.args.bias.empty() ? nullptr : float_row(of.args.bias, 0) + begin,
        .y = y,
        .y_stride = stride_floats(of.args.y),
        .store = of.args.store == MatmulStore::Add ? MatmulStoreForm::Add : MatmulStoreForm::Overwrite};
    op.launch(&Module::prompt_store, store, describe);
}

}  // namespace

bool prompt_takes(const CudaDevice& device, const MatmulArgs& args) {
    return device.blas() != nullptr && args.prompt && prompt_uses_blas(args.weights.dtype, args.weights.shape[1]);
}

void prompt_matmul(ExecRef exec, const MatmulArgs& args) {
    const std::int64_t m = args.weights.shape[0];
    Op op(exec);
    Product of{.args = args,
               .chunk = *args.prompt,
               .operands = args.weights.dtype == DType::F16 ? PromptOperands::F16 : PromptOperands::Bf16,
               .k = args.weights.shape[1],
               .n_tokens = args.x.shape[0],
               .slab_rows = prompt_slab_rows(args.prompt->matrix_rows),
               .base = nullptr,
               .scratch = {}};
    of.scratch = prompt_scratch(of.k, of.slab_rows);
    of.base = op.scratch(of.scratch.bytes);
    ScratchActivations activations(op, {.x = float_row(args.x, 0),
                                        .x_stride = stride_floats(args.x),
                                        .k = of.k,
                                        .n_tokens = of.n_tokens,
                                        .kind = prepared_kind(of.operands, of.chunk.first_token),
                                        .scratch = of.base});
    if (!activations.found()) round_tokens(op, of);
    for (std::int64_t begin = 0; begin < m;) {
        const std::int64_t left = of.slab_rows - (of.chunk.first_row + begin) % of.slab_rows;  // rows left in the slab
        const std::int64_t end = std::min(m, begin + left);
        multiply_rows(op, of, begin, end);
        begin = end;
    }
    activations.keep();
}

}  // namespace slipstream::cuda
