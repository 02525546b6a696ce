// The driver of the ops that fold KV into states: units of work (a kv head and some tokens) and the fold over their KV
// chunks. A chunk of view pages is four pages.
//
// If there are many units, a thread takes whole units and folds each KV chunk as soon as it is reduced. If there are
// few (one token, few kv heads, many threads), pairs of a unit and a KV chunk are reduced in parallel into partial
// states, a wave of KV chunks at a time, which are then folded in the same order. Both ways do the same arithmetic, so
// the choice changes no bit.
//
// A part of a fold differs only at its ends: its totals start from the state that the previous part left, and their
// sums o are added in place in that state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

inline constexpr std::int64_t kQueriesPerUnit = 64;  // about the queries of a unit
/// Fewest units (a kv head and some tokens) per thread for threads to take whole units; with fewer, they take single KV
/// chunks of a unit.
inline constexpr std::int64_t kUnitsPerThread = 2;
/// Most bytes of the partial states of a wave of KV chunks, unless those of one KV chunk need more.
inline constexpr std::size_t kWaveBytes = std::size_t{1} << 20;

/// Returns the number of tokens of a unit if `group` query heads share a kv head.
[[nodiscard]] inline std::int64_t tokens_per_unit(std::int64_t group) {
    return std::max<std::int64_t>(1, kQueriesPerUnit / group);
}

/// Returns the bytes of the states of n_queries queries, followed by the sums o of each.
[[nodiscard]] inline std::size_t states_bytes(std::int64_t n_queries, std::int64_t head_dim) {
    const std::size_t sums = round_up<std::size_t>(static_cast<std::size_t>(head_dim) * sizeof(float), 64);
    return round_up<std::size_t>(static_cast<std::size_t>(n_queries) * (sizeof(QueryState) + sums), 64);
}

/// Folds the state `chunk` of a KV chunk into `total`: both are scaled to the larger of their maxima m, and their sums
/// l and o, [head_dim], are added. Leaves `total` unchanged if no slot of the chunk was visible (chunk.m is -infinity).
inline void fold_chunk(QueryState& total, const QueryState& chunk, std::int64_t head_dim) {
    if (chunk.m == -std::numeric_limits<float>::infinity()) return;
    const float m = std::max(total.m, chunk.m);
    const float keep = exp_float(total.m - m);
    const float take = exp_float(chunk.m - m);
    total.m = m;
    total.l = total.l * keep + chunk.l * take;
    for (std::int64_t e = 0; e < head_dim; ++e) total.o[e] = total.o[e] * keep + chunk.o[e] * take;
}

/// The queries and the ends of a fold; members as in AttentionArgs.
struct FoldArgs {
    KvLayout shape;
    ConstTensorView q;
    TensorView out;  // unused by the parts First and Middle
    std::int64_t n_q_heads = 0;
    ConstTensorView sinks{};
    AttentionPart part = AttentionPart::Whole;
    float* state = nullptr;
};

/// A call of an op that folds. `MakeUnit` is called as make_unit(tiles, head, first_token, n_tokens), with memory of a
/// thread, tiles_bytes, and returns a unit with these members:
///     n_queries(), query(i)          as in AttentionUnit
///     first_chunk(), last_chunk()    as in AttentionUnit
///     reduce_chunk(chunk, next_chunk, chunk_states)
template <typename MakeUnit>
class AttentionFold {
public:
    AttentionFold(ExecRef exec, const FoldArgs& args, std::size_t tiles_bytes, const MakeUnit& make_unit)
        : device_(static_cast<CpuDevice&>(exec.device)),
          args_(args),
          make_unit_(make_unit),
          tiles_bytes_(tiles_bytes),
          d_(args.shape.head_dim),
          tokens_per_unit_(tokens_per_unit(args.n_q_heads / args.shape.n_kv_heads)),
          n_units_(args.shape.n_kv_heads * ceil_div(args.q.rows(), tokens_per_unit_)),
          unit_states_bytes_(
              states_bytes(std::min(tokens_per_unit_, args.q.rows()) * (args.n_q_heads / args.shape.n_kv_heads), d_)) {}

    /// The device must have reserved attention_scratch().
    void run() {
        const int n_threads = device_.pool().n_threads();
        std::int64_t first_chunk = std::numeric_limits<std::int64_t>::max();
        std::int64_t last_chunk = 0;
        for (std::int64_t i = 0; i < n_units_; ++i) {
            const auto unit = unit_at(i, 0);
            first_chunk = std::min(first_chunk, unit.first_chunk());
            last_chunk = std::max(last_chunk, unit.last_chunk());
        }
        if (n_threads > 1 && n_units_ < kUnitsPerThread * n_threads && last_chunk > first_chunk) {
            run_by_chunk(first_chunk, last_chunk);
        } else {
            run_by_unit();
        }
    }

private:
    static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

    [[nodiscard]] auto unit_at(std::int64_t index, int thread) const {
        const std::int64_t first = index / args_.shape.n_kv_heads * tokens_per_unit_;
        return make_unit_(device_.thread_scratch(thread), index % args_.shape.n_kv_heads, first,
                          std::min(tokens_per_unit_, args_.q.rows() - first));
    }

    template <typename Unit>
    QueryState* place_states(std::byte* memory, const Unit& unit) const {
        auto* states = reinterpret_cast<QueryState*>(memory);
        auto* sums = reinterpret_cast<float*>(memory + static_cast<std::size_t>(unit.n_queries()) * sizeof(QueryState));
        const std::int64_t stride = round_up<std::int64_t>(d_, 16);
        for (std::int64_t i = 0; i < unit.n_queries(); ++i)
            states[i] = {q(unit.query(i)), sums + i * stride, kMinusInfinity, 0.0F};
        return states;
    }

