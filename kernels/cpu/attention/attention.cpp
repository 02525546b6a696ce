// The driver of attention on the CPU: units of work (attention_unit.h), and the fold over their KV chunks.
//
// If there are many units, a thread takes whole units and folds each KV chunk as soon as it is reduced. If there are
// few (one token, few kv heads, many threads), pairs of a unit and a KV chunk are reduced in parallel into partial
// states, a wave of KV chunks at a time, which are then folded in the same order. Both ways do the same arithmetic, so
// the choice changes no bit.
//
// A part of a fold differs only at its ends: its totals start from the state that the previous part left, and their
// sums o are added in place in that state.
#include "kernels/cpu/attention/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/attention/attention_unit.h"
#include "kernels/cpu_device.h"
#include "kernels/workspace.h"

namespace slipstream::cpu {

namespace {

constexpr std::int64_t kQueriesPerUnit = 64;
// Fewest units (a kv head and some tokens) per thread for threads to take whole units; with fewer, they take single KV
// chunks of a unit.
constexpr std::int64_t kUnitsPerThread = 2;
// Most bytes of the partial states of a wave of KV chunks, unless those of one KV chunk need more.
constexpr std::size_t kWaveBytes = std::size_t{1} << 20;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::int64_t tokens_per_unit(std::int64_t group) {
    return std::max<std::int64_t>(1, kQueriesPerUnit / group);
}

// Returns the bytes of the states of n_queries queries, followed by the sums o of each.
std::size_t states_bytes(std::int64_t n_queries, std::int64_t head_dim) {
    const std::size_t sums = round_up<std::size_t>(static_cast<std::size_t>(head_dim) * sizeof(float), 64);
    return round_up<std::size_t>(static_cast<std::size_t>(n_queries) * (sizeof(QueryState) + sums), 64);
}

QueryState* place_states(std::byte* memory, const AttentionUnit& unit, std::int64_t head_dim) {
    auto* states = reinterpret_cast<QueryState*>(memory);
    auto* sums = reinterpret_cast<float*>(memory + static_cast<std::size_t>(unit.n_queries()) * sizeof(QueryState));
    const std::int64_t stride = round_up<std::int64_t>(head_dim, 16);
    for (std::int64_t i = 0; i < unit.n_queries(); ++i)
        states[i] = {unit.q(i), sums + i * stride, kMinusInfinity, 0.0F};
    return states;
}

class Attention {
public:
    Attention(ExecRef exec, const AttentionArgs& args, const AttentionForm& form)
        : device_(static_cast<CpuDevice&>(exec.device)),
          args_(args),
          form_(form),
          d_(args.shape.head_dim),
          group_(args.n_q_heads / args.shape.n_kv_heads),
          tokens_per_unit_(tokens_per_unit(group_)),
          n_units_(args.shape.n_kv_heads * ceil_div(args.q.rows(), tokens_per_unit_)),
          unit_states_bytes_(states_bytes(std::min(tokens_per_unit_, args.q.rows()) * group_, d_)) {}

