// Calls of attention on emulated blocks, over rows of the CPU tests' cache (tests/kernels/attention_cases.h): chunks
// laid out anew as a card has them, a way forced or left to the plan, parts; and softmax in double over what the
// kernels see.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/attention/kv_layout.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "tests/kernels/attention_cases.h"

namespace slipstream::testing_attention {

/// The committed chunks of a call in a card's layout, [n_kv_heads][K|V][256][head_dim]; of Q8: kv_launch.h.
class CardChunks {
public:
    explicit CardChunks(const AttentionArgs& args) : shape_(args.shape) {
        const std::int64_t n = ceil_div(args.n_committed, kChunkTokens);
        for (std::int64_t chunk = 0; chunk < n; ++chunk) {
            storage_.emplace_back(shape_.chunk_bytes());
            for (std::int64_t head = 0; head < shape_.n_kv_heads; ++head) copy_head(args.chunks[chunk], head);
        }
        for (const auto& chunk : storage_) chunks_.push_back(chunk.data());
    }
    const std::vector<const std::byte*>& chunks() const { return chunks_; }

private:
    void copy_head(const std::byte* from, std::int64_t head) {
        if (shape_.has_scales()) {
            copy_q8_head(from, head);
            return;
        }
        std::vector<std::byte>& to = storage_.back();
        const std::size_t element = row_bytes(shape_.dtype, 1);
        const std::size_t row = row_bytes(shape_.dtype, shape_.head_dim);
        std::byte* keys = to.data() + static_cast<std::size_t>(head) * 2 * shape_.part_bytes();
        std::memcpy(keys + shape_.part_bytes(), from + cpu::v_row_offset(shape_, head, 0), shape_.part_bytes());
        for (std::int64_t slot = 0; slot < kChunkTokens; ++slot) {
            const std::byte* step = from + cpu::k_step_offset(shape_, head, slot / kStepTokens);
            for (std::int64_t d = 0; d < shape_.head_dim; ++d)
                std::memcpy(keys + static_cast<std::size_t>(slot) * row + static_cast<std::size_t>(d) * element,
                            step + static_cast<std::size_t>(d * kStepTokens + slot % kStepTokens) * element, element);
        }
    }

    void copy_q8_head(const std::byte* from, std::int64_t head) {
        const std::size_t codes = shape_.head_code_bytes();
        const std::size_t scales = shape_.head_row_bytes() - codes;
        for (std::int64_t step = 0; step < kChunkTokens / kStepTokens; ++step)
            for (const bool value : {false, true}) {
                const std::byte* from_step = from + (value ? cpu::v_row_offset(shape_, head, step * kStepTokens)
                                                           : cpu::k_step_offset(shape_, head, step));
                std::byte* to = storage_.back().data() +
                                static_cast<std::size_t>(2 * head + (value ? 1 : 0)) * shape_.part_bytes() +
                                static_cast<std::size_t>(step) * shape_.step_bytes();
                for (std::int64_t slot = 0; slot < kStepTokens; ++slot) {
                    for (std::int64_t d = 0; d < shape_.head_dim; ++d)
                        to[static_cast<std::size_t>(slot) * codes + static_cast<std::size_t>(d)] =
                            from_step[value ? slot * shape_.head_dim + d : d * kStepTokens + slot];
                    for (std::int64_t block = 0; block < shape_.head_scales(); ++block)
                        std::memcpy(to + kStepTokens * codes + static_cast<std::size_t>(slot) * scales + 2 * block,
                                    from_step + cpu::scale_offset(shape_, block, slot), sizeof(BFloat16));
                }
            }
    }