    // Returns the totals of a unit, placed in `memory`: fresh ones, or those of the previous part of the fold.
    template <typename Unit>
    QueryState* start_totals(std::byte* memory, const Unit& unit) const {
        QueryState* totals = place_states(memory, unit);
        for (std::int64_t i = 0; i < unit.n_queries(); ++i) {
            if (args_.part != AttentionPart::Whole) totals[i].o = args_.state + unit.query(i) * d_;
            if (args_.part == AttentionPart::Whole || args_.part == AttentionPart::First) {
                std::fill_n(totals[i].o, d_, 0.0F);
                if (args_.sinks.empty()) continue;
                totals[i].m = float_row(args_.sinks, 0)[unit.query(i) % args_.n_q_heads];
                totals[i].l = 1.0F;
            } else {
                totals[i].m = state_m()[unit.query(i)];
                totals[i].l = state_l()[unit.query(i)];
            }
        }
        return totals;
    }
    void fold(QueryState* totals, const QueryState* chunk, std::int64_t n_queries) const {
        for (std::int64_t i = 0; i < n_queries; ++i) fold_chunk(totals[i], chunk[i], d_);
    }
    template <typename Unit>
    void end_totals(const Unit& unit, const QueryState* totals) const {
        for (std::int64_t i = 0; i < unit.n_queries(); ++i) {
            const std::int64_t query = unit.query(i);
            if (args_.part == AttentionPart::First || args_.part == AttentionPart::Middle) {
                state_m()[query] = totals[i].m;
                state_l()[query] = totals[i].l;
                continue;
            }
            float* out = float_row(args_.out, query / args_.n_q_heads) + query % args_.n_q_heads * d_;
            for (std::int64_t e = 0; e < d_; ++e) out[e] = totals[i].o[e] / totals[i].l;
        }
    }

    void run_by_unit() {
        device_.pool().run(n_units_, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            for (std::int64_t index = begin; index < end; ++index) {
                auto unit = unit_at(index, thread);
                std::byte* states = device_.thread_scratch(thread) + tiles_bytes_;
                QueryState* totals = start_totals(states, unit);
                QueryState* chunk_states = place_states(states + unit_states_bytes_, unit);
                for (std::int64_t chunk = unit.first_chunk(); chunk <= unit.last_chunk(); ++chunk) {
                    unit.reduce_chunk(chunk, chunk < unit.last_chunk() ? chunk + 1 : kNoChunk, chunk_states);
                    fold(totals, chunk_states, unit.n_queries());
                }
                end_totals(unit, totals);
            }
        });
    }

    void run_by_chunk(std::int64_t first_chunk, std::int64_t last_chunk) {
        const std::int64_t n_chunks = last_chunk - first_chunk + 1;
        const std::size_t chunk_bytes = static_cast<std::size_t>(n_units_) * unit_states_bytes_;
        const auto wave = std::clamp<std::int64_t>(static_cast<std::int64_t>(kWaveBytes / chunk_bytes), 1, n_chunks);
        // Scratch of the device: the states of the totals, [n_units], followed by those of the wave's KV chunks, [wave,
        // n_units]; each takes unit_states_bytes_.
        std::byte* totals = device_.shared_scratch();
        const auto states_of = [&](std::int64_t slice, std::int64_t index) {
            return totals + static_cast<std::size_t>(slice * n_units_ + index) * unit_states_bytes_;
        };
        for (std::int64_t begin_chunk = first_chunk; begin_chunk <= last_chunk; begin_chunk += wave) {
            const std::int64_t n = std::min(wave, last_chunk - begin_chunk + 1);
            device_.pool().run(n * n_units_, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
                for (std::int64_t item = begin; item < end; ++item) {
                    auto unit = unit_at(item % n_units_, thread);
                    const std::int64_t chunk = item / n_units_;
                    unit.reduce_chunk(begin_chunk + chunk, kNoChunk,
                                      place_states(states_of(1 + chunk, item % n_units_), unit));
                }
            });
            device_.pool().run(n_units_, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
                for (std::int64_t index = begin; index < end; ++index) {
                    const auto unit = unit_at(index, thread);
                    auto* total = reinterpret_cast<QueryState*>(states_of(0, index));
                    if (begin_chunk == first_chunk) start_totals(states_of(0, index), unit);
                    for (std::int64_t chunk = 0; chunk < n; ++chunk)
                        fold(total, reinterpret_cast<const QueryState*>(states_of(1 + chunk, index)), unit.n_queries());
                    if (begin_chunk + n > last_chunk) end_totals(unit, total);
                }
            });
        }
    }

    [[nodiscard]] const float* q(std::int64_t query) const {
        return float_row(args_.q, query / args_.n_q_heads) + query % args_.n_q_heads * d_;
    }
    [[nodiscard]] std::int64_t n_queries() const { return args_.q.rows() * args_.n_q_heads; }
    [[nodiscard]] float* state_m() const { return args_.state + n_queries() * d_; }  // follows o
    [[nodiscard]] float* state_l() const { return state_m() + n_queries(); }

    CpuDevice& device_;
    FoldArgs args_;
    const MakeUnit& make_unit_;
    std::size_t tiles_bytes_;
    std::int64_t d_;
    std::int64_t tokens_per_unit_;
    std::int64_t n_units_;
    std::size_t unit_states_bytes_;
};

}  // namespace slipstream::cpu
