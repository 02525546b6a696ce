// Matmul of a weight type by numbers of tokens, over many different matrices in turn, so that each is read from memory.
//
// Weights are those of a random model, packed once; the other matrices are copies of the first elsewhere in memory,
// which costs a kernel the same. The series is timed whole. Matrices that share x round it once ("x shared", as q, k
// and v do); for some n the same with an x of its own for each matrix.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "kernels/workspace.h"
#include "tools/bench_card_runs.h"
#include "tools/random_model_blocks.h"

namespace slipstream::tools {

namespace {

// Numbers of tokens that are measured with an x of its own for each matrix, too.
constexpr std::array<std::int64_t, 3> kOwnTokens{1, 16, 64};

std::size_t float_bytes(std::int64_t n) {
    return static_cast<std::size_t>(n) * sizeof(float);
}

// Copies of one packed random matrix, one behind the other.
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
    Buffer all = bench.device.allocate(bytes * static_cast<std::size_t>(sizes.n_matrices), MemoryTag::Weights,
                                       fmt::format("{} matrices of {}", sizes.n_matrices, dtype_name(type)));
    for (std::int64_t i = 0; i < sizes.n_matrices; ++i)
        bench.stream.copy(all.data() + static_cast<std::size_t>(i) * bytes, packed.data(), bytes);
    bench.stream.synchronize();
    return all;
}

// Activations: values around zero, copied to the card.
Buffer make_activations(CardBench& bench, std::int64_t n_floats) {
    const Buffer host = bench.device.allocate_host(float_bytes(n_floats), MemoryTag::Workspace, "activations");
    RandomBlocks(DType::F32, 1.0).fill(host.data(), n_floats, 7);
    Buffer card = bench.device.allocate(float_bytes(n_floats), MemoryTag::Activations, "activations");
    bench.stream.copy(card.data(), host.data(), float_bytes(n_floats));
    bench.stream.synchronize();
    return card;
}

enum class XUse : std::uint8_t { Shared, Own };

// Of the largest call; smaller ones use the beginning.
struct Operands {
    std::array<Buffer, 2> x;
    Buffer y;
};

void bench_tokens(CardBench& bench, DType type, std::int64_t n, const Buffer& weights, const Operands& operands,
                  XUse use) {
    if (!bench.has_time()) return;
    const CardSizes& sizes = bench.sizes;
    const std::size_t bytes = packed_bytes(type, sizes.rows, sizes.cols);
    const CardTiming timing = bench.clock.time(sizes.n_matrices, [&] {
        for (std::int64_t i = 0; i < sizes.n_matrices; ++i) {
            const std::byte* const own = operands.x[use == XUse::Own ? static_cast<std::size_t>(i % 2) : 0].data();
            matmul(bench.exec(), {.weights = packed_view(static_cast<const std::byte*>(weights.data()) +
                                                             static_cast<std::size_t>(i) * bytes,
                                                         type, sizes.rows, sizes.cols, packed_layout(DeviceKind::Cuda)),
                                  .x = matrix_view(own, DType::F32, n, sizes.cols),
                                  .y = matrix_view(operands.y.data(), DType::F32, n, sizes.rows)});
        }
    });
    bench.report.add({.bench = use == XUse::Own ? "matmul_own_x" : "matmul",
                      .what = fmt::format("{} [{}, {}]{}", dtype_name(type), sizes.rows, sizes.cols,
                                          use == XUse::Own ? ", own x" : ""),
                      .n = n,
                      .seconds = timing.seconds,
                      .spread = timing.spread,
                      .bytes = static_cast<double>(bytes + float_bytes(n * (sizes.rows + sizes.cols))),
                      .flops = 2.0 * static_cast<double>(n) * static_cast<double>(sizes.rows * sizes.cols),
                      .enqueue_seconds = timing.enqueue_seconds});
}

}  // namespace

void bench_card_matmul(CardBench& bench, const std::vector<DType>& types, const std::vector<std::int64_t>& n_tokens) {
    if (types.empty() || n_tokens.empty()) return;
    bench.report.section(fmt::format("matmul over {} matrices, time of one; n: tokens", bench.sizes.n_matrices));
    const std::int64_t most = *std::max_element(n_tokens.begin(), n_tokens.end());
    const std::int64_t x_floats = most * bench.sizes.cols;
    reserve_workspace(
        bench.device,
        {.n_tokens = most, .max_cols = bench.sizes.cols, .kv = {}, .weights = packed_layout(DeviceKind::Cuda)});
    const Operands operands{
        .x = {make_activations(bench, x_floats), make_activations(bench, x_floats)},
        .y = bench.device.allocate(float_bytes(most * bench.sizes.rows), MemoryTag::Activations, "outputs")};
    for (const DType type : types) {
        if (std::chrono::steady_clock::now() >= bench.deadline) {  // not even the matrices
            bench.left_out += std::ssize(n_tokens);
            continue;
        }
        const Buffer weights = make_matrices(bench, type);
        for (const std::int64_t n : n_tokens) {
            bench_tokens(bench, type, n, weights, operands, XUse::Shared);
            if (std::find(kOwnTokens.begin(), kOwnTokens.end(), n) != kOwnTokens.end())
                bench_tokens(bench, type, n, weights, operands, XUse::Own);
        }
        bench.stream.synchronize();
    }
}

}  // namespace slipstream::tools
