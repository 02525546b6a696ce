// Rows of the KV cache on a CUDA device: writes them to scratch, and commits them.
#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/kv_launch.h"
#include "kernels/cuda/op_table.h"
#include "kernels/move_rows.h"

namespace slipstream::cuda {

namespace {

// Most rows, or planes, of one launch: CUDA's limit of a dimension of the grid.
constexpr std::int64_t kMostRows = 65535;

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

// Returns the launch that writes rows [first, first + n) to scratch. Args: KvWriteArgs or RotateWriteArgs.
template <typename Args>
KvWriteLaunch write_launch(Op& op, const Args& args, std::int64_t first, std::int64_t n) {
    return {.type = kv_type(args.shape.dtype),
            .n_tokens = static_cast<std::int32_t>(n),
            .row_elements = static_cast<std::int32_t>(args.k.cols()),
            .head_dim = static_cast<std::int32_t>(args.shape.head_dim),
            .k = float_row(args.k, first),
            .k_stride = stride_floats(args.k),
            .v = float_row(args.v, first),
            .v_stride = stride_floats(args.v),
            .scratch_k = args.scratch_k,
            .scratch_v = args.scratch_v,
            .scratch_rows = op.stage_rows(args.scratch_rows + first, n)};
}

}  // namespace

void kv_write(ExecRef exec, const KvWriteArgs& args) {
    Op op(exec);
    for (std::int64_t first = 0; first < args.k.rows(); first += kMostRows) {
        const std::int64_t n = std::min(kMostRows, args.k.rows() - first);
        const KvWriteLaunch launch = write_launch(op, args, first, n);
        op.launch(&Module::kv_write, launch, [&] {
            return fmt::format("kv_write of {} rows of {} {}", n, args.k.cols(), kv_type_name(args.shape.dtype));
        });
    }
}

void rotate_write(ExecRef exec, const RotateWriteArgs& args) {
    Op op(exec);
    const ConstTensorView& of_q = args.q_cos_sin.empty() ? args.cos_sin : args.q_cos_sin;
    for (std::int64_t first = 0; first < args.k.rows(); first += kMostRows) {
        const std::int64_t n = std::min(kMostRows, args.k.rows() - first);
        const RotateWriteLaunch launch{
            .write = write_launch(op, args, first, n),
            .n_q_heads = static_cast<std::int32_t>(args.q.cols() / args.shape.head_dim),
            .n_rotated = static_cast<std::int32_t>(args.cos_sin.cols()),
            .pairs = args.layout == RopeLayout::Half ? RopePairs::Half : RopePairs::Interleaved,
            .q = float_row(args.q, first),
            .q_stride = stride_floats(args.q),
            .cos_sin = float_row(args.cos_sin, first),
            .cos_sin_stride = stride_floats(args.cos_sin),
            .q_cos_sin = float_row(of_q, first),
            .q_cos_sin_stride = stride_floats(of_q),
            .q_norm = args.q_norm.empty() ? nullptr : float_row(args.q_norm, 0),
            .k_norm = args.k_norm.empty() ? nullptr : float_row(args.k_norm, 0),
            .eps = args.eps};
        op.launch(&Module::rotate_write, launch, [&] {
            return fmt::format("rotate_write of {} rows of {} and {} {}", n, args.q.cols(), args.k.cols(),
                               kv_type_name(args.shape.dtype));
        });
    }
}

// Copies scratch rows to KV chunks. The tables of KV chunks of several layers are staged as one array; a launch has as
// many layers as it has room for.
void kv_commit(ExecRef exec, const KvCommitArgs& args) {
    Op op(exec);
    // Most KV chunks of one launch, of all its layers together: the size of `table`.
    constexpr std::int64_t kMostChunks = 512;
    constexpr std::int64_t kRows = std::min(kMostRows, kMostChunks / 2 * kChunkTokens);
    std::array<std::byte*, kMostChunks> table;
    for (std::int64_t first = 0; first < args.n_rows; first += kRows) {
        const std::int64_t n = std::min(kRows, args.n_rows - first);
        const std::int64_t position = args.first_position + first;
        const std::int64_t first_chunk = position / kChunkTokens;
        const std::int64_t n_chunks = (position + n - 1) / kChunkTokens + 1 - first_chunk;
        const std::int64_t most_layers = kMostChunks / n_chunks;
        for (std::int64_t layer = 0; layer < args.n_layers; layer += most_layers) {
            const std::int64_t n_layers = std::min(most_layers, args.n_layers - layer);
            for (std::int64_t i = 0; i < n_layers; ++i)
                std::copy_n(args.chunks + (layer + i) * args.layer_chunks + first_chunk, n_chunks,
                            table.begin() + i * n_chunks);
            const KvCommitLaunch launch{
                .n_rows = static_cast<std::int32_t>(n),
                .n_kv_heads = static_cast<std::int32_t>(args.shape.n_kv_heads),
                .head_words = static_cast<std::int32_t>(args.shape.head_row_bytes() / 4),
                .scale_words =
                    static_cast<std::int32_t>((args.shape.head_row_bytes() - args.shape.head_code_bytes()) / 4),
                .scratch_k = args.scratch_k + static_cast<std::size_t>(layer) * args.layer_bytes,
                .scratch_v = args.scratch_v + static_cast<std::size_t>(layer) * args.layer_bytes,
                .scratch_rows = op.stage(args.scratch_rows + first, n),
                .first_position = position,
                .chunks = op.stage(table.data(), n_layers * n_chunks),
                .n_chunks = static_cast<std::int32_t>(n_chunks),
                .n_layers = static_cast<std::int32_t>(n_layers),
                .layer_bytes = static_cast<std::int64_t>(args.layer_bytes)};
            op.launch(&Module::kv_commit, launch, [&] {
                return fmt::format("kv_commit of {} rows at {} in {} layers, {} heads of {} {}", n, position, n_layers,
                                   args.shape.n_kv_heads, args.shape.head_dim, kv_type_name(args.shape.dtype));
            });
        }
    }
}

void move_rows(ExecRef exec, const MoveRowsArgs& args) {
    Op op(exec);
    constexpr std::size_t kWord = 4;
    CHECK(args.n_planes <= kMostRows && args.row_bytes / kWord <= std::size_t{1} << 30,
          "move_rows of {} bytes in {} planes", args.row_bytes, args.n_planes);
    for (std::int64_t first = 0; first < args.n_rows; first += kMostRows) {
        const std::int64_t n = std::min(kMostRows, args.n_rows - first);
        const MoveRowsLaunch launch{.n_rows = static_cast<std::int32_t>(n),
                                    .n_planes = static_cast<std::int32_t>(args.n_planes),
                                    .row_words = static_cast<std::int32_t>(args.row_bytes / kWord),
                                    .src = args.src,
                                    .src_plane_words = static_cast<std::int64_t>(args.src_plane_bytes / kWord),
                                    .dst = args.dst,
                                    .dst_plane_words = static_cast<std::int64_t>(args.dst_plane_bytes / kWord),
                                    .src_rows = op.stage_rows(args.src_rows + first, n),
                                    .dst_rows = op.stage_rows(args.dst_rows + first, n)};
        op.launch(&Module::move_rows, launch, [&] {
            return fmt::format("move_rows of {} rows of {} bytes in {} planes", n, args.row_bytes, args.n_planes);
        });
    }
}

}  // namespace slipstream::cuda
