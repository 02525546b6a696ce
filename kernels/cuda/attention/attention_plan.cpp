// Divides a call of attention: tiles, runs of tokens that share a gathered step, and the choice between tiles that fold
// all their KV chunks and a thread block per KV chunk.
#include "kernels/cuda/attention/attention_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numbers>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream::cuda {

namespace {

// Least bytes of the states of a wave for each multiprocessor, so that there are enough thread blocks to fill the GPU
// (estimated, not measured). If half of the L2 cache is more, the states take that, so that the join finds them there;
// and at least those of one KV chunk.
constexpr std::size_t kLeastWaveBytesEach = std::size_t{64} << 10;
// Most KV chunks in a wave: CUDA's limit of the second and third dimension of a grid.
constexpr std::int32_t kMostWaveChunks = 65535;
// Most KV chunks of a call that is folded on any GPU: the parallel way needs a second kernel, the join, which is not
// worth it for one KV chunk.
constexpr std::int64_t kFewChunks = 1;
// Highest position that fits 32-bit arithmetic with a KV chunk of reserve.
constexpr std::int64_t kMostPositions = std::numeric_limits<std::int32_t>::max() - kChunkTokens;

std::int64_t stride_floats(std::size_t stride_bytes) {
    return static_cast<std::int64_t>(stride_bytes / sizeof(float));
}

std::size_t state_bytes(std::int64_t n_queries, std::int64_t head_dim) {
    return static_cast<std::size_t>(n_queries * (head_dim + 2)) * sizeof(float);
}

std::size_t wave_bytes(const AttentionCard& card) {
    return std::max(kLeastWaveBytesEach * static_cast<std::size_t>(card.n_multiprocessors), card.l2_bytes / 2);
}

// Whether folding thread blocks fill the GPU: from three quarters of its multiprocessors on. Then fewer tokens are
// computed in parallel, but no states go through memory (512 tokens with 16 query heads are 128 thread blocks, and 132
// multiprocessors are no reason for 512 waves).
bool fills(std::int64_t n_blocks, const AttentionCard& card) {
    return 4 * n_blocks >= std::int64_t{3} * card.n_multiprocessors;
}

std::int64_t lowest_visible(const AttentionArgs& args, std::int64_t token) {
    return args.window == 0 ? 0 : std::max<std::int64_t>(0, args.positions[token] - args.window + 1);
}

// Appends the gathers of one tile (steps of 64 slots that are put together by position) to the plan.
class Gatherer {
public:
    Gatherer(const AttentionArgs& args, AttentionPlan& plan, std::int64_t first_query, std::int64_t n_rows)
        : args_(args),
          plan_(plan),
          group_(args.n_q_heads / args.shape.n_kv_heads),
          first_query_(first_query),
          n_rows_(n_rows) {}

    void cut_step(std::int64_t step) {
        base_ = step * kStepTokens;
        run_token_ = kNone;
        const std::int64_t end_token = (first_query_ + n_rows_ - 1) / group_ + 1;
        for (std::int64_t token = first_query_ / group_; token < end_token; ++token) {
            if (args_.positions[token] < base_ || lowest_visible(args_, token) >= base_ + kStepTokens) continue;
            if (run_token_ != kNone && !same_rows(run_token_, token)) end_run();
            if (run_token_ == kNone) {
                run_token_ = token;
                first_row_ = std::max<std::int64_t>(0, token * group_ - first_query_);
            } else if (args_.positions[token] > args_.positions[run_token_]) {
                run_token_ = token;
            }
            end_row_ = std::min(n_rows_, (token + 1) * group_ - first_query_);
        }
        if (run_token_ != kNone) end_run();
    }

private:
    static constexpr std::int64_t kNone = -1;