    KvLayout shape_;
    std::vector<std::vector<std::byte>> storage_;
    std::vector<const std::byte*> chunks_;
};

/// How a call is cut.
struct Cut {
    std::int32_t n_multiprocessors = 1;  // of the card that the plan is for
    std::int32_t warps = 0;              // not 0: the parallel way with tiles of so many warps,
    std::int32_t wave_chunks = 1;        // and waves of so many chunks
};
inline constexpr Cut kFolded{.n_multiprocessors = 1};
inline constexpr Cut kOneWarp{.warps = 1, .wave_chunks = 100};
inline constexpr Cut kWavesOfTwo{.warps = 4, .wave_chunks = 2};

inline cuda::AttentionPlan plan_for(const AttentionArgs& args, const Cut& cut) {
    cuda::AttentionPlan plan = cuda::plan_attention(args, {cut.n_multiprocessors});
    if (cut.warps == 0) return plan;
    plan.way = cuda::AttentionWay::Parallel;
    plan.warps_per_tile = cut.warps;
    plan.wave_chunks = cut.wave_chunks;
    const bool tiles = !plan.tiles.empty();
    plan.tiles.clear(), plan.gathers.clear(), plan.rows.clear();
    if (tiles) cuda::cut_tiles(args, cut.warps * cuda::kWarpRows, plan);
    return plan;
}

inline void launch_on_host(const AttentionArgs& args, const Cut& cut) {
    const cuda::AttentionPlan plan = plan_for(args, cut);
    cuda::AttentionLaunch launch = cuda::attention_launch(args, plan);
    std::vector<float> scratch(cuda::attention_scratch_floats(plan, args), std::nanf(""));
    cuda::place_scratch(plan, scratch.data(), launch);
    cuda::launch_attention(launch, nullptr);
}

/// The pass that `cache` has prepared, its fold cut before the chunks `cuts`, each part seeing its own chunks only.
inline std::vector<float> attend_on_card(const Cache& cache, std::int64_t window, const Cut& cut,
                                         const std::vector<std::int64_t>& cuts = {}) {
    constexpr std::size_t kGuard = 32;
    AttentionArgs args = cache.args(window);
    const CardChunks card(args);
    const std::size_t n_out = static_cast<std::size_t>(args.q.rows() * args.q.cols());
    std::vector<float> out(n_out + kGuard, std::nanf(""));
    const std::size_t n_state = attention_state_floats(args.q.rows(), args.n_q_heads, args.shape.head_dim);
    std::vector<float> state(n_state + kGuard, std::nanf(""));
    for (std::size_t i = 0; i <= cuts.size(); ++i) {
        const bool last = i == cuts.size();
        args.part = cuts.empty() ? AttentionPart::Whole
                    : i == 0     ? AttentionPart::First
                    : last       ? AttentionPart::Last
                                 : AttentionPart::Middle;
        args.state = cuts.empty() ? nullptr : state.data();
        args.first_chunk = i == 0 ? 0 : cuts[i - 1];
        args.end_chunk = last ? kAllChunks : cuts[i];
        if (last) args.out = matrix_view(out.data(), args.q.rows(), args.q.cols());
        std::vector<const std::byte*> chunks = card.chunks();
        for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
            const auto number = static_cast<std::int64_t>(chunk);
            if (number < args.first_chunk || number >= args.end_chunk) chunks[chunk] = nullptr;
        }
        args.chunks = chunks.data();
        launch_on_host(args, cut);
    }
    for (std::size_t i = 0; i < kGuard; ++i) EXPECT_TRUE(std::isnan(out[n_out + i]) && std::isnan(state[n_state + i]));
    out.resize(n_out);
    return out;
}

/// cache_row() of Q8: code times scale; as the kernels on tensor cores have it, rounded to half.
inline std::vector<double> q8_cache_row(const AttentionArgs& args, std::int64_t token, std::int64_t position,
                                        std::int64_t head, bool value) {
    const KvLayout& shape = args.shape;
    const bool halves =
        cuda::attention_on_tensor_cores(cuda::KvType::Q8, static_cast<int>(shape.head_dim), args.softcap);
    std::vector<double> row;
    for (std::int64_t e = 0; e < shape.head_dim; ++e) {
        const std::byte* code = nullptr;
        const std::byte* scale = nullptr;
        if (position < args.n_committed) {
            const std::int64_t slot = position % kStepTokens;
            const std::int64_t first = position % kChunkTokens - slot;
            const std::byte* step =
                args.chunks[position / kChunkTokens] +
                (value ? cpu::v_row_offset(shape, head, first) : cpu::k_step_offset(shape, head, first / kStepTokens));
            code = step + (value ? slot * shape.head_dim + e : e * kStepTokens + slot);
            scale = step + cpu::scale_offset(shape, e / kQ8Block, slot);
        } else {
            const std::int32_t number = args.path_rows[args.path_begin[token] + position - args.n_committed];
            const std::byte* at = (value ? args.scratch_v : args.scratch_k) +
                                  static_cast<std::size_t>(number) * shape.scratch_row_bytes() +
                                  static_cast<std::size_t>(head) * shape.head_row_bytes();
            code = at + e;
            scale = at + shape.head_code_bytes() + 2 * (e / kQ8Block);
        }
        BFloat16 factor;
        std::memcpy(&factor, scale, sizeof(factor));
        const float product = static_cast<float>(static_cast<std::int8_t>(*code)) * to_float(factor);
        row.push_back(halves ? to_float(to_half(product)) : product);
    }
    return row;
}

