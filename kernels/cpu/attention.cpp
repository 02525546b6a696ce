// The driver of attention on the CPU: which slots a query sees, where their rows lie, and the fold over chunks.
//
// A unit of work is one kv head and a run of tokens whose query heads share it. For each step of 64 slots the rows come
// straight from the chunk where all of them are committed; otherwise they are gathered by position into a tile, which
// the next token of the unit inherits: only the slots where its path differs are copied again. Queries that see the
// same slots of the same tile are reduced four at a time. Nothing of this touches the arithmetic of a query.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/attention_step.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr std::int64_t kQueriesPerUnit = 64;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Where one thread keeps its unit: tiles of a step, and per query two states (chunk, total) with their sums.
struct Scratch {
    std::byte* k_tile;  // [head_dim][64]
    std::byte* v_tile;  // [64][head_dim]
    QueryState* chunk;  // [n_queries]
    QueryState* total;  // [n_queries]
    float* sums;        // [2 * n_queries][head_dim]

    static std::size_t tile_bytes(const KvShape& shape) {
        return round_up(row_bytes(shape.dtype, kStepTokens * shape.head_dim), std::size_t{64});
    }
    static std::size_t bytes(const KvShape& shape, std::int64_t n_queries) {
        const auto n = static_cast<std::size_t>(n_queries);
        return 2 * tile_bytes(shape) + round_up(2 * n * sizeof(QueryState), std::size_t{64}) +
               2 * n * static_cast<std::size_t>(shape.head_dim) * sizeof(float);
    }
    Scratch(std::byte* memory, const KvShape& shape, std::int64_t n_queries)
        : k_tile(memory),
          v_tile(memory + tile_bytes(shape)),
          chunk(reinterpret_cast<QueryState*>(memory + 2 * tile_bytes(shape))),
          total(chunk + n_queries),
          sums(reinterpret_cast<float*>(
              memory + 2 * tile_bytes(shape) +
              round_up(2 * static_cast<std::size_t>(n_queries) * sizeof(QueryState), std::size_t{64}))) {}
};

class Unit {
public:
    Unit(const AttentionArgs& args, ReduceStep reduce, const Scratch& scratch, std::int64_t head,
         std::int64_t first_token, std::int64_t n_tokens)
        : args_(args),
          reduce_(reduce),
          scratch_(scratch),
          head_(head),
          group_(args.n_q_heads / args.shape.n_kv_heads),
          first_token_(first_token),
          n_tokens_(n_tokens) {}

    void run() {
        const std::int64_t d = args_.shape.head_dim;
        std::int64_t first_chunk = std::numeric_limits<std::int64_t>::max();
        std::int64_t last_chunk = 0;
        for (std::int64_t i = 0; i < n_tokens_; ++i) {
            first_chunk = std::min(first_chunk, lowest_visible(i) / kChunkTokens);
            last_chunk = std::max(last_chunk, position(i) / kChunkTokens);
        }
        for (std::int64_t i = 0; i < n_queries(); ++i) {
            const float* q = float_row(args_.q, first_token_ + i / group_) + (head_ * group_ + i % group_) * d;
            scratch_.total[i] = {q, scratch_.sums + i * d, kMinusInfinity, 0.0F};
            scratch_.chunk[i] = {q, scratch_.sums + (n_queries() + i) * d, kMinusInfinity, 0.0F};
            std::fill_n(scratch_.total[i].o, d, 0.0F);
        }
        for (std::int64_t chunk = first_chunk; chunk <= last_chunk; ++chunk) run_chunk(chunk);
        for (std::int64_t i = 0; i < n_queries(); ++i) {
            float* out = float_row(args_.out, first_token_ + i / group_) + (head_ * group_ + i % group_) * d;
            for (std::int64_t e = 0; e < d; ++e) out[e] = scratch_.total[i].o[e] / scratch_.total[i].l;
        }
    }

private:
    [[nodiscard]] std::int64_t n_queries() const { return n_tokens_ * group_; }
    [[nodiscard]] std::int64_t position(std::int64_t i) const { return args_.positions[first_token_ + i]; }
    [[nodiscard]] std::int64_t lowest_visible(std::int64_t i) const {
        return args_.window == 0 ? 0 : std::max<std::int64_t>(0, position(i) - args_.window + 1);
    }