    [[nodiscard]] std::int64_t first_scratch() const { return std::max(base_, args_.n_committed); }
    [[nodiscard]] std::int64_t end_position(std::int64_t token) const {
        return std::min<std::int64_t>(base_ + kStepTokens, std::int64_t{args_.positions[token]} + 1);
    }
    [[nodiscard]] const std::int32_t* scratch_rows(std::int64_t token) const {
        return args_.path_rows + args_.path_begin[token] + (first_scratch() - args_.n_committed);
    }
    // Whether tokens a and b read the same scratch rows at every position of this step that both of their paths have.
    [[nodiscard]] bool same_rows(std::int64_t a, std::int64_t b) const {
        const std::int64_t n = std::min(end_position(a), end_position(b)) - first_scratch();
        if (n <= 0 || args_.path_begin[a] == args_.path_begin[b]) return true;
        return std::memcmp(scratch_rows(a), scratch_rows(b), static_cast<std::size_t>(n) * sizeof(std::int32_t)) == 0;
    }
    void end_run() {
        const std::int64_t n = std::max<std::int64_t>(0, end_position(run_token_) - first_scratch());
        const auto at = static_cast<std::int64_t>(plan_.rows.size());
        plan_.gathers.push_back({.step = static_cast<std::int32_t>(base_ / kStepTokens),
                                 .first_row = static_cast<std::int32_t>(first_row_),
                                 .end_row = static_cast<std::int32_t>(end_row_),
                                 .end_slot = static_cast<std::int32_t>(end_position(run_token_) - base_),
                                 .rows_at = static_cast<std::int32_t>(at - (first_scratch() - base_))});
        plan_.rows.insert(plan_.rows.end(), scratch_rows(run_token_), scratch_rows(run_token_) + n);
        run_token_ = kNone;
    }

    const AttentionArgs& args_;
    AttentionPlan& plan_;
    std::int64_t group_;
    std::int64_t first_query_;
    std::int64_t n_rows_;
    std::int64_t base_ = 0;
    std::int64_t run_token_ = kNone;  // token with the longest path of the run in this step
    std::int64_t first_row_ = 0;
    std::int64_t end_row_ = 0;
};

}  // namespace

void cut_tiles(const AttentionArgs& args, std::int32_t tile_rows, AttentionPlan& plan) {
    constexpr std::int64_t steps_a_chunk = kChunkTokens / kStepTokens;
    const std::int64_t group = args.n_q_heads / args.shape.n_kv_heads;
    const std::int64_t n_queries = args.q.rows() * group;
    const std::int64_t first_of_call = plan.first_chunk * steps_a_chunk;
    const std::int64_t end_of_call = plan.end_chunk * steps_a_chunk;
    const std::int64_t committed_steps = args.n_committed / kStepTokens;
    for (std::int64_t query = 0; query < n_queries; query += tile_rows) {
        const std::int64_t n_rows = std::min<std::int64_t>(tile_rows, n_queries - query);
        std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
        std::int64_t highest = 0;
        for (std::int64_t token = query / group; token <= (query + n_rows - 1) / group; ++token) {
            lowest = std::min(lowest, lowest_visible(args, token));
            highest = std::max<std::int64_t>(highest, args.positions[token]);
        }
        const std::int64_t first = std::max(first_of_call, lowest / kStepTokens);
        const std::int64_t end = std::min(end_of_call, highest / kStepTokens + 1);
        AttentionTile tile{.first_query = static_cast<std::int32_t>(query),
                           .n_rows = static_cast<std::int32_t>(n_rows),
                           .first_step = static_cast<std::int32_t>(first),
                           .end_step = static_cast<std::int32_t>(std::max(first, std::min(end, committed_steps))),
                           .first_gather = static_cast<std::int32_t>(plan.gathers.size())};
        Gatherer gatherer(args, plan, query, n_rows);
        for (std::int64_t step = std::max(first, committed_steps); step < end; ++step) gatherer.cut_step(step);
        tile.end_gather = static_cast<std::int32_t>(plan.gathers.size());
        plan.tiles.push_back(tile);
    }
}

AttentionPlan plan_attention(const AttentionArgs& args, const AttentionCard& card) {
    AttentionPlan plan;
    plan_attention(args, card, 0, plan);
    return plan;
}

