#include "kernels/cuda/attention/attention_planner.h"

#include <algorithm>
#include <cstring>

namespace slipstream::cuda {

namespace {

bool same_array(const std::vector<std::int32_t>& known, const std::int32_t* array, std::int64_t n) {
    return std::ssize(known) == n &&
           (n == 0 || std::memcmp(known.data(), array, known.size() * sizeof(std::int32_t)) == 0);
}

}  // namespace

bool AttentionPlanner::same(const Known& known, const AttentionArgs& args) {
    return known.n_q_heads == args.n_q_heads && known.shape.n_kv_heads == args.shape.n_kv_heads &&
           known.shape.head_dim == args.shape.head_dim && known.shape.dtype == args.shape.dtype &&
           known.n_committed == args.n_committed && known.window == args.window && known.softcap == args.softcap &&
           known.first_chunk == args.first_chunk && known.end_chunk == args.end_chunk;
}

const AttentionPlanner::Arrays& AttentionPlanner::arrays_of(const AttentionArgs& args, std::int64_t n_rows) {
    const std::int64_t n = args.q.rows();
    const std::uint64_t now = n_made_ + n_found_ + 1;
    for (Arrays& arrays : arrays_)
        if (arrays.id != 0 && same_array(arrays.positions, args.positions, n) &&
            same_array(arrays.path_begin, args.path_begin, n) && same_array(arrays.path_rows, args.path_rows, n_rows)) {
            arrays.used = now;
            return arrays;
        }
    Arrays& oldest = *std::ranges::min_element(arrays_, {}, &Arrays::used);
    const auto most = static_cast<std::size_t>(most_tokens_);
    oldest.positions.reserve(most);
    oldest.path_begin.reserve(most);
    oldest.path_rows.reserve(most * (most + 1) / 2);
    oldest.positions.assign(args.positions, args.positions + n);
    oldest.path_begin.assign(args.path_begin, args.path_begin + n);
    oldest.path_rows.assign(args.path_rows, args.path_rows + n_rows);
    oldest.id = ++n_arrays_;
    oldest.used = now;
    return oldest;
}

// Reserves memory for any call of as many tokens as the largest so far. That is mostly address space, since few calls
// are that large.
void AttentionPlanner::make_room(Known& known, const AttentionArgs& args) const {
    const auto n = static_cast<std::size_t>(most_tokens_);
    const GatherBounds bounds = gather_bounds(most_tokens_);
    known.plan.tiles.reserve(n * static_cast<std::size_t>(args.n_q_heads / args.shape.n_kv_heads) / kWarpRows + 1);
    known.plan.gathers.reserve(static_cast<std::size_t>(bounds.gathers));
    known.plan.rows.reserve(static_cast<std::size_t>(bounds.rows));
}

const AttentionPlan& AttentionPlanner::plan(const AttentionArgs& args, const AttentionCard& card) {
    most_tokens_ = std::max(most_tokens_, args.q.rows());
    const std::uint64_t arrays = arrays_of(args, n_path_rows(args)).id;
    const std::uint64_t now = n_made_ + n_found_ + 1;
    for (Known& known : known_) {
        if (known.arrays != arrays || !same(known, args)) continue;
        known.used = now;
        ++n_found_;
        return known.plan;
    }
    Known& oldest = *std::ranges::min_element(known_, {}, &Known::used);
    oldest.arrays = 0;
    make_room(oldest, args);
    plan_attention(args, card, 0, oldest.plan);
    oldest.arrays = arrays;
    oldest.n_q_heads = args.n_q_heads;
    oldest.shape = args.shape;
    oldest.n_committed = args.n_committed;
    oldest.window = args.window;
    oldest.softcap = args.softcap;
    oldest.first_chunk = args.first_chunk;
    oldest.end_chunk = args.end_chunk;
    oldest.used = now;
    ++n_made_;
    return oldest.plan;
}

}  // namespace slipstream::cuda