    void run_chunk(std::int64_t chunk) {
        const std::int64_t d = args_.shape.head_dim;
        for (std::int64_t i = 0; i < n_queries(); ++i) {
            QueryState& state = scratch_.chunk[i];
            state.m = kMinusInfinity;
            state.l = 0.0F;
            std::fill_n(state.o, d, 0.0F);
        }
        for (std::int64_t step = 0; step < kStepsPerChunk; ++step) run_step(chunk, step);
        for (std::int64_t i = 0; i < n_queries(); ++i)
            if (scratch_.chunk[i].m != kMinusInfinity) fold(scratch_.total[i], scratch_.chunk[i], d);
    }

    // total <- total and chunk, both weighed against the larger maximum.
    static void fold(QueryState& total, const QueryState& chunk, std::int64_t d) {
        const float m = std::max(total.m, chunk.m);
        const float keep = exp_float(total.m - m);
        const float take = exp_float(chunk.m - m);
        total.m = m;
        total.l = total.l * keep + chunk.l * take;
        for (std::int64_t e = 0; e < d; ++e) total.o[e] = total.o[e] * keep + chunk.o[e] * take;
    }

    void run_step(std::int64_t chunk, std::int64_t step) {
        const std::int64_t base = chunk * kChunkTokens + step * kStepTokens;
        const bool all_committed = base + kStepTokens <= args_.n_committed;
        AttentionStep view{.k = scratch_.k_tile,
                           .v = scratch_.v_tile,
                           .dtype = args_.shape.dtype,
                           .head_dim = args_.shape.head_dim,
                           .first_slot = 0,
                           .end_slot = 0,
                           .scale = args_.scale};
        if (all_committed) {
            const std::byte* data = args_.chunks[chunk];
            view.k = data + k_step_offset(args_.shape, head_, step);
            view.v = data + v_row_offset(args_.shape, head_, step * kStepTokens);
        }
        bool tile_started = false;
        std::array<QueryState*, kMaxBatch> batch{};
        int n_batch = 0;
        const auto flush = [&] {
            if (n_batch > 0) reduce_(view, batch.data(), n_batch);
            n_batch = 0;
        };
        for (std::int64_t i = 0; i < n_tokens_; ++i) {
            const auto first = static_cast<int>(std::clamp<std::int64_t>(lowest_visible(i) - base, 0, kStepTokens));
            const auto end = static_cast<int>(std::clamp<std::int64_t>(position(i) + 1 - base, 0, kStepTokens));
            if (first >= end) continue;
            if (first != view.first_slot || end != view.end_slot) flush();
            if (!all_committed) {
                if (!tile_started) start_tile(chunk, step);
                tile_started = true;
                follow_path(first_token_ + i, base, end, flush);
            }
            view.first_slot = first;
            view.end_slot = end;
            for (std::int64_t g = 0; g < group_; ++g) {
                batch[static_cast<std::size_t>(n_batch++)] = &scratch_.chunk[i * group_ + g];
                if (n_batch == kMaxBatch) flush();
            }
        }
        flush();
    }

    // The committed slots of a step that is not wholly committed; the others are empty until a path fills them.
    void start_tile(std::int64_t chunk, std::int64_t step) {
        const KvShape& shape = args_.shape;
        const std::int64_t base = chunk * kChunkTokens + step * kStepTokens;
        const std::size_t tile = row_bytes(shape.dtype, kStepTokens * shape.head_dim);
        const std::int64_t n_present = std::max<std::int64_t>(0, args_.n_committed - base);
        if (n_present > 0) {
            const std::byte* data = args_.chunks[chunk];
            std::memcpy(scratch_.k_tile, data + k_step_offset(shape, head_, step), tile);
            std::memcpy(scratch_.v_tile, data + v_row_offset(shape, head_, step * kStepTokens),
                        row_bytes(shape.dtype, n_present * shape.head_dim));
        } else {
            std::memset(scratch_.k_tile, 0, tile);
        }
        tile_rows_.fill(kNoRow);
    }

