// View pages on a device for tests: rows rounded to pages, and attention over them and over rows that follow, near
// softmax in double over what the pages hold. Knows no layout of pages: what they hold follows from the definition of
// their rounding.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/page_code.h"
#include "kernels/view_pages.h"
#include "tests/kernels/kv_view_cases.h"

namespace slipstream::testing_view {

/// The numbers that a page holds instead of `numbers`.
inline std::vector<double> in_four_bits(const std::vector<double>& numbers) {
    float least = INFINITY;
    float largest = -INFINITY;
    for (const double number : numbers) {
        least = std::min(least, page_within(static_cast<float>(number)));
        largest = std::max(largest, page_within(static_cast<float>(number)));
    }
    const Half minimum = page_minimum(least);
    const Half scale = page_scale(largest, minimum);
    std::vector<double> held;
    for (const double number : numbers)
        held.push_back(static_cast<double>(to_float(scale)) *
                           page_code(page_within(static_cast<float>(number)), minimum, page_factor(scale)) +
                       static_cast<double>(to_float(minimum)));
    return held;
}

/// Keys and values of a kv head, [n_slots][head_dim].
struct HeadKv {
    std::vector<std::vector<double>> k, v;
};

/// Slots of the kv heads of a layer in pages: the first slots of `rows`, n_slots[head] of them. The pages of heads are
/// in the order of `n_slots`, with a page that nothing uses between them.
class HeadPages {
public:
    HeadPages(ExecRef exec, const Rows& rows, const std::vector<std::int64_t>& n_slots)
        : HeadPages(exec, rows, n_slots, Chunks(exec, rows).pointers()) {}
    /// `chunks` hold the rows.
    HeadPages(ExecRef exec, const Rows& rows, const std::vector<std::int64_t>& n_slots, std::byte* const* chunks)
        : exec_(exec), rows_(rows), ranges_(n_slots.size()) {
        std::vector<PageFill> fills;
        std::int32_t n_pages = 1;
        for (std::size_t head = 0; head < n_slots.size(); ++head) {
            ranges_[head] = {n_pages, static_cast<std::int32_t>(n_slots[head])};
            most_slots_ = std::max(most_slots_, n_slots[head]);
            for (std::int64_t slot = 0; slot < n_slots[head]; slot += kPageSlots)
                fills.push_back({static_cast<std::int32_t>(head), static_cast<std::int32_t>(slot / kPageSlots),
                                 static_cast<std::int32_t>(std::min(kPageSlots, n_slots[head] - slot)), n_pages++});
            ++n_pages;
        }
        // Pages are written in any order.
        std::shuffle(fills.begin(), fills.end(), std::mt19937(1));
        const std::size_t page = view_page_bytes(rows.shape.head_dim);
        const std::vector<std::byte> blank(static_cast<std::size_t>(n_pages) * page, std::byte{0xff});
        pages_ = testing_cuda::upload_bytes(exec, blank);
        view_pages_write(exec, {.shape = rows.shape,
                                .from = chunks,
                                .fills = fills.data(),
                                .n_fills = std::ssize(fills),
                                .pages = pages_.data()});
        ranges_there_ = testing_cuda::upload_bytes(exec, std::as_bytes(std::span<const PageRange>(ranges_)));
        written_.resize(static_cast<std::size_t>(n_pages));
        for (const PageFill& fill : fills) written_[fill.page] = true;
        const std::vector<std::byte> found = bytes();
        for (std::size_t i = 0; i < static_cast<std::size_t>(n_pages); ++i)
            EXPECT_TRUE(written_[i] || std::all_of(found.begin() + static_cast<std::ptrdiff_t>(i * page),
                                                   found.begin() + static_cast<std::ptrdiff_t>((i + 1) * page),
                                                   [](std::byte byte) { return byte == std::byte{0xff}; }))
                << "page " << i;
    }
    /// Makes heads have fewer slots, on the device; what pages hold stays as it is.
    void set_slots(const std::vector<std::int64_t>& n_slots) {
        for (std::size_t head = 0; head < n_slots.size(); ++head)
            ranges_[head].n_slots = static_cast<std::int32_t>(n_slots[head]);
        exec_.stream.copy(ranges_there_.data(), ranges_.data(), ranges_.size() * sizeof(PageRange));
        exec_.stream.synchronize();
    }
    [[nodiscard]] std::vector<std::byte> bytes() const {
        return testing_cuda::download_bytes(exec_, pages_.data(),
                                            written_.size() * view_page_bytes(rows_.shape.head_dim));
    }
    [[nodiscard]] const std::byte* pages() const { return pages_.data(); }
    [[nodiscard]] const PageRange* ranges() const { return reinterpret_cast<const PageRange*>(ranges_there_.data()); }
    [[nodiscard]] std::int64_t most_slots() const { return most_slots_; }
    [[nodiscard]] const Rows& rows() const { return rows_; }