/// A row of keys or values as floats, from a chunk in the CPU's layout or from scratch.
inline std::vector<double> cache_row(const AttentionArgs& args, std::int64_t token, std::int64_t position,
                                     std::int64_t head, bool value) {
    const std::int64_t d = args.shape.head_dim;
    const DType type = args.shape.dtype;
    std::vector<double> row;
    if (args.shape.has_scales()) return q8_cache_row(args, token, position, head, value);
    for (std::int64_t e = 0; e < d; ++e) {
        const std::byte* at = nullptr;
        if (position < args.n_committed) {
            const std::int64_t slot = position % kChunkTokens;
            at = args.chunks[position / kChunkTokens] +
                 (value ? cpu::v_row_offset(args.shape, head, slot) + row_bytes(type, e)
                        : cpu::k_step_offset(args.shape, head, slot / kStepTokens) +
                              row_bytes(type, e * kStepTokens + slot % kStepTokens));
        } else {
            const std::int32_t number = args.path_rows[args.path_begin[token] + position - args.n_committed];
            at = (value ? args.scratch_v : args.scratch_k) +
                 static_cast<std::size_t>(number) * args.shape.scratch_row_bytes() + row_bytes(type, head * d + e);
        }
        row.push_back(type == DType::F32   ? *reinterpret_cast<const float*>(at)
                      : type == DType::F16 ? to_float(*reinterpret_cast<const Half*>(at))
                                           : to_float(*reinterpret_cast<const BFloat16*>(at)));
    }
    return row;
}

/// Softmax in double of one query, and for each element the sum of its weighted magnitudes.
struct Expected {
    std::vector<double> value;      // [head_dim]
    std::vector<double> magnitude;  // sum of w |v|
    double score_error = 0.0;       // 2^-24 times the largest sum of |q k| scale, and the error of the softcap
};
inline Expected expected_of(const AttentionArgs& args, std::int64_t token, std::int64_t q_head) {
    const std::int64_t d = args.shape.head_dim;
    const std::int64_t head = q_head / (args.n_q_heads / args.shape.n_kv_heads);
    const bool rounds =
        cuda::attention_on_tensor_cores(cuda::kv_type(args.shape.dtype), static_cast<int>(d), args.softcap);
    const float* q = float_row(args.q, token) + q_head * d;
    float most = 0.0F;
    for (std::int64_t e = 0; e < d; ++e) most = std::max(most, std::abs(q[e]));
    int exponent = 0;
    std::frexp(most, &exponent);
    const std::int64_t low = args.window == 0 ? 0 : std::max<std::int64_t>(0, args.positions[token] - args.window + 1);
    std::vector<double> weights;
    const double sink = args.sinks.empty() ? -INFINITY : float_row(args.sinks, 0)[q_head];
    double best = sink;
    Expected expected{std::vector<double>(static_cast<std::size_t>(d)),
                      std::vector<double>(static_cast<std::size_t>(d))};
    for (std::int64_t p = low; p <= args.positions[token]; ++p) {
        const std::vector<double> k = cache_row(args, token, p, head, false);
        double score = 0.0, size = 0.0;
        for (std::int64_t e = 0; e < d; ++e) {
            double x = q[e];
            // The kernels' rounding of queries is taken as given; to F16 after scaling the row to about 1.
            if (rounds && (args.shape.dtype == DType::F16 || args.shape.dtype == DType::Q8_0))
                x = std::ldexp(to_float(to_half(static_cast<float>(std::ldexp(q[e], 1 - exponent)))), exponent - 1);
            if (rounds && args.shape.dtype == DType::BF16) x = to_float(to_bfloat16(q[e]));
            score += x * k[e];
            size += std::abs(x * k[e]);
        }
        score *= args.scale;
        weights.push_back(args.softcap == 0.0F ? score : args.softcap * std::tanh(score / args.softcap));
        expected.score_error = std::max(expected.score_error, size * args.scale * 0x1p-24);
        best = std::max(best, weights.back());
    }
    expected.score_error += args.softcap * 0x1p-20 / (4 * std::sqrt(static_cast<double>(d)));
    double sum = std::exp(sink - best);
    for (double& weight : weights) sum += weight = std::exp(weight - best);
    for (std::int64_t p = low; p <= args.positions[token]; ++p) {
        const std::vector<double> v = cache_row(args, token, p, head, true);
        const double weight = weights[p - low] / sum;
        for (std::size_t e = 0; e < v.size(); ++e) {
            expected.value[e] += weight * v[e];
            expected.magnitude[e] += weight * std::abs(v[e]);
        }
    }
    return expected;
}

}  // namespace slipstream::testing_attention