    void run() {
        const int n_threads = device_.pool().n_threads();
        device_.reserve_scratch(attention_scratch(args_.shape, args_.n_q_heads, n_threads));
        std::int64_t first_chunk = std::numeric_limits<std::int64_t>::max();
        std::int64_t last_chunk = 0;
        for (std::int64_t i = 0; i < n_units_; i += args_.shape.n_kv_heads) {
            const AttentionUnit unit = unit_at(i, 0);
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
    [[nodiscard]] AttentionUnit unit_at(std::int64_t index, int thread) const {
        const std::int64_t first = index / args_.shape.n_kv_heads * tokens_per_unit_;
        return {args_,
                form_,
                device_.thread_scratch(thread),
                index % args_.shape.n_kv_heads,
                first,
                std::min(tokens_per_unit_, args_.q.rows() - first)};
    }

    // Returns the totals of a unit, placed in `memory`: fresh ones, or those of the previous part of the fold.
    QueryState* start_totals(std::byte* memory, const AttentionUnit& unit) const {
        QueryState* totals = place_states(memory, unit, d_);
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
    void end_totals(const AttentionUnit& unit, const QueryState* totals) const {
        for (std::int64_t i = 0; i < unit.n_queries(); ++i) {
            if (args_.part == AttentionPart::First || args_.part == AttentionPart::Middle) {
                state_m()[unit.query(i)] = totals[i].m;
                state_l()[unit.query(i)] = totals[i].l;
                continue;
            }
            float* out = unit.out(i);
            for (std::int64_t e = 0; e < d_; ++e) out[e] = totals[i].o[e] / totals[i].l;
        }
    }

    void run_by_unit() {
        device_.pool().run(n_units_, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            for (std::int64_t index = begin; index < end; ++index) {
                AttentionUnit unit = unit_at(index, thread);
                std::byte* states = device_.thread_scratch(thread) + attention_tiles_bytes(args_.shape);
                QueryState* totals = start_totals(states, unit);
                QueryState* chunk_states = place_states(states + unit_states_bytes_, unit, d_);
                for (std::int64_t chunk = unit.first_chunk(); chunk <= unit.last_chunk(); ++chunk) {
                    unit.reduce_chunk(chunk, chunk < unit.last_chunk() ? chunk + 1 : AttentionUnit::kNoChunk,
                                      chunk_states);
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
                    AttentionUnit unit = unit_at(item % n_units_, thread);
                    const std::int64_t chunk = item / n_units_;
                    unit.reduce_chunk(begin_chunk + chunk, AttentionUnit::kNoChunk,
                                      place_states(states_of(1 + chunk, item % n_units_), unit, d_));
                }
            });
            device_.pool().run(n_units_, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
                for (std::int64_t index = begin; index < end; ++index) {
                    const AttentionUnit unit = unit_at(index, thread);
                    auto* total = reinterpret_cast<QueryState*>(states_of(0, index));
                    if (begin_chunk == first_chunk) start_totals(states_of(0, index), unit);
                    for (std::int64_t chunk = 0; chunk < n; ++chunk)
                        fold(total, reinterpret_cast<const QueryState*>(states_of(1 + chunk, index)), unit.n_queries());
                    if (begin_chunk + n > last_chunk) end_totals(unit, total);
                }
            });
        }
    }

    [[nodiscard]] std::int64_t n_queries() const { return args_.q.rows() * args_.n_q_heads; }
    [[nodiscard]] float* state_m() const { return args_.state + n_queries() * d_; }  // follows o
    [[nodiscard]] float* state_l() const { return state_m() + n_queries(); }

    CpuDevice& device_;
    const AttentionArgs& args_;
    AttentionForm form_;
    std::int64_t d_;
    std::int64_t group_;
    std::int64_t tokens_per_unit_;
    std::int64_t n_units_;
    std::size_t unit_states_bytes_;
};

}  // namespace

// Returns what the largest pass over the longest sequence takes, so that a later pass never allocates: run_by_chunk()
// has fewer units than kUnitsPerThread per thread, and after the totals kWaveBytes, or the states of one KV chunk if
// they are larger.
CpuScratch attention_scratch(const KvLayout& shape, std::int64_t n_q_heads, int n_threads) {
    const std::int64_t group = n_q_heads / shape.n_kv_heads;
    const std::size_t whole_unit = states_bytes(tokens_per_unit(group) * group, shape.head_dim);
    CpuScratch scratch{.thread_bytes = attention_tiles_bytes(shape) + 2 * whole_unit};
    if (n_threads == 1) return scratch;
    const std::size_t most_chunk = static_cast<std::size_t>(kUnitsPerThread * n_threads) * whole_unit;
    scratch.shared_bytes = std::max(kWaveBytes, most_chunk) + most_chunk;
    return scratch;
}

void attention_scalar(ExecRef exec, const AttentionArgs& args) {
    Attention(exec, args, {reduce_step_scalar, widen_step_scalar}).run();
}
#if defined(__x86_64__)
void attention_avx2(ExecRef exec, const AttentionArgs& args) {
    Attention(exec, args, {reduce_step_avx2, widen_step_avx2}).run();
}
void attention_avx512(ExecRef exec, const AttentionArgs& args) {
    Attention(exec, args, {reduce_step_avx512, widen_step_avx512}).run();
}
void attention_avx512_vnni(ExecRef exec, const AttentionArgs& args) {
    if (args.shape.dtype != DType::Q8_0) return attention_avx512(exec, args);
    Attention(exec, args, {reduce_step_q8_vnni, nullptr, kMaxQ8Batch}).run();
}
void attention_avx512_bf16(ExecRef exec, const AttentionArgs& args) {
    if (args.shape.dtype == DType::Q8_0) return attention_avx512_vnni(exec, args);
    Attention(exec, args, {reduce_step_avx512_near, nullptr}).run();
}
#endif

}  // namespace slipstream::cpu