    /// What the pages of a head hold.
    [[nodiscard]] HeadKv held(std::int64_t head) const {
        HeadKv held;
        const std::int64_t n = ranges_[head].n_slots;
        const std::int64_t d = rows_.shape.head_dim;
        held.k.resize(static_cast<std::size_t>(n), std::vector<double>(static_cast<std::size_t>(d)));
        for (std::int64_t slot = 0; slot < n; ++slot) {
            std::vector<double> value;
            for (std::int64_t e = 0; e < d; ++e) value.push_back(rows_.value(slot, head, e));
            held.v.push_back(in_four_bits(value));
        }
        for (std::int64_t first = 0; first < n; first += kPageSlots)
            for (std::int64_t e = 0; e < d; ++e) {
                std::vector<double> channel;
                for (std::int64_t slot = first; slot < std::min(n, first + kPageSlots); ++slot)
                    channel.push_back(rows_.key(slot, head, e));
                const std::vector<double> codes = in_four_bits(channel);
                for (std::size_t i = 0; i < codes.size(); ++i)
                    held.k[static_cast<std::size_t>(first) + i][e] = codes[i];
            }
        return held;
    }

private:
    ExecRef exec_;
    Rows rows_;
    std::vector<PageRange> ranges_;
    std::vector<bool> written_;
    std::int64_t most_slots_ = 0;
    Buffer pages_;
    Buffer ranges_there_;
};

/// Queries of a pass over pages.
struct PageQueries {
    std::int64_t n_tokens;
    std::int64_t n_heads;  // query heads
    std::int64_t head_dim;
    std::vector<float> q;  // [n_tokens, n_heads * head_dim]
    float scale;
    float softcap = 0.0F;
    std::vector<float> sinks{};  // [n_heads], or empty

    PageQueries(std::int64_t tokens, const KvLayout& shape, std::int64_t group, std::uint32_t seed)
        : n_tokens(tokens),
          n_heads(group * shape.n_kv_heads),
          head_dim(shape.head_dim),
          scale(1.0F / std::sqrt(static_cast<float>(shape.head_dim))) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (std::int64_t i = 0; i < n_tokens * n_heads * head_dim; ++i) q.push_back(normal(random));
    }
    PageQueries& with_softcap(float cap) {
        softcap = cap;
        return *this;
    }
    /// Gives each query head a sink: from far below the scores to far above them.
    PageQueries& with_sinks() {
        for (std::int64_t head = 0; head < n_heads; ++head) sinks.push_back(static_cast<float>(head % 5) * 4.0F - 7.5F);
        return *this;
    }
    /// The queries of one token.
    [[nodiscard]] PageQueries of_token(std::int64_t token) const {
        PageQueries one = *this;
        one.n_tokens = 1;
        one.q.assign(q.begin() + token * n_heads * head_dim, q.begin() + (token + 1) * n_heads * head_dim);
        return one;
    }
};

/// The fold over pages: o [n_tokens, n_heads, head_dim], then m, then l.
inline std::vector<float> fold_pages(ExecRef exec, const HeadPages& pages, const PageQueries& queries,
                                     std::int64_t padding = 0) {
    const DeviceFloats q(exec, queries.n_tokens, queries.n_heads * queries.head_dim, queries.q, padding);
    const DeviceFloats sinks(
        exec, 1, queries.n_heads,
        queries.sinks.empty() ? std::vector<float>(static_cast<std::size_t>(queries.n_heads)) : queries.sinks);
    const DeviceFloats state(
        exec, 1,
        static_cast<std::int64_t>(attention_state_floats(queries.n_tokens, queries.n_heads, queries.head_dim)));
    view_pages_attention(exec, {.shape = pages.rows().shape,
                                .q = q.view(),
                                .n_q_heads = queries.n_heads,
                                .pages = pages.pages(),
                                .ranges = pages.ranges(),
                                .most_slots = pages.most_slots(),
                                .scale = queries.scale,
                                .softcap = queries.softcap,
                                .sinks = queries.sinks.empty() ? ConstTensorView{} : sinks.view(),
                                .state = state.data()});
    return state.read();
}

