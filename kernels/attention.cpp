// Argument checks of the KV ops, and dispatch to the device's backend.
#include "kernels/attention.h"

#include "kernels/base/checked_math.h"
#include "kernels/op_table.h"

namespace slipstream {

namespace {

void check_shape(const KvShape& shape) {
    CHECK(shape.n_kv_heads > 0 && shape.head_dim > 0 && shape.head_dim % 2 == 0 && !is_quantized(shape.dtype),
          "kv shape {} heads of {} in {}", shape.n_kv_heads, shape.head_dim, dtype_name(shape.dtype));
}

}  // namespace

void kv_write(ExecRef exec, const KvWriteArgs& args) {
    check_shape(args.shape);
    const std::int64_t n = args.k.rows();
    const std::int64_t cols = args.shape.n_kv_heads * args.shape.head_dim;
    CHECK(args.k.dtype == DType::F32 && args.v.dtype == DType::F32 && args.v.rows() == n && args.k.cols() == cols &&
              args.v.cols() == cols && args.scratch_k != nullptr && args.scratch_v != nullptr &&
              (n == 0 || args.scratch_rows != nullptr),
          "kv_write [{}, {}] and [{}, {}]", n, args.k.cols(), args.v.rows(), args.v.cols());
    for (std::int64_t t = 0; t < n; ++t) CHECK(args.scratch_rows[t] >= 0);
    exec.device.ops().kv_write(exec, args);
}

void kv_commit(ExecRef exec, const KvCommitArgs& args) {
    check_shape(args.shape);
    CHECK(args.n_rows >= 0 && args.first_position >= 0 &&
              (args.n_rows == 0 || (args.scratch_k != nullptr && args.scratch_v != nullptr &&
                                    args.scratch_rows != nullptr && args.chunks != nullptr)),
          "kv_commit of {} rows at {}", args.n_rows, args.first_position);
    exec.device.ops().kv_commit(exec, args);
}

void attention(ExecRef exec, const AttentionArgs& args) {
    check_shape(args.shape);
    const std::int64_t n = args.q.rows();
    const std::int64_t cols = args.n_q_heads * args.shape.head_dim;
    CHECK(args.n_q_heads > 0 && args.n_q_heads % args.shape.n_kv_heads == 0 && args.q.dtype == DType::F32 &&
              args.out.dtype == DType::F32 && args.q.cols() == cols && args.out.rows() == n &&
              args.out.cols() == cols && args.n_committed >= 0 && args.window >= 0 &&
              (args.n_committed == 0 || args.chunks != nullptr),
          "attention of {} tokens, {} heads over {} positions", n, args.n_q_heads, args.n_committed);
    if (n == 0) return;
    CHECK(args.positions != nullptr && args.path_begin != nullptr && args.path_rows != nullptr &&
          args.scratch_k != nullptr && args.scratch_v != nullptr);
    for (std::int64_t t = 0; t < n; ++t)
        CHECK(args.positions[t] >= args.n_committed, "position {} of token {} lies before {}", args.positions[t], t,
              args.n_committed);
    exec.device.ops().attention(exec, args);
}

}  // namespace slipstream