    // Puts the scratch rows of the token's path into their slots, below `end`. Calls `flush` before the first change.
    template <typename Flush>
    void follow_path(std::int64_t token, std::int64_t base, int end, const Flush& flush) {
        const auto first_slot = static_cast<int>(std::max<std::int64_t>(0, args_.n_committed - base));
        const std::int32_t* path = args_.path_rows + args_.path_begin[token] + (base - args_.n_committed);
        for (int slot = first_slot; slot < end; ++slot) {
            const std::int32_t row = path[slot];
            if (tile_rows_[static_cast<std::size_t>(slot)] == row) continue;
            flush();
            tile_rows_[static_cast<std::size_t>(slot)] = row;
            args_.shape.dtype == DType::F32 ? gather_row<std::uint32_t>(row, slot)
                                            : gather_row<std::uint16_t>(row, slot);
        }
    }

    template <typename Element>
    void gather_row(std::int32_t row, int slot) {
        const std::int64_t d = args_.shape.head_dim;
        const std::size_t from =
            static_cast<std::size_t>(row) * args_.shape.scratch_row_bytes() + row_bytes(args_.shape.dtype, head_ * d);
        put_key_column(reinterpret_cast<Element*>(scratch_.k_tile),
                       reinterpret_cast<const Element*>(args_.scratch_k + from), d, slot);
        std::memcpy(reinterpret_cast<Element*>(scratch_.v_tile) + slot * d, args_.scratch_v + from,
                    static_cast<std::size_t>(d) * sizeof(Element));
    }

    static constexpr std::int32_t kNoRow = -1;

    const AttentionArgs& args_;
    ReduceStep reduce_;
    Scratch scratch_;
    std::int64_t head_;
    std::int64_t group_;
    std::int64_t first_token_;
    std::int64_t n_tokens_;
    std::array<std::int32_t, kStepTokens> tile_rows_{};  // scratch row in each slot of the tile
};

void attention(ExecRef exec, const AttentionArgs& args, ReduceStep reduce) {
    auto& device = static_cast<CpuDevice&>(exec.device);
    const std::int64_t group = args.n_q_heads / args.shape.n_kv_heads;
    const std::int64_t tokens_per_unit = std::max<std::int64_t>(1, kQueriesPerUnit / group);
    const std::int64_t n_runs = ceil_div(args.q.rows(), tokens_per_unit);
    const std::int64_t max_queries = tokens_per_unit * group;
    device.reserve_thread_scratch(Scratch::bytes(args.shape, max_queries));
    device.pool().run(args.shape.n_kv_heads * n_runs, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t unit = begin; unit < end; ++unit) {
            const std::int64_t first = unit / args.shape.n_kv_heads * tokens_per_unit;
            const std::int64_t n_tokens = std::min(tokens_per_unit, args.q.rows() - first);
            const Scratch scratch(device.thread_scratch(thread), args.shape, max_queries);
            Unit(args, reduce, scratch, unit % args.shape.n_kv_heads, first, n_tokens).run();
        }
    });
}

}  // namespace

void attention_scalar(ExecRef exec, const AttentionArgs& args) {
    attention(exec, args, reduce_step_scalar);
}
#if defined(__x86_64__)
void attention_avx2(ExecRef exec, const AttentionArgs& args) {
    attention(exec, args, reduce_step_avx2);
}
void attention_avx512(ExecRef exec, const AttentionArgs& args) {
    attention(exec, args, reduce_step_avx512);
}
#endif

}  // namespace slipstream::cpu
