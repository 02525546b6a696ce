// The drivers of the ops of KV views. Threads take ranges of kv heads of KV chunks, in the order of their memory
// (kv_score), or ranges of moves (kv_gather). The scalar variant of a scored step is here as well.
#include "kernels/cpu/attention/kv_view.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/checked_math.h"
#include "kernels/base/float16.h"
#include "kernels/base/kernel_reads.h"
#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/kv_layout.h"
#include "kernels/cpu/attention/kv_score_step.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

constexpr std::int64_t kMostHeadsPerPiece = 8;
constexpr std::int64_t kPiecesPerThread = 4;
constexpr std::int64_t kMovesPerPiece = 16;

ThreadPool& pool_of(ExecRef exec) {
    return static_cast<CpuDevice&>(exec.device).pool();
}

// The kv heads of the KV chunks of a call, numbered KV chunk by KV chunk.
struct ScoredHeads {
    const KvScoreArgs& args;

    [[nodiscard]] std::int64_t count() const { return (args.end_chunk - args.first_chunk) * args.shape.n_kv_heads; }
    [[nodiscard]] std::int64_t chunk(std::int64_t index) const {
        return args.first_chunk + index / args.shape.n_kv_heads;
    }
    [[nodiscard]] const std::byte* keys(std::int64_t index, std::int64_t step) const {
        return args.chunks[chunk(index)] + k_step_offset(args.shape, index % args.shape.n_kv_heads, step);
    }
    void score(std::int64_t index, ScoreGroups form) const;
};

void ScoredHeads::score(std::int64_t index, ScoreGroups form) const {
    const KvLayout& shape = args.shape;
    const std::int64_t group = args.n_q_heads / shape.n_kv_heads;
    const std::int64_t first_query = index % shape.n_kv_heads * group;
    const std::int64_t first_slot = chunk(index) * kChunkTokens;
    const std::int64_t n_slots = std::min(kChunkTokens, args.n_committed - first_slot);
    const std::int64_t n_steps = ceil_div(n_slots, kStepTokens);
    for (std::int64_t step = 0; step < n_steps; ++step) {
        const std::byte* k = keys(index, step);
        tell_kernel_reads(k, shape.step_bytes());
        const bool last = step + 1 == n_steps;
        form({.k = k,
              .next_k = !last                 ? keys(index, step + 1)
                        : index + 1 < count() ? keys(index + 1, 0)
                                              : k,
              .dtype = shape.dtype,
              .head_dim = shape.head_dim,
              .q = float_row(args.q, 0) + first_query * shape.head_dim,
              .n_queries = group,
              .scale = args.scale,
              .softcap = args.softcap,
              .score = args.score,
              .n_slots = static_cast<int>(std::min(kStepTokens, n_slots - step * kStepTokens)),
              .out = args.out + first_query * args.n_groups + (first_slot + step * kStepTokens) / kGroupTokens,
              .out_stride = args.n_groups});
    }
}

void score_all(ExecRef exec, const KvScoreArgs& args, ScoreGroups form) {
    const ScoredHeads heads{args};
    ThreadPool& pool = pool_of(exec);
    const std::int64_t piece =
        std::clamp<std::int64_t>(heads.count() / (kPiecesPerThread * pool.n_threads()), 1, kMostHeadsPerPiece);
    pool.run(heads.count(), piece, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t index = begin; index < end; ++index) heads.score(index, form);
    });
}

template <typename Element>
float value_of(Element element) {
    if constexpr (std::is_same_v<Element, float> || std::is_same_v<Element, std::int8_t>)
        return element;
    else
        return to_float(element);
}

