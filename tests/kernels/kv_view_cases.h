// A layer's cache on a device for tests of the ops that KV views are made with: seeded rows in chunks, scores of their
// groups in double, groups moved on the host. Knows no layout: rows get into chunks by kv_commit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/float16.h"
#include "kernels/kv_view.h"
#include "tests/cuda/device_array.h"

namespace slipstream::testing_view {

using testing_cuda::DeviceFloats;

/// Rows [n_slots, n_kv_heads * head_dim] of keys and of values, of a cache's type; keys have outliers, so that sums of
/// exponentials can fail.
struct Rows {
    KvLayout shape;
    std::int64_t n_slots;
    std::vector<std::byte> k, v;

    Rows(const KvLayout& of, std::int64_t n, std::uint32_t seed) : shape(of), n_slots(n) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (std::vector<std::byte>* part : {&k, &v}) {
            part->resize(static_cast<std::size_t>(n) * shape.scratch_row_bytes());
            for (std::int64_t row = 0; row < n * shape.n_kv_heads; ++row) {
                std::byte* at = part->data() + static_cast<std::size_t>(row) * shape.head_row_bytes();
                for (std::int64_t d = 0; d < shape.head_dim; ++d)
                    put(at, d, normal(random) * (random() % 61 == 0 ? 8.0F : 1.0F));
                for (std::int64_t block = 0; block < shape.head_scales(); ++block) {
                    const BFloat16 scale = to_bfloat16(0.1F + 0.025F * normal(random));
                    std::memcpy(at + shape.head_code_bytes() + 2 * block, &scale, sizeof(scale));
                }
            }
        }
    }
    [[nodiscard]] double key(std::int64_t slot, std::int64_t head, std::int64_t d) const {
        return element(k, slot, head, d);
    }
    [[nodiscard]] double value(std::int64_t slot, std::int64_t head, std::int64_t d) const {
        return element(v, slot, head, d);
    }
    /// A head's part of a row.
    [[nodiscard]] std::span<std::byte> head_row(bool value, std::int64_t slot, std::int64_t head) {
        return std::span(value ? v : k)
            .subspan(static_cast<std::size_t>(slot * shape.n_kv_heads + head) * shape.head_row_bytes(),
                     shape.head_row_bytes());
    }

    /// Writes element `d` of a row of elements; of Q8_0, codes are values themselves, a few of them at the end of their
    /// range.
    void put(std::byte* row, std::int64_t d, float value) const {
        if (shape.dtype == DType::F32) reinterpret_cast<float*>(row)[d] = value;
        if (shape.dtype == DType::F16) reinterpret_cast<Half*>(row)[d] = to_half(value);
        if (shape.dtype == DType::BF16) reinterpret_cast<BFloat16*>(row)[d] = to_bfloat16(value);
        if (shape.dtype == DType::Q8_0)
            reinterpret_cast<std::int8_t*>(row)[d] =
                static_cast<std::int8_t>(std::clamp(std::nearbyint(8.0F * value), -127.0F, 127.0F));
    }

private:
    [[nodiscard]] double element(const std::vector<std::byte>& part, std::int64_t slot, std::int64_t head,
                                 std::int64_t d) const {
        const std::byte* row =
            part.data() + static_cast<std::size_t>(slot * shape.n_kv_heads + head) * shape.head_row_bytes();
        switch (shape.dtype) {
            case DType::F32:
                return reinterpret_cast<const float*>(row)[d];
            case DType::F16:
                return to_float(reinterpret_cast<const Half*>(row)[d]);
            case DType::BF16:
                return to_float(reinterpret_cast<const BFloat16*>(row)[d]);
            default: {
                BFloat16 scale;
                std::memcpy(&scale, row + shape.head_code_bytes() + 2 * (d / 32), sizeof(scale));
                return static_cast<double>(reinterpret_cast<const std::int8_t*>(row)[d]) *
                       static_cast<double>(to_float(scale));
            }
        }
    }
};