/// Softmax of one query over keys and values in double, and how far rounding may take its results.
struct ExactFold {
    double log_sum = -INFINITY;  // m + log l
    std::vector<double> mean;    // o / l
    double log_error = 0.0;
    double mean_error = 0.0;
    double rounded_error = 0.0;  // of the mean, for each unit by which queries and weights are rounded
};
inline ExactFold exact_fold(const PageQueries& queries, std::int64_t token, std::int64_t head, const HeadKv& kv) {
    const std::int64_t d = queries.head_dim;
    const float* q = queries.q.data() + (token * queries.n_heads + head) * d;
    const auto scale = static_cast<double>(queries.scale);
    const auto cap = static_cast<double>(queries.softcap);
    const double sink = queries.sinks.empty() ? -INFINITY : queries.sinks[head];
    // Kernels add products with codes and with minimums apart: each at most three times that with the largest key.
    double size = 0.0;
    for (std::int64_t e = 0; e < d; ++e) {
        double largest = 0.0;
        for (const std::vector<double>& key : kv.k) largest = std::max(largest, std::abs(key[e]));
        size += 3 * largest * std::abs(static_cast<double>(q[e])) * scale;
    }
    std::vector<double> scores;
    double best = sink;
    for (const std::vector<double>& key : kv.k) {
        double score = 0.0;
        for (std::int64_t e = 0; e < d; ++e) score += static_cast<double>(q[e]) * key[e];
        score *= scale;
        scores.push_back(cap == 0.0 ? score : cap * std::tanh(score / cap));
        best = std::max(best, scores.back());
    }
    ExactFold fold{.mean = std::vector<double>(static_cast<std::size_t>(d))};
    double sum = std::exp(sink - best);
    double largest = 0.0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        const double weight = std::exp(scores[i] - best);
        sum += weight;
        for (std::size_t e = 0; e < fold.mean.size(); ++e) {
            fold.mean[e] += weight * kv.v[i][e];
            largest = std::max(largest, std::abs(kv.v[i][e]));
        }
    }
    for (double& element : fold.mean) element /= sum;
    fold.log_sum = best + std::log(sum);
    fold.log_error = (static_cast<double>(d) + 16) * 0x1p-24 * size + 0x1p-18 + 0x1p-20 * cap;
    fold.rounded_error = 3 * largest * (1 + size);
    fold.mean_error = 3 * largest * (2 * fold.log_error + 128 * 0x1p-24);
    return fold;
}

/// How a kernel computes with queries and weights.
enum class PageNumbers : std::uint8_t {
    Floats,
    EightBits,  // rounded to 8 bits: sums are judged together, by their mean square error
};

// Errors with EightBits: three times what the kernels have at most in these tests. Of m + log l, and the sum of squares
// of the errors of o / l over the sum of its squares.
inline constexpr double kEightBitsLogError = 0.3;
inline constexpr double kEightBitsSquareError = 5e-3;

