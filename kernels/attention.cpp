// Argument checks of the KV ops, and dispatch to the device's backend.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/op_table.h"

namespace slipstream {

namespace {

void check_shape(const KvLayout& shape) {
    CHECK(shape.n_kv_heads > 0 && shape.head_dim > 0 && shape.head_dim % 2 == 0 && is_kv_type(shape.dtype),
          "kv shape {} heads of {} in {}", shape.n_kv_heads, shape.head_dim, kv_type_name(shape.dtype));
}

// Checks the arguments of a part of the fold, and that no KV chunk is missing that a token sees.
void check_part(const AttentionArgs& args) {
    CHECK(args.first_chunk >= 0 && args.first_chunk <= args.end_chunk, "chunks [{}, {}) of attention", args.first_chunk,
          args.end_chunk);
    CHECK(args.part == AttentionPart::Whole ||
              (args.state != nullptr && reinterpret_cast<std::uintptr_t>(args.state) % alignof(float) == 0),
          "part {} of a fold without a state", static_cast<int>(args.part));
    std::int64_t lowest_chunk = kAllChunks;
    for (std::int64_t t = 0; t < args.q.rows(); ++t) {
        const std::int64_t position = args.positions[t];
        CHECK(position >= args.n_committed, "position {} of token {} is before {}", position, t, args.n_committed);
        const std::int64_t lowest =
            args.window == 0 ? 0 : std::max<std::int64_t>(0, position - args.window + 1) / kChunkTokens;
        lowest_chunk = std::min(lowest_chunk, lowest);
        CHECK(args.part != AttentionPart::Whole ||
                  (args.first_chunk <= position / kChunkTokens && args.end_chunk > lowest),
              "token {} at {} sees nothing of chunks [{}, {})", t, position, args.first_chunk, args.end_chunk);
    }
    const std::int64_t end = std::min(args.end_chunk, ceil_div(args.n_committed, kChunkTokens));
    for (std::int64_t chunk = std::max(args.first_chunk, lowest_chunk); chunk < end; ++chunk)
        CHECK(args.chunks != nullptr && args.chunks[chunk] != nullptr, "chunk {} of [{}, {}) is missing", chunk,
              args.first_chunk, args.end_chunk);
}

void check_write(const KvWriteArgs& args) {
    check_shape(args.shape);
    const std::int64_t n = args.k.rows();
    const std::int64_t cols = args.shape.n_kv_heads * args.shape.head_dim;
    CHECK(args.k.dtype == DType::F32 && args.v.dtype == DType::F32 && args.v.rows() == n && args.k.cols() == cols &&
              args.v.cols() == cols && args.scratch_k != nullptr && args.scratch_v != nullptr &&
              (n == 0 || args.scratch_rows != nullptr),
          "kv_write [{}, {}] and [{}, {}]", n, args.k.cols(), args.v.rows(), args.v.cols());
    for (std::int64_t t = 0; t < n; ++t) CHECK(args.scratch_rows[t] >= 0);
}

// Whether the rows of `view` follow one another without padding, so that each (token, head) can be treated as a row.
bool heads_are_rows(const TensorView& x) {
    return x.rows() <= 1 || x.row_stride_bytes == row_bytes(DType::F32, x.cols());
}

void check_head_norms(const RotateWriteArgs& args) {
    const auto of_head = [&](const ConstTensorView& weight) {
        return weight.empty() || (weight.dtype == DType::F32 && weight.cols() == args.shape.head_dim);
    };
    CHECK(args.q_norm.empty() == args.k_norm.empty() && of_head(args.q_norm) && of_head(args.k_norm) &&
              (args.q_norm.empty() || (heads_are_rows(args.q) && heads_are_rows(args.k))),
          "rotate_write with norms of {} and {} for heads of {}", args.q_norm.cols(), args.k_norm.cols(),
          args.shape.head_dim);
}

void norm_heads(ExecRef exec, const TensorView& x, const ConstTensorView& weight, float eps) {
    const TensorView heads =
        matrix_view(reinterpret_cast<float*>(x.data), x.rows() * x.cols() / weight.cols(), weight.cols());
    rms_norm(exec, {.x = heads, .weight = weight, .y = heads, .eps = eps});
}

}  // namespace

void kv_write(ExecRef exec, const KvWriteArgs& args) {
    check_write(args);
    exec.device.ops().kv_write(exec, args);
}

void rotate_write(ExecRef exec, const RotateWriteArgs& args) {
    const std::int64_t n = args.q.rows();
    const std::int64_t d = args.shape.head_dim;
    const KvWriteArgs write{.shape = args.shape,
                            .k = args.k,
                            .v = args.v,
                            .scratch_k = args.scratch_k,
                            .scratch_v = args.scratch_v,
                            .scratch_rows = args.scratch_rows};
    check_write(write);
    check_head_norms(args);
    CHECK(args.q.dtype == DType::F32 && args.q.cols() % d == 0 && args.k.rows() == n &&
              args.cos_sin.dtype == DType::F32 && args.cos_sin.cols() % 2 == 0 && args.cos_sin.cols() <= d &&
              args.cos_sin.rows() == n,
          "rotate_write of [{}, {}] and [{}, {}] by [{}, {}]", n, args.q.cols(), args.k.rows(), args.k.cols(),
          args.cos_sin.rows(), args.cos_sin.cols());
    const ConstTensorView& of_q = args.q_cos_sin.empty() ? args.cos_sin : args.q_cos_sin;
    CHECK(of_q.dtype == DType::F32 && of_q.rows() == n && of_q.cols() == args.cos_sin.cols(),
          "rotate_write of queries by [{}, {}], of keys by [{}, {}]", of_q.rows(), of_q.cols(), args.cos_sin.rows(),
          args.cos_sin.cols());
    if (const OpTable& ops = exec.device.ops(); ops.rotate_write != nullptr) return ops.rotate_write(exec, args);
    if (!args.q_norm.empty()) {
        norm_heads(exec, args.q, args.q_norm, args.eps);
        norm_heads(exec, args.k, args.k_norm, args.eps);
    }
    rope(exec, {.x = args.q, .cos_sin = of_q, .head_dim = d, .layout = args.layout});
    rope(exec, {.x = args.k, .cos_sin = args.cos_sin, .head_dim = d, .layout = args.layout});
    exec.device.ops().kv_write(exec, write);
}

void kv_commit(ExecRef exec, const KvCommitArgs& args) {
    check_shape(args.shape);
    CHECK(args.n_rows >= 0 && args.first_position >= 0 &&
              (args.n_rows == 0 || (args.scratch_k != nullptr && args.scratch_v != nullptr &&
                                    args.scratch_rows != nullptr && args.chunks != nullptr)),
          "kv_commit of {} rows at {}", args.n_rows, args.first_position);
    CHECK(args.n_layers >= 0 && (args.n_layers <= 1 || (args.layer_bytes > 0 && args.layer_chunks > 0)),
          "kv_commit in {} layers", args.n_layers);
    exec.device.ops().kv_commit(exec, args);
}

void attention(ExecRef exec, const AttentionArgs& args) {
    check_shape(args.shape);
    const std::int64_t n = args.q.rows();
    const std::int64_t cols = args.n_q_heads * args.shape.head_dim;
    CHECK(args.n_q_heads > 0 && args.n_q_heads % args.shape.n_kv_heads == 0 && args.q.dtype == DType::F32 &&
              args.q.cols() == cols && args.n_committed >= 0 && args.window >= 0,
          "attention of {} tokens, {} heads over {} positions", n, args.n_q_heads, args.n_committed);
    CHECK(args.softcap >= 0.0F && std::isfinite(args.softcap), "attention with a softcap of {}", args.softcap);
    CHECK(args.sinks.empty() ||
              (args.sinks.dtype == DType::F32 && args.sinks.rows() == 1 && args.sinks.cols() == args.n_q_heads),
          "attention of {} heads with {} sinks", args.n_q_heads, args.sinks.cols());
    const bool to_the_end = args.part == AttentionPart::Whole || args.part == AttentionPart::Last;
    CHECK(!to_the_end || (args.out.dtype == DType::F32 && args.out.rows() == n && args.out.cols() == cols),
          "attention of [{}, {}] into [{}, {}]", n, cols, args.out.rows(), args.out.cols());
    if (n == 0) return;
    CHECK(args.positions != nullptr && args.path_begin != nullptr && args.path_rows != nullptr &&
          args.scratch_k != nullptr && args.scratch_v != nullptr);
    check_part(args);
    exec.device.ops().attention(exec, args);
}

std::string_view kv_type_name(DType type) {
    return type == DType::Q8_0 ? "Q8" : dtype_name(type);
}

std::size_t attention_state_floats(std::int64_t n_tokens, std::int64_t n_q_heads, std::int64_t head_dim) {
    CHECK(n_tokens >= 0 && n_q_heads >= 0 && head_dim >= 0, "state of {} tokens, {} heads of {}", n_tokens, n_q_heads,
          head_dim);
    return static_cast<std::size_t>(n_tokens * n_q_heads * (head_dim + 2));
}

}  // namespace slipstream