/// The chunks that rows lie in, from slot 0 on; NaN in every slot behind them.
class Chunks {
public:
    Chunks(ExecRef exec, const Rows& rows) : exec_(exec), shape_(rows.shape) {
        const std::vector<std::byte> blank(shape_.chunk_bytes(), std::byte{0xff});
        for (std::int64_t i = 0; i < ceil_div(rows.n_slots, kChunkTokens); ++i)
            pointers_.push_back(storage_.emplace_back(testing_cuda::upload_bytes(exec, blank)).data());
        const Buffer k = testing_cuda::upload_bytes(exec, rows.k);
        const Buffer v = testing_cuda::upload_bytes(exec, rows.v);
        std::vector<std::int32_t> all(static_cast<std::size_t>(rows.n_slots));
        std::iota(all.begin(), all.end(), 0);
        kv_commit(exec, {.shape = shape_,
                         .scratch_k = k.data(),
                         .scratch_v = v.data(),
                         .scratch_rows = all.data(),
                         .n_rows = rows.n_slots,
                         .first_position = 0,
                         .chunks = pointers_.data()});
        exec.stream.synchronize();
    }
    [[nodiscard]] std::byte* const* pointers() const { return pointers_.data(); }
    /// Of the chunks [first, end) only.
    [[nodiscard]] std::vector<const std::byte*> pointers(std::int64_t first, std::int64_t end) const {
        std::vector<const std::byte*> part(pointers_.size(), nullptr);
        std::copy(pointers_.begin() + first, pointers_.begin() + end, part.begin() + first);
        return part;
    }
    [[nodiscard]] std::int64_t count() const { return std::ssize(pointers_); }
    [[nodiscard]] std::vector<std::byte> bytes() const {
        std::vector<std::byte> all;
        for (const std::byte* chunk : pointers_) {
            const std::vector<std::byte> one = testing_cuda::download_bytes(exec_, chunk, shape_.chunk_bytes());
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }

private:
    ExecRef exec_;
    KvLayout shape_;
    std::vector<Buffer> storage_;
    std::vector<std::byte*> pointers_;
};

/// A query a head, and how it scores.
struct Query {
    std::int64_t n_heads;
    std::vector<float> q;  // [n_heads * head_dim]
    float scale;
    GroupScore score;
    float softcap;

    Query(const KvLayout& shape, std::int64_t group, float scaled, GroupScore by, float capped = 0.0F)
        : n_heads(group * shape.n_kv_heads), scale(scaled), score(by), softcap(capped) {
        std::mt19937 random(static_cast<std::uint32_t>(group));
        std::normal_distribution<float> normal;
        for (std::int64_t i = 0; i < n_heads * shape.head_dim; ++i) q.push_back(normal(random));
    }
};

/// Scores by calls over the chunks [cuts[i], cuts[i + 1]), each of which sees its own chunks only: [n_heads, n_groups],
/// NaN where nothing was written. Rows of `out` have three groups more than there are.
inline std::vector<float> scores_of(ExecRef exec, const Rows& rows, const Chunks& chunks, const Query& query,
                                    const std::vector<std::int64_t>& cuts) {
    const std::int64_t n_groups = ceil_div(rows.n_slots, kGroupTokens) + 3;
    const DeviceFloats q(exec, 1, std::ssize(query.q), query.q);
    const DeviceFloats out(exec, query.n_heads, n_groups);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::vector<const std::byte*> seen = chunks.pointers(cuts[i], cuts[i + 1]);
        kv_score(exec, {.shape = rows.shape,
                        .q = q.view(),
                        .n_q_heads = query.n_heads,
                        .chunks = seen.data(),
                        .first_chunk = cuts[i],
                        .end_chunk = cuts[i + 1],
                        .n_committed = rows.n_slots,
                        .scale = query.scale,
                        .softcap = query.softcap,
                        .score = query.score,
                        .out = out.data(),
                        .n_groups = n_groups});
    }
    return out.read();
}

