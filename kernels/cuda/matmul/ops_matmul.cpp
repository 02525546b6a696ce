// Matmul on a CUDA device, and the packing of weights for it.
//
// Activations are rounded and laid out in scratch, by the op that computed them (preparation.h) or by the first launch
// that reads them. The following matrices with the same x find them there, as long as only matmuls are enqueued in
// between; none of these writes its x.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/host/preparation.h"
#include "kernels/cuda/matmul/fragments.h"
#include "kernels/cuda/matmul/matmul_launch.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/matmul/ops_prompt.h"
#include "kernels/cuda/op_table.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"

namespace slipstream::cuda {

namespace {

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

MatmulMatrix matrix_of(const MatmulArgs& args) {
    return {.weights = args.weights.data,
            .m = args.weights.shape[0],
            .y = float_row(args.y, 0),
            .y_stride = stride_floats(args.y),
            .bias = args.bias.empty() ? nullptr : float_row(args.bias, 0)};
}

// Enqueues products of one x with the same `store`, by weights of one type, or of two types that one launch mixes.
void launch_products(ExecRef exec, std::span<const MatmulArgs> products) {
    Op op(exec);
    const MatmulArgs& first = products[0];
    const DType type = first.weights.dtype;
    const DType last = products.back().weights.dtype;
    const std::int64_t k = first.weights.shape[1];
    const std::int64_t n_tokens = first.x.shape[0];
    MatmulLaunch launch{.dtype = static_cast<std::int32_t>(type),
                        .last_dtype = last == type ? -1 : static_cast<std::int32_t>(last),
                        .n_matrices = static_cast<std::int32_t>(products.size()),
                        .n_tokens = static_cast<std::int32_t>(n_tokens),
                        .k = k,
                        .x = float_row(first.x, 0),
                        .x_stride = stride_floats(first.x),
                        .scratch = op.scratch(
                            std::max(matmul_scratch_bytes(type, k, n_tokens), matmul_scratch_bytes(last, k, n_tokens))),
                        .store = first.store == MatmulStore::Add ? MatmulStoreForm::Add : MatmulStoreForm::Overwrite,
                        .n_multiprocessors = op.device().properties().n_multiprocessors};
    std::ranges::transform(products, launch.matrices, matrix_of);
    // Most tokens of a call that is computed in a split form; calls of more tokens may use matmul_tiles.
    constexpr std::int64_t kFewTokens = 64;
    if (op.device().weights_by_registers() && n_tokens <= kFewTokens) launch.form = MatmulForm::SplitRegisters;
    ScratchActivations activations(op, {.x = launch.x,
                                        .x_stride = launch.x_stride,
                                        .k = k,
                                        .n_tokens = n_tokens,
                                        .kind = static_cast<std::int32_t>(matmul_scratch_kind(type, last)),
                                        .scratch = launch.scratch});
    if (activations.found()) launch.activations = MatmulActivations::Prepared;
    op.launch(&Module::matmul, launch, [&] {
        return fmt::format("matmul {} [{}, {}] x {} tokens, {} matrices", dtype_name(type), first.weights.shape[0], k,
                           n_tokens, products.size());
    });
    activations.keep();
}

// Whether a launch that begins with `first` may also compute `next`; types are not compared.
bool goes_along(ExecRef exec, const MatmulArgs& first, const MatmulArgs& next) {
    return next.store == first.store && next.weights.layout == first.weights.layout &&
           !prompt_takes(static_cast<CudaDevice&>(exec.device), next);
}
bool joins(ExecRef exec, const MatmulArgs& first, const MatmulArgs& next) {
    return next.weights.dtype == first.weights.dtype && goes_along(exec, first, next);
}
// Whether `next` may be the last product of a launch that begins with `first`.
bool mixes(ExecRef exec, const MatmulArgs& first, const MatmulArgs& next) {
    return matmul_mixes(first.weights.dtype, next.weights.dtype, first.x.shape[0]) &&
           !static_cast<CudaDevice&>(exec.device).weights_by_registers() && goes_along(exec, first, next);
}

}  // namespace

void matmul(ExecRef exec, const MatmulArgs& args) {
    cuda::matmuls(exec, {&args, 1});
}

void matmuls(ExecRef exec, std::span<const MatmulArgs> products) {
    for (std::size_t begin = 0, end = 0; begin < products.size(); begin = end) {
        const MatmulArgs& args = products[begin];
        CHECK(args.weights.layout == Layout::Fragments16 && args.x.shape[0] <= std::int64_t{1} << 30,
              "matmul by weights of layout {}", static_cast<int>(args.weights.layout));
        end = begin + 1;
        if (prompt_takes(static_cast<CudaDevice&>(exec.device), args)) {
            prompt_matmul(exec, args);
            continue;
        }
        while (end < products.size() && end - begin < std::size_t{kMostMatrices} && joins(exec, args, products[end]))
            ++end;
        if (end < products.size() && end - begin < std::size_t{kMostMatrices} && mixes(exec, args, products[end]))
            ++end;
        launch_products(exec, products.subspan(begin, end - begin));
    }
}

// Packs args.weights to args.packed, both in host memory. The device's host threads share the row groups.
void pack_weights(ExecRef exec, const PackWeightsArgs& args) {
    const FileRows rows{.dtype = args.weights.dtype,
                        .data = args.weights.data,
                        .stride_bytes = args.weights.row_stride_bytes,
                        .n_rows = args.weights.shape[0],
                        .k = args.weights.shape[1]};
    const std::int64_t n_groups = (rows.n_rows + kInterleavedRows - 1) / kInterleavedRows;
    static_cast<CudaDevice&>(exec.device).pool().run(n_groups, 4, [&](std::int64_t begin, std::int64_t end, int) {
        pack_fragments(rows, begin, end, args.packed.data);
    });
}

}  // namespace slipstream::cuda