/// The state of a fold over pages is near the exact one, for all queries. `unit`: what m counts, 1 or, on a CUDA
/// device, ln 2.
inline void expect_exact_fold(const HeadPages& pages, const PageQueries& queries, const std::vector<float>& state,
                              double unit = 1.0, PageNumbers numbers = PageNumbers::Floats) {
    const KvLayout& shape = pages.rows().shape;
    const std::int64_t d = shape.head_dim;
    const std::int64_t n = queries.n_tokens * queries.n_heads;
    const std::int64_t group = queries.n_heads / shape.n_kv_heads;
    ASSERT_EQ(std::ssize(state), n * (d + 2));
    double square_error = 0.0;
    double squares = 0.0;
    for (std::int64_t head = 0; head < queries.n_heads; ++head) {
        const HeadKv held = pages.held(head / group);
        for (std::int64_t token = 0; token < queries.n_tokens; ++token) {
            const std::int64_t query = token * queries.n_heads + head;
            const float m = state[n * d + query];
            const float l = state[n * (d + 1) + query];
            const float* o = state.data() + query * d;
            if (held.k.empty()) {
                // The fresh state.
                const double sink = queries.sinks.empty() ? 0.0 : queries.sinks[head];
                EXPECT_TRUE(queries.sinks.empty() ? m == -INFINITY : std::abs(m * unit - sink) < 1e-6) << m;
                EXPECT_EQ(l, queries.sinks.empty() ? 0.0F : 1.0F);
                for (std::int64_t e = 0; e < d; ++e) EXPECT_EQ(o[e], 0.0F);
                continue;
            }
            const ExactFold exact = exact_fold(queries, token, head, held);
            const bool rounds = numbers == PageNumbers::EightBits;
            ASSERT_NEAR(unit * static_cast<double>(m) + std::log(static_cast<double>(l)), exact.log_sum,
                        exact.log_error + (rounds ? kEightBitsLogError : 0.0))
                << "token " << token << ", head " << head;
            for (std::int64_t e = 0; e < d; ++e) {
                const double mean = static_cast<double>(o[e]) / static_cast<double>(l);
                square_error += (mean - exact.mean[e]) * (mean - exact.mean[e]);
                squares += exact.mean[e] * exact.mean[e];
                if (rounds) continue;
                ASSERT_NEAR(mean, exact.mean[e], exact.mean_error)
                    << "token " << token << ", head " << head << ", element " << e;
            }
        }
    }
    if (numbers == PageNumbers::EightBits) {
        EXPECT_LE(square_error, kEightBitsSquareError * squares);
    }
}

/// Each token alone has the bits that it has among the others.
inline void expect_same_alone(ExecRef exec, const HeadPages& pages, const PageQueries& queries) {
    const std::vector<float> together = fold_pages(exec, pages, queries);
    const std::int64_t n = queries.n_heads;
    const std::int64_t d = queries.head_dim;
    for (std::int64_t token = 0; token < queries.n_tokens; ++token) {
        const std::vector<float> alone = fold_pages(exec, pages, queries.of_token(token));
        std::int64_t from = 0;
        std::int64_t at = 0;
        for (const std::int64_t floats : {n * d, n, n}) {  // o, m, l
            EXPECT_TRUE(testing_cuda::same_bits(
                std::span(alone).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(floats)),
                std::span(together).subspan(static_cast<std::size_t>(from + token * floats),
                                            static_cast<std::size_t>(floats))))
                << "token " << token << " of " << queries.n_tokens;
            at += floats;
            from += queries.n_tokens * floats;
        }
    }
}

