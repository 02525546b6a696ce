// Argument checks of the ops that KV views are made with, and dispatch to the device's backend.
#include "kernels/kv_view.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/checked_math.h"
#include "kernels/op_table.h"

namespace slipstream {

namespace {

void check_shape(const KvLayout& shape) {
    CHECK(shape.n_kv_heads > 0 && shape.head_dim > 0 && shape.head_dim % 2 == 0 && is_kv_type(shape.dtype),
          "kv shape {} heads of {} in {}", shape.n_kv_heads, shape.head_dim, kv_type_name(shape.dtype));
}

}  // namespace

void kv_score(ExecRef exec, const KvScoreArgs& args) {
    check_shape(args.shape);
    CHECK(args.n_q_heads > 0 && args.n_q_heads % args.shape.n_kv_heads == 0 && args.q.dtype == DType::F32 &&
              args.q.rows() == 1 && args.q.cols() == args.n_q_heads * args.shape.head_dim,
          "kv_score of [{}, {}], {} heads over {} of {}", args.q.rows(), args.q.cols(), args.n_q_heads,
          args.shape.n_kv_heads, args.shape.head_dim);
    CHECK(args.softcap >= 0.0F && std::isfinite(args.softcap), "kv_score with a softcap of {}", args.softcap);
    CHECK(args.first_chunk >= 0 && args.first_chunk <= args.end_chunk, "chunks [{}, {}) of kv_score", args.first_chunk,
          args.end_chunk);
    if (args.first_chunk == args.end_chunk) return;
    CHECK(args.n_committed > (args.end_chunk - 1) * kChunkTokens, "kv_score of chunks [{}, {}) with {} slots committed",
          args.first_chunk, args.end_chunk, args.n_committed);
    const std::int64_t n_groups = ceil_div(std::min(args.n_committed, args.end_chunk * kChunkTokens), kGroupTokens);
    CHECK(args.out != nullptr && args.n_groups >= n_groups, "kv_score of {} groups into rows of {}", n_groups,
          args.n_groups);
    for (std::int64_t chunk = args.first_chunk; chunk < args.end_chunk; ++chunk)
        CHECK(args.chunks != nullptr && args.chunks[chunk] != nullptr, "chunk {} of [{}, {}) is missing", chunk,
              args.first_chunk, args.end_chunk);
    exec.device.ops().kv_score(exec, args);
}

void kv_gather(ExecRef exec, const KvGatherArgs& args) {
    check_shape(args.shape);
    CHECK(args.n_moves >= 0 &&
              (args.n_moves == 0 || (args.moves != nullptr && args.from != nullptr && args.to != nullptr)),
          "kv_gather of {} groups", args.n_moves);
    if (args.n_moves == 0) return;
    for (std::int64_t i = 0; i < args.n_moves; ++i) {
        const GroupMove& move = args.moves[i];
        CHECK(move.head >= 0 && move.head < args.shape.n_kv_heads && move.from >= 0 && move.to >= 0 &&
                  args.from[move.from / kChunkGroups] != nullptr && args.to[move.to / kChunkGroups] != nullptr,
              "move {} of group {} to {}, head {} of {}", i, move.from, move.to, move.head, args.shape.n_kv_heads);
    }
    exec.device.ops().kv_gather(exec, args);
}

}  // namespace slipstream