void plan_attention(const AttentionArgs& args, const AttentionCard& card, std::int64_t least_chunks,
                    AttentionPlan& plan) {
    std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
    std::int64_t highest = 0;
    for (std::int64_t t = 0; t < args.q.rows(); ++t) {
        lowest = std::min(lowest, lowest_visible(args, t));
        highest = std::max<std::int64_t>(highest, args.positions[t]);
    }
    plan.tiles.clear();
    plan.gathers.clear();
    plan.rows.clear();
    const std::int64_t first = std::max(args.first_chunk, lowest / kChunkTokens);
    plan.first_chunk = static_cast<std::int32_t>(first);
    plan.end_chunk = static_cast<std::int32_t>(std::max(first, std::min(args.end_chunk, highest / kChunkTokens + 1)));
    plan.launch_chunks = static_cast<std::int32_t>(std::max<std::int64_t>(plan.n_chunks(), least_chunks));

    const auto head_dim = static_cast<std::int32_t>(args.shape.head_dim);
    const bool tiles = attention_on_tensor_cores(kv_type(args.shape.dtype), head_dim, args.softcap);
    const std::int64_t n_queries = args.q.rows() * args.n_q_heads;
    const std::int64_t n_rows = n_queries / args.shape.n_kv_heads;
    const std::int64_t folded_blocks =
        tiles ? ceil_div<std::int64_t>(n_rows, fold_rows(head_dim)) * args.shape.n_kv_heads : n_queries;
    const bool folded = fills(folded_blocks, card) || plan.launch_chunks <= kFewChunks;
    plan.way = AttentionWay::Folded;
    plan.warps_per_tile = kFoldWarps;
    plan.wave_chunks = 0;
    if (!folded || plan.launch_chunks == 0) {
        plan.way = AttentionWay::Parallel;
        cut_waves(args, card, plan);
        plan.warps_per_tile = static_cast<std::int32_t>(
            std::clamp<std::int64_t>(ceil_div<std::int64_t>(n_rows, kWarpRows), 1, kMaxParallelWarps));
    }
    plan.end_table =
        static_cast<std::int32_t>(std::min<std::int64_t>(plan.end_chunk, ceil_div(args.n_committed, kChunkTokens)));
    if (tiles)
        cut_tiles(args, plan.way == AttentionWay::Parallel ? plan.warps_per_tile * kWarpRows : fold_rows(head_dim),
                  plan);
}

void cut_waves(const AttentionArgs& args, const AttentionCard& card, AttentionPlan& plan) {
    const std::size_t states = state_bytes(args.q.rows() * args.n_q_heads, args.shape.head_dim);
    const auto most =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(wave_bytes(card) / states), std::min(1, plan.launch_chunks),
                                 std::min(plan.launch_chunks, kMostWaveChunks));
    // Waves of equal size: a last wave of a few KV chunks would keep a few multiprocessors busy for as long as a full
    // one.
    const std::int64_t n_waves = most == 0 ? 1 : ceil_div<std::int64_t>(plan.launch_chunks, most);
    plan.wave_chunks = static_cast<std::int32_t>(ceil_div<std::int64_t>(plan.launch_chunks, n_waves));
}

std::int64_t n_path_rows(const AttentionArgs& args) {
    std::int64_t end = 0;
    for (std::int64_t t = 0; t < args.q.rows(); ++t)
        end = std::max(end, args.path_begin[t] + (args.positions[t] - args.n_committed) + 1);
    return end;
}