template <typename Element>
void score_step(const ScoreStep& step) {
    const auto* k = reinterpret_cast<const Element*>(step.k);
    for (std::int64_t i = 0; i < step.n_queries; ++i) {
        float products[kStepTokens];
        for (std::int64_t slot = 0; slot < kStepTokens; ++slot) {
            double sum = 0.0;
            for (std::int64_t d = 0; d < step.head_dim; ++d) {
                double key = static_cast<double>(value_of(k[d * kStepTokens + slot]));
                if constexpr (std::is_same_v<Element, std::int8_t>)
                    key *= static_cast<double>(
                        to_float(BFloat16{step_scales(step.k, step.head_dim)[d / kQ8Block * kStepTokens + slot]}));
                sum += static_cast<double>(step.q[i * step.head_dim + d]) * key;
            }
            products[slot] = static_cast<float>(sum);
        }
        float* out = step.out + i * step.out_stride;
        step.softcap == 0.0F ? reduce_groups<false>(products, step, out) : reduce_groups<true>(products, step, out);
    }
}

// Copies a slot group. Its keys are columns of its step, eight neighbouring elements of each of head_dim rows; its
// values are rows; the scales of a block are columns.
void move_group(const KvGatherArgs& args, const GroupMove& move) {
    const KvLayout& shape = args.shape;
    const std::byte* from = args.from[move.from / kChunkGroups];
    std::byte* to = args.to[move.to / kChunkGroups];
    const std::int64_t from_slot = move.from % kChunkGroups * kGroupTokens;
    const std::int64_t to_slot = move.to % kChunkGroups * kGroupTokens;
    const auto columns = [&](std::int64_t slot) {
        return k_step_offset(shape, move.head, slot / kStepTokens) + element_bytes(shape, slot % kStepTokens);
    };
    const std::byte* from_k = from + columns(from_slot);
    std::byte* to_k = to + columns(to_slot);
    const auto stride = static_cast<std::int64_t>(element_bytes(shape, kStepTokens));
    const auto copy_columns = [&](auto bytes) {  // `bytes` is a constant for the compiler
        for (std::int64_t d = 0; d < shape.head_dim; ++d) std::memcpy(to_k + d * stride, from_k + d * stride, bytes);
    };
    if (shape.dtype == DType::F32)
        copy_columns(std::integral_constant<std::size_t, kGroupTokens * 4>());
    else if (shape.dtype == DType::Q8_0)
        copy_columns(std::integral_constant<std::size_t, kGroupTokens>());
    else
        copy_columns(std::integral_constant<std::size_t, kGroupTokens * 2>());
    std::memcpy(to + v_row_offset(shape, move.head, to_slot), from + v_row_offset(shape, move.head, from_slot),
                element_bytes(shape, kGroupTokens * shape.head_dim));
    if (!shape.has_scales()) return;
    for (const std::size_t part : {std::size_t{0}, shape.part_bytes()})
        for (std::int64_t block = 0; block < shape.head_scales(); ++block) {
            const auto scales = [&](std::int64_t slot) {
                return part + k_step_offset(shape, move.head, slot / kStepTokens) +
                       scale_offset(shape, block, slot % kStepTokens);
            };
            std::memcpy(to + scales(to_slot), from + scales(from_slot), kGroupTokens * sizeof(BFloat16));
        }
}

}  // namespace

void score_groups_scalar(const ScoreStep& step) {
    switch (step.dtype) {
        case DType::F32:
            return score_step<float>(step);
        case DType::F16:
            return score_step<Half>(step);
        case DType::BF16:
            return score_step<BFloat16>(step);
        default:
            return score_step<std::int8_t>(step);
    }
}

void kv_score_scalar(ExecRef exec, const KvScoreArgs& args) {
    score_all(exec, args, score_groups_scalar);
}
#if defined(__x86_64__)
void kv_score_avx2(ExecRef exec, const KvScoreArgs& args) {
    score_all(exec, args, score_groups_avx2);
}
void kv_score_avx512(ExecRef exec, const KvScoreArgs& args) {
    score_all(exec, args, score_groups_avx512);
}
#endif

void kv_gather(ExecRef exec, const KvGatherArgs& args) {
    pool_of(exec).run(args.n_moves, kMovesPerPiece, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) move_group(args, args.moves[i]);
    });
}

}  // namespace slipstream::cpu