/// Attention over pages, then over the committed rows `recent`, then over `fresh`, the rows of the tokens of the pass,
/// in scratch: near softmax in double over all of them. `rounding`: by how much attention() rounds queries and weights,
/// relative to their size.
inline void expect_exact_joined(ExecRef exec, const HeadPages& pages, const PageQueries& queries, const Rows& recent,
                                const Rows& fresh, double rounding = 0.0, PageNumbers numbers = PageNumbers::Floats) {
    const KvLayout& shape = pages.rows().shape;
    const std::int64_t n = queries.n_tokens;
    const std::int64_t d = queries.head_dim;
    const DeviceFloats q(exec, n, queries.n_heads * d, queries.q);
    const DeviceFloats sinks(exec, 1, queries.n_heads, std::vector<float>(queries.sinks));
    const DeviceFloats state(exec, 1, static_cast<std::int64_t>(attention_state_floats(n, queries.n_heads, d)));
    const DeviceFloats out(exec, n, queries.n_heads * d);
    view_pages_attention(exec, {.shape = shape,
                                .q = q.view(),
                                .n_q_heads = queries.n_heads,
                                .pages = pages.pages(),
                                .ranges = pages.ranges(),
                                .most_slots = pages.most_slots(),
                                .scale = queries.scale,
                                .softcap = queries.softcap,
                                .sinks = sinks.view(),
                                .state = state.data()});
    const Chunks chunks(exec, recent);
    const std::vector<const std::byte*> pointers = chunks.pointers(0, chunks.count());
    const Buffer scratch_k = testing_cuda::upload_bytes(exec, fresh.k);
    const Buffer scratch_v = testing_cuda::upload_bytes(exec, fresh.v);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<std::int32_t> path_begin(static_cast<std::size_t>(n), 0);  // token t sees the rows 0 to t
    std::vector<std::int32_t> positions;
    for (const std::int32_t row : rows) positions.push_back(static_cast<std::int32_t>(recent.n_slots) + row);
    attention(exec, {.shape = shape,
                     .q = q.view(),
                     .out = out.view(),
                     .n_q_heads = queries.n_heads,
                     .positions = positions.data(),
                     .chunks = pointers.data(),
                     .n_committed = recent.n_slots,
                     .scratch_k = scratch_k.data(),
                     .scratch_v = scratch_v.data(),
                     .path_begin = path_begin.data(),
                     .path_rows = rows.data(),
                     .scale = queries.scale,
                     .softcap = queries.softcap,
                     .sinks = sinks.view(),
                     .part = AttentionPart::Last,
                     .state = state.data()});
    const std::vector<float> found = out.read();
    const auto append = [&](HeadKv& kv, const Rows& from, std::int64_t slot, std::int64_t head) {
        kv.k.emplace_back();
        kv.v.emplace_back();
        for (std::int64_t e = 0; e < d; ++e) {
            kv.k.back().push_back(from.key(slot, head, e));
            kv.v.back().push_back(from.value(slot, head, e));
        }
    };
    double square_error = 0.0;
    double squares = 0.0;
    for (std::int64_t head = 0; head < queries.n_heads; ++head) {
        const std::int64_t kv_head = head / (queries.n_heads / shape.n_kv_heads);
        HeadKv kv = pages.held(kv_head);
        for (std::int64_t slot = 0; slot < recent.n_slots; ++slot) append(kv, recent, slot, kv_head);
        for (std::int64_t token = 0; token < n; ++token) {
            append(kv, fresh, token, kv_head);
            const ExactFold exact = exact_fold(queries, token, head, kv);
            for (std::int64_t e = 0; e < d; ++e) {
                const double mean = found[(token * queries.n_heads + head) * d + e];
                square_error += (mean - exact.mean[e]) * (mean - exact.mean[e]);
                squares += exact.mean[e] * exact.mean[e];
                if (numbers == PageNumbers::EightBits) continue;
                ASSERT_NEAR(mean, exact.mean[e], exact.mean_error + rounding * exact.rounded_error)
                    << "token " << token << ", head " << head << ", element " << e;
            }
        }
    }
    if (numbers == PageNumbers::EightBits) {
        EXPECT_LE(square_error, kEightBitsSquareError * squares);
    }
}

/// Rows that are hard to round: channels and values that are one number, keys far from 0, numbers that F16 rounds to 0,
/// and of types with a larger range, numbers beyond that of F16.
inline Rows hard_rows(const KvLayout& shape, std::int64_t n_slots) {
    Rows rows(shape, n_slots, 11);
    const bool wide = shape.dtype == DType::F32 || shape.dtype == DType::BF16;
    if (shape.has_scales()) {  // codes of one number
        for (std::int64_t slot = 0; slot < n_slots; ++slot)
            for (std::int64_t head = 0; head < shape.n_kv_heads; ++head) {
                rows.put(rows.head_row(false, slot, head).data(), 0, 0.0F);
                if (slot % 3 == 0)
                    for (std::int64_t d = 0; d < shape.head_dim; ++d)
                        rows.put(rows.head_row(true, slot, head).data(), d, 9.0F);
            }
        return rows;
    }
    std::mt19937 random(12);
    std::normal_distribution<float> normal;
    for (std::int64_t slot = 0; slot < n_slots; ++slot)
        for (std::int64_t head = 0; head < shape.n_kv_heads; ++head) {
            std::byte* k = rows.head_row(false, slot, head).data();
            std::byte* v = rows.head_row(true, slot, head).data();
            rows.put(k, 0, 0.1F);
            rows.put(k, 1, 0.0F);
            rows.put(k, 2, -200.0F + normal(random));
            rows.put(k, 3, 333.0F + normal(random));
            rows.put(k, 4, 1e-7F * normal(random));
            rows.put(k, 5, slot % 2 == 0 ? -0.0F : 0.0F);
            rows.put(v, 0, slot % 5 == 0 && wide ? 1e30F : normal(random));
            rows.put(v, 1, slot % 7 == 0 ? 65504.0F : normal(random));
            if (slot % 3 == 0)
                for (std::int64_t d = 0; d < shape.head_dim; ++d) rows.put(v, d, slot % 2 == 0 ? -0.7F : 0.0F);
        }
    return rows;
}

}  // namespace slipstream::testing_view