AttentionLaunch attention_launch(const AttentionArgs& args, const AttentionPlan& plan) {
    CHECK(args.n_committed <= kMostPositions && args.q.rows() <= kMostPositions, "attention of {} tokens over {}",
          args.q.rows(), args.n_committed);
    const bool fresh = args.part == AttentionPart::Whole || args.part == AttentionPart::First;
    const bool to_out = args.part == AttentionPart::Whole || args.part == AttentionPart::Last;
    return {.type = kv_type(args.shape.dtype),
            .way = plan.way,
            .n_tokens = static_cast<std::int32_t>(args.q.rows()),
            .n_q_heads = static_cast<std::int32_t>(args.n_q_heads),
            .n_kv_heads = static_cast<std::int32_t>(args.shape.n_kv_heads),
            .head_dim = static_cast<std::int32_t>(args.shape.head_dim),
            .q = float_row(args.q, 0),
            .q_stride = stride_floats(args.q.row_stride_bytes),
            .out = to_out ? float_row(args.out, 0) : nullptr,
            .out_stride = to_out ? stride_floats(args.out.row_stride_bytes) : 0,
            .scale_log2 = static_cast<float>(double{args.scale} * std::numbers::log2e *
                                             (args.softcap == 0.0F ? 1.0 : 2.0 / double{args.softcap})),
            .window = static_cast<std::int32_t>(std::min(args.window, kMostPositions)),
            .positions = args.positions,
            .n_committed = static_cast<std::int32_t>(args.n_committed),
            .first_chunk = plan.first_chunk,
            .end_chunk = plan.first_chunk + plan.launch_chunks,
            .chunks = plan.n_table() == 0 ? nullptr : args.chunks + plan.first_chunk,
            .table_first = plan.first_chunk,
            .scratch_k = args.scratch_k,
            .scratch_v = args.scratch_v,
            .tiles = plan.tiles.data(),
            .n_tiles = static_cast<std::int32_t>(plan.tiles.size()),
            .warps_per_tile = plan.warps_per_tile,
            .gathers = plan.gathers.data(),
            .rows = plan.rows.data(),
            .path_begin = args.path_begin,
            .path_rows = args.path_rows,
            .start = fresh ? nullptr : args.state,
            .state = args.state,
            .softcap_log2 = static_cast<float>(double{args.softcap} * std::numbers::log2e),
            .sinks = args.sinks.empty() ? nullptr : float_row(args.sinks, 0)};
}

std::size_t attention_scratch_floats(const AttentionPlan& plan, const AttentionArgs& args) {
    if (plan.way == AttentionWay::Folded) return 0;
    const std::size_t state = static_cast<std::size_t>(args.q.rows() * args.n_q_heads * (args.shape.head_dim + 2));
    return state * (static_cast<std::size_t>(plan.wave_chunks) + (plan.n_waves() > 1 ? 1 : 0));
}

void place_scratch(const AttentionPlan& plan, float* floats, AttentionLaunch& launch) {
    if (plan.way == AttentionWay::Folded) return;
    const std::int64_t n_queries = launch.n_queries();
    launch.wave_chunks = plan.wave_chunks;
    launch.wave_o = floats;
    launch.wave_m = launch.wave_o + plan.wave_chunks * n_queries * launch.head_dim;
    launch.wave_l = launch.wave_m + plan.wave_chunks * n_queries;
    launch.running = launch.wave_l + plan.wave_chunks * n_queries;
}

// A wave holds at least one KV chunk's states, else no more than wave_bytes(). If queries fill the GPU with thread
// blocks that fold, there are no waves.
std::size_t attention_scratch_bytes(const KvLayout& shape, std::int64_t n_q_heads, std::int64_t n_tokens,
                                    const AttentionCard& card) {
    const std::int64_t most_queries =
        std::min<std::int64_t>(n_tokens * n_q_heads, std::int64_t{card.n_multiprocessors} *
                                                         fold_rows(static_cast<std::int32_t>(shape.head_dim)));
    const std::size_t state = state_bytes(most_queries, shape.head_dim);
    return std::max(wave_bytes(card), state) + state;
}

KvType kv_type(DType type) {
    switch (type) {
        case DType::F32:
            return KvType::F32;
        case DType::F16:
            return KvType::F16;
        case DType::Q8_0:
            return KvType::Q8;
        default:
            CHECK(type == DType::BF16, "keys and values in {}", dtype_name(type));
            return KvType::BF16;
    }
}

}  // namespace slipstream::cuda
