// Matmul of a weight type by several numbers of tokens, over many different matrices in turn, so that each is read from
// memory.
//
// The weights of the first matrix are random and packed once; the other matrices are copies of it elsewhere in memory,
// which cost a kernel the same. All matrices are timed as one series. Matrices that share x convert it once ("x
// shared", as q, k and v do); some numbers of tokens are also measured with two different x in turn.
//
// A prefill chunk is measured in three ways: by this project's kernels, as prompts are computed (weights unpacked, then
// cuBLASLt), and by cuBLASLt alone on unpacked weights. The difference is the cost of batch invariance.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/matmul/prompt_plan.h"
#include "kernels/graph.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "kernels/workspace.h"
#include "tools/lab/card/card_runs.h"
#include "tools/lab/random_model/random_model_blocks.h"

namespace slipstream::tools {

namespace {

// Numbers of tokens that are also measured with an x that the previous matrix does not share.
constexpr std::array<std::int64_t, 3> kOwnTokens{1, 16, 64};
constexpr std::int64_t kMostGraphTokens = 16;

std::size_t float_bytes(std::int64_t n) {
    return n * sizeof(float);
}

// Returns copies of one packed random matrix, one after the other.
Buffer make_matrices(CardBench& bench, DType type) {
    const CardSizes& sizes = bench.sizes;
    const std::int64_t n_elements = sizes.rows * sizes.cols;
    std::vector<std::byte> rows(row_bytes(type, n_elements));
    const RandomBlocks blocks(type, 1.0 / std::sqrt(static_cast<double>(sizes.cols)));
    const std::int64_t n_blocks = n_elements / dtype_info(type).block_elements;
    constexpr std::int64_t kPieces = 64;
    bench.device.pool().run(kPieces, 1, [&](std::int64_t piece, std::int64_t, int) {
        const std::int64_t begin = n_blocks * piece / kPieces;
        const std::int64_t end = n_blocks * (piece + 1) / kPieces;
        blocks.fill(rows.data() + static_cast<std::size_t>(begin) * dtype_info(type).block_bytes, end - begin,
                    static_cast<std::uint64_t>(piece));
    });
    const std::size_t bytes = packed_bytes(type, sizes.rows, sizes.cols);
    const Buffer packed = bench.device.allocate_host(bytes, MemoryTag::Workspace, "a packed matrix");
    pack_weights(bench.exec(),
                 {.weights = matrix_view(static_cast<const std::byte*>(rows.data()), type, sizes.rows, sizes.cols),
                  .packed = packed_view(packed.data(), type, sizes.rows, sizes.cols, packed_layout(DeviceKind::Cuda))});
    bench.stream.synchronize();
    Buffer all = bench.device.allocate(bytes * sizes.n_matrices, MemoryTag::Weights,
                                       fmt::format("{} matrices of {}", sizes.n_matrices, dtype_name(type)));
    for (std::int64_t i = 0; i < sizes.n_matrices; ++i) bench.stream.copy(all.data() + i * bytes, packed.data(), bytes);
    bench.stream.synchronize();
    return all;
}

// Returns activations in GPU memory: random values around zero.
Buffer make_activations(CardBench& bench, std::int64_t n_floats) {
    const Buffer host = bench.device.allocate_host(float_bytes(n_floats), MemoryTag::Workspace, "activations");
    RandomBlocks(DType::F32, 1.0).fill(host.data(), n_floats, 7);
    Buffer card = bench.device.allocate(float_bytes(n_floats), MemoryTag::Activations, "activations");
    bench.stream.copy(card.data(), host.data(), float_bytes(n_floats));
    bench.stream.synchronize();
    return card;
}

enum class XUse : std::uint8_t {
    Shared,
    Own,
    Graph,   // shared; the series is recorded as a CUDA graph and launched
    Prompt,  // shared; a whole prefill chunk
};

std::string_view bench_name(XUse use) {
    switch (use) {
        case XUse::Shared:
            return "matmul";
        case XUse::Own:
            return "matmul_own_x";
        case XUse::Graph:
            return "matmul_graph";
        case XUse::Prompt:
            return "matmul_prompt";
    }
    return "?";
}
std::string_view note_of(XUse use) {
    switch (use) {
        case XUse::Shared:
            return "";
        case XUse::Own:
            return ", own x";
        case XUse::Graph:
            return ", one graph";
        case XUse::Prompt:
            return ", prompt";
    }
    return "?";
}

// Buffers of the largest call; smaller calls use their beginning.
struct Operands {
    std::array<Buffer, 2> x;
    Buffer y;
};

// Returns the seconds of one matrix; 0 if there was no time.
double bench_tokens(CardBench& bench, DType type, std::int64_t n, const Buffer& weights, const Operands& operands,
                    XUse use) {
    if (!bench.has_time()) return 0.0;
    const CardSizes& sizes = bench.sizes;
    const std::size_t bytes = packed_bytes(type, sizes.rows, sizes.cols);
    const auto series = [&] {
        for (std::int64_t i = 0; i < sizes.n_matrices; ++i) {
            const std::byte* const own = operands.x[use == XUse::Own ? i % 2 : 0].data();
            matmul(bench.exec(), {.weights = packed_view(static_cast<const std::byte*>(weights.data()) + i * bytes,
                                                         type, sizes.rows, sizes.cols, packed_layout(DeviceKind::Cuda)),
                                  .x = matrix_view(own, DType::F32, n, sizes.cols),
                                  .y = matrix_view(operands.y.data(), DType::F32, n, sizes.rows),
                                  .prompt = use == XUse::Prompt ? std::optional(PrefillChunk{.matrix_rows = sizes.rows})
                                                                : std::nullopt});
        }
    };
    const std::unique_ptr<Graph> graph = use == XUse::Graph ? bench.stream.capture(series) : nullptr;
    const CardTiming timing = bench.clock.time(sizes.n_matrices, [&] {
        if (graph == nullptr) return series();
        CHECK(bench.stream.launch(*graph, {}), "a graph of {} matrices", sizes.n_matrices);
    });
    bench.report.add({.bench = std::string(bench_name(use)),
                      .what = fmt::format("{} [{}, {}]{}", dtype_name(type), sizes.rows, sizes.cols, note_of(use)),
                      .n = n,
                      .seconds = timing.seconds,
                      .spread = timing.spread,
                      .bytes = static_cast<double>(bytes + float_bytes(n * (sizes.rows + sizes.cols))),
                      .flops = 2.0 * static_cast<double>(n) * static_cast<double>(sizes.rows * sizes.cols),
                      .enqueue_seconds = timing.enqueue_seconds});
    return timing.seconds;
}

// Times cuBLASLt alone, over all slabs of an unpacked matrix. Returns the seconds of one matrix; 0 if there was no
// time.
double bench_library(CardBench& bench, DType type, const Buffer& weights, const Buffer& x) {
    using namespace cuda;
    if (!bench.has_time()) return 0.0;
    const CardSizes& sizes = bench.sizes;
    const PromptOperands operands = type == DType::F16 ? PromptOperands::F16 : PromptOperands::Bf16;
    const std::int64_t slab_rows = prompt_slab_rows(sizes.rows);
    const std::int64_t n_slabs = (sizes.rows + slab_rows - 1) / slab_rows;
    const std::size_t slab_bytes = static_cast<std::size_t>(slab_rows * sizes.cols) * 2;
    const PromptScratch layout = prompt_scratch(sizes.cols, slab_rows);
    const Buffer scratch = bench.device.allocate(layout.bytes, MemoryTag::Workspace, "a piece of prompt");
    const Buffer rows = bench.device.allocate(slab_bytes * n_slabs, MemoryTag::Weights, "an unpacked matrix");
    const auto describe = [&] { return fmt::format("a piece of prompt, {}", dtype_name(type)); };
    {
        Op op(bench.exec());
        op.launch(&Module::prompt_activations,
                  {.operands = operands,
                   .n_tokens = static_cast<std::int32_t>(kPromptTokens),
                   .k = sizes.cols,
                   .x = reinterpret_cast<const float*>(x.data()),
                   .x_stride = sizes.cols,
                   .activations = scratch.data(),
                   .factors = reinterpret_cast<float*>(scratch.data() + layout.factors)},
                  describe);
        op.launch(&Module::prompt_weights,
                  {.dtype = static_cast<std::int32_t>(type),
                   .n_groups = (sizes.rows + kInterleavedRows - 1) / kInterleavedRows,
                   .k = sizes.cols,
                   .packed = weights.data(),
                   .rows = rows.data()},
                  describe);
    }
    const CardTiming timing = bench.clock.time(sizes.n_matrices, [&] {
        Op op(bench.exec());
        for (std::int64_t i = 0; i < sizes.n_matrices * n_slabs; ++i)
            op.launch(&Module::prompt_product,
                      {.blas = bench.device.blas(),
                       .operands = operands,
                       .slab_rows = slab_rows,
                       .k = sizes.cols,
                       .activations = scratch.data(),
                       .weights = rows.data() + (i % n_slabs) * slab_bytes,
                       .product = reinterpret_cast<float*>(scratch.data() + layout.product),
                       .product_stride = slab_rows,
                       .workspace = scratch.data() + layout.workspace},
                      describe);
    });
    const double n = static_cast<double>(kPromptTokens);
    bench.report.add({.bench = "cublaslt",
                      .what = fmt::format("cuBLASLt, {} [{}, {}]", operands == PromptOperands::F16 ? "F16" : "BF16",
                                          sizes.rows, sizes.cols),
                      .n = kPromptTokens,
                      .seconds = timing.seconds,
                      .spread = timing.spread,
                      .bytes = static_cast<double>(slab_bytes) * static_cast<double>(n_slabs) +
                               static_cast<double>(float_bytes(kPromptTokens * sizes.rows)) +
                               static_cast<double>(kPromptTokens * sizes.cols * 2),
                      .flops = 2.0 * n * static_cast<double>(sizes.rows * sizes.cols),
                      .enqueue_seconds = timing.enqueue_seconds});
    return timing.seconds;
}

// Measures the product of a prefill chunk twice: as prompts compute it, and by cuBLASLt alone. Adds both times and
// `own`, the seconds of this project's kernels, to the report. Does nothing if prompts do not use cuBLASLt for this
// type.
void bench_prompt(CardBench& bench, DType type, const Buffer& weights, const Operands& operands, double own) {
    if (bench.device.blas() == nullptr || !cuda::prompt_uses_blas(type, bench.sizes.cols)) return;
    const double as_used = bench_tokens(bench, type, kPrefillChunkTokens, weights, operands, XUse::Prompt);
    const double library = bench_library(bench, type, weights, operands.x[0]);
    if (own > 0.0 && as_used > 0.0 && library > 0.0)
        bench.report.compare(
            {.what = std::string(dtype_name(type)), .own = own, .as_used = as_used, .library = library});
}

}  // namespace

void bench_card_matmul(CardBench& bench, const std::vector<DType>& types, const std::vector<std::int64_t>& n_tokens) {
    if (types.empty() || n_tokens.empty()) return;
    bench.report.section(fmt::format("matmul over {} matrices, time of one; n: tokens", bench.sizes.n_matrices));
    const std::int64_t most = *std::max_element(n_tokens.begin(), n_tokens.end());
    const std::int64_t x_floats = most * bench.sizes.cols;
    reserve_workspace(bench.device, {.n_tokens = most,
                                     .max_cols = bench.sizes.cols,
                                     .weights = packed_layout(DeviceKind::Cuda),
                                     .prompt_rows = most < kPrefillChunkTokens ? 0 : bench.sizes.rows});
    const Operands operands{
        .x = {make_activations(bench, x_floats), make_activations(bench, x_floats)},
        .y = bench.device.allocate(float_bytes(most * bench.sizes.rows), MemoryTag::Activations, "outputs")};
    for (const DType type : types) {
        if (std::chrono::steady_clock::now() >= bench.deadline) {  // no time even to make the matrices
            bench.left_out += std::ssize(n_tokens);
            continue;
        }
        const Buffer weights = make_matrices(bench, type);
        for (const std::int64_t n : n_tokens) {
            const double own = bench_tokens(bench, type, n, weights, operands, XUse::Shared);
            if (n <= kMostGraphTokens) bench_tokens(bench, type, n, weights, operands, XUse::Graph);
            if (n == kPrefillChunkTokens) bench_prompt(bench, type, weights, operands, own);
            if (std::find(kOwnTokens.begin(), kOwnTokens.end(), n) != kOwnTokens.end())
                bench_tokens(bench, type, n, weights, operands, XUse::Own);
        }
        bench.stream.synchronize();
    }
}

}  // namespace slipstream::tools
