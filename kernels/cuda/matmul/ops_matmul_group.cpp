// Products of experts on a CUDA device. The rows of experts that follow one another in memory are a run. In a run, the
// products of few rows are computed together: their activations are rounded in one launch for all rows, then a launch
// for each type of weights multiplies tiles of 8 rows, each by the matrix of its expert (MatmulGroupLaunch). Two
// experts may have rows in the same tile; the columns of the other one are computed and not stored. Products of many
// rows are launched one by one, by the kernels of matmul().
#include <algorithm>
#include <bitset>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/host/preparation.h"
#include "kernels/cuda/matmul/matmul_launch.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/op_table.h"
#include "kernels/experts.h"

namespace slipstream::cuda {

namespace {

// Most rows of a product that is computed with others (estimated). Its weights are read, mostly from L2, and unpacked
// once for each of its tiles, which costs less than a launch that leaves much of the GPU idle: so there may be more
// rows if the matrix has fewer than two row groups for each multiprocessor.
constexpr std::int64_t kFewRows = 16;
constexpr std::int64_t kFewRowsOfSmall = 64;

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

bool same_x(const MatmulArgs& a, const MatmulArgs& b) {
    return a.x.data == b.x.data && a.x.shape == b.x.shape && a.x.row_stride_bytes == b.x.row_stride_bytes;
}

// Whether the rows of `b` are those after the rows of `a`.
bool follows(const MatmulArgs& a, const MatmulArgs& b) {
    return a.x.row_stride_bytes == b.x.row_stride_bytes && a.x.shape[1] == b.x.shape[1] &&
           b.x.data == a.x.data + static_cast<std::size_t>(a.x.shape[0]) * a.x.row_stride_bytes;
}

bool is_grouped(ExecRef exec, const MatmulArgs& args) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const std::int64_t n_multiprocessors = static_cast<CudaDevice&>(exec.device).properties().n_multiprocessors;
    const bool is_small = args.weights.shape[0] < 2 * kInterleavedRows * n_multiprocessors;
    return args.x.shape[0] <= (is_small ? kFewRowsOfSmall : kFewRows) && args.store == MatmulStore::Overwrite &&
           !args.prompt && args.weights.layout == Layout::Fragments16 &&
           matmul_groups(args.weights.dtype, args.weights.shape[1]) && args.weights.shape[0] <= kMost &&
           stride_floats(args.y) <= kMost;
}

// Products whose rows follow one another; several may have the same x.
struct Run {
    std::span<const MatmulArgs> products;
    std::int64_t n_rows = 0;
};

// Returns the run that begins `products`, of up to `most_rows` rows if the first product has no more.
Run first_run(std::span<const MatmulArgs> products, std::int64_t most_rows) {
    Run run{products.first(1), products[0].x.shape[0]};
    for (std::size_t i = 1; i < products.size(); ++i) {
        const MatmulArgs& next = products[i];
        if (!same_x(products[i - 1], next)) {
            if (!follows(products[i - 1], next) || run.n_rows + next.x.shape[0] > most_rows) break;
            run.n_rows += next.x.shape[0];
        }
        run.products = products.first(i + 1);
    }
    return run;
}

void launch_tiles(ExecRef exec, const Run& run, DType type, MatmulGroupLaunch& launch) {
    if (launch.n_tiles == 0) return;
    Op op(exec);
    const MatmulArgs& first = run.products[0];
    const std::int64_t k = first.x.shape[1];
    launch.dtype = static_cast<std::int32_t>(type);
    launch.n_tokens = static_cast<std::int32_t>(run.n_rows);
    launch.k = k;
    launch.x = float_row(first.x, 0);
    launch.x_stride = stride_floats(first.x);
    launch.scratch = op.scratch(matmul_scratch_bytes(type, k, run.n_rows));
    launch.form = op.device().weights_by_registers() ? MatmulForm::SplitRegisters : MatmulForm::Chosen;
    ScratchActivations activations(op, {.x = launch.x,
                                        .x_stride = launch.x_stride,
                                        .k = k,
                                        .n_tokens = run.n_rows,
                                        .kind = static_cast<std::int32_t>(matmul_scratch_kind(type)),
                                        .scratch = launch.scratch});
    launch.activations = activations.found() ? MatmulActivations::Prepared : MatmulActivations::Prepare;
    op.launch(&Module::matmul_group, launch, [&] {
        return fmt::format("matmul {} [.., {}] of {} tiles in {} rows", dtype_name(type), k, launch.n_tiles,
                           run.n_rows);
    });
    activations.keep();
    launch.n_tiles = 0;
}

// Computes the products of few rows with weights of `type`.
void multiply_type(ExecRef exec, const Run& run, DType type) {
    MatmulGroupLaunch launch;
    const std::byte* const base = run.products[0].x.data;
    for (const MatmulArgs& args : run.products) {
        if (args.weights.dtype != type || !is_grouped(exec, args)) continue;
        const std::int64_t begin = (args.x.data - base) / static_cast<std::int64_t>(args.x.row_stride_bytes);
        const std::int64_t end = begin + args.x.shape[0];
        for (std::int64_t token = begin, next = 0; token < end; token = next) {
            next = std::min(end, (token / kTokensPerTile + 1) * kTokensPerTile);
            if (launch.n_tiles == kMostGroupTiles) launch_tiles(exec, run, type, launch);
            launch.tiles[launch.n_tiles++] = {.weights = args.weights.data,
                                              .y = float_row(args.y, 0) - begin * stride_floats(args.y),
                                              .bias = args.bias.empty() ? nullptr : float_row(args.bias, 0),
                                              .m = static_cast<std::int32_t>(args.weights.shape[0]),
                                              .y_stride = static_cast<std::int32_t>(stride_floats(args.y)),
                                              .first_token = static_cast<std::int32_t>(token),
                                              .n_tokens = static_cast<std::int32_t>(next - token)};
        }
    }
    launch_tiles(exec, run, type, launch);
}

}  // namespace

void grouped_matmul(ExecRef exec, std::span<const MatmulArgs> products) {
    std::int64_t most_rows = kGroupedRows;  // for which workspace is reserved
    for (const MatmulArgs& args : products) most_rows = std::max(most_rows, args.x.shape[0]);
    while (!products.empty()) {
        const Run run = first_run(products, most_rows);
        products = products.subspan(run.products.size());
        // A single x goes to the kernels that are made for it.
        const bool together = !same_x(run.products.front(), run.products.back());
        std::bitset<kDTypeCount> types;  // of what is computed together
        for (const MatmulArgs& args : run.products)
            if (together && is_grouped(exec, args)) types.set(static_cast<std::size_t>(args.weights.dtype));
        for (std::int32_t type = 0; type < kDTypeCount; ++type)
            if (types.test(static_cast<std::size_t>(type))) multiply_type(exec, run, static_cast<DType>(type));
        for (std::size_t begin = 0, end = 0; begin < run.products.size(); begin = end) {
            const MatmulArgs& first = run.products[begin];
            const auto belongs = [&](const MatmulArgs& args) {
                return same_x(first, args) &&
                       (together && is_grouped(exec, args)) == (together && is_grouped(exec, first));
            };
            for (end = begin + 1; end < run.products.size() && belongs(run.products[end]);) ++end;
            if (!together || !is_grouped(exec, first)) cuda::matmuls(exec, run.products.subspan(begin, end - begin));
        }
    }
}

}  // namespace slipstream::cuda