/// What a group's score is, in double, and how far rounding may take it: sums of head_dim fused products, then
/// exponentials and a logarithm of a few ulp; a softcap does not make errors of sums larger, and has one of its own.
struct Exact {
    double score;
    double error;
};
inline Exact exact_score(const Rows& rows, const Query& query, std::int64_t head, std::int64_t group) {
    const std::int64_t d = rows.shape.head_dim;
    const std::int64_t kv_head = head / (query.n_heads / rows.shape.n_kv_heads);
    std::vector<double> scores;
    double largest = 0.0;
    for (std::int64_t slot = group * kGroupTokens; slot < std::min(rows.n_slots, (group + 1) * kGroupTokens); ++slot) {
        double sum = 0.0, size = 0.0;
        for (std::int64_t e = 0; e < d; ++e) {
            const double product = static_cast<double>(query.q[head * d + e]) * rows.key(slot, kv_head, e);
            sum += product;
            size += std::abs(product);
        }
        sum *= static_cast<double>(query.scale);
        const auto cap = static_cast<double>(query.softcap);
        scores.push_back(cap == 0.0 ? sum : cap * std::tanh(sum / cap));
        largest = std::max(largest, size * static_cast<double>(query.scale));
    }
    const double best = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (const double score : scores) sum += query.score == GroupScore::Mass ? std::exp(score - best) : score;
    const double exact =
        query.score == GroupScore::Mass ? best + std::log(sum) : sum / static_cast<double>(scores.size());
    return {exact, (static_cast<double>(d) + 16) * 0x1p-24 * largest + 0x1p-20 + 0x1p-20 * query.softcap};
}

/// Every committed group of `found` [n_heads, n_groups + 3] is near its exact score, and the three behind untouched.
inline void expect_exact(const Rows& rows, const Query& query, const std::vector<float>& found) {
    const std::int64_t n_groups = ceil_div(rows.n_slots, kGroupTokens);
    ASSERT_EQ(std::ssize(found), query.n_heads * (n_groups + 3));
    for (std::int64_t head = 0; head < query.n_heads; ++head)
        for (std::int64_t group = 0; group < n_groups + 3; ++group) {
            const auto score = static_cast<double>(found[head * (n_groups + 3) + group]);
            if (group >= n_groups) {
                ASSERT_TRUE(std::isnan(score)) << "head " << head << ", group " << group;
                continue;
            }
            const Exact exact = exact_score(rows, query, head, group);
            ASSERT_LE(std::abs(score - exact.score), exact.error)
                << "head " << head << ", group " << group << ": " << score << ", not " << exact.score;
        }
}

/// Random moves from groups of `n_from` to different groups of `n_to` slots.
inline std::vector<GroupMove> random_moves(const KvLayout& shape, std::int64_t n_from, std::int64_t n_to,
                                           std::int64_t n_moves, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<GroupMove> moves;
    for (std::int32_t head = 0; head < shape.n_kv_heads; ++head)
        for (std::int32_t to = 0; to < n_to / kGroupTokens; ++to)
            moves.push_back(
                {head, static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n_from / kGroupTokens)), to});
    std::shuffle(moves.begin(), moves.end(), random);
    moves.resize(std::min(moves.size(), static_cast<std::size_t>(n_moves)));
    return moves;
}

/// Groups that a device moves lie, bit for bit, as if `to` had been committed with them; `from` is as it was.
inline void expect_gathers(ExecRef exec, const Rows& from, Rows to, const std::vector<GroupMove>& moves) {
    const Chunks source(exec, from);
    const Chunks target(exec, to);
    kv_gather(exec, {.shape = from.shape,
                     .from = source.pointers(0, source.count()).data(),
                     .to = target.pointers(),
                     .moves = moves.data(),
                     .n_moves = std::ssize(moves)});
    exec.stream.synchronize();
    Rows before = from;
    for (const GroupMove& move : moves)
        for (std::int64_t slot = 0; slot < kGroupTokens; ++slot)
            for (const bool value : {false, true})
                std::ranges::copy(before.head_row(value, move.from * kGroupTokens + slot, move.head),
                                  to.head_row(value, move.to * kGroupTokens + slot, move.head).begin());
    EXPECT_EQ(target.bytes(), Chunks(exec, to).bytes());
    EXPECT_EQ(source.bytes(), Chunks(exec, from).bytes());
}

}  // namespace slipstream::testing_view
