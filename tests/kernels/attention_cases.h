// A layer's cache for tests of attention: seeded rows in a tree of tokens, committed or in scratch, read in one call or
// in parts; and softmax over them in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/float16.h"
#include "kernels/cpu_device.h"

namespace slipstream::testing_attention {

/// The form, where the machine has it: fixtures are made before their test can be skipped.
inline CpuForm form_or_best(CpuForm form) {
    return cpu_has_form(form) ? form : best_cpu_form();
}

/// Returns an element as a cache of F16, BF16 or F32 keeps it.
inline float round_to(DType type, float value) {
    if (type == DType::F16) return to_float(to_half(value));
    if (type == DType::BF16) return to_float(to_bfloat16(value));
    return value;
}

/// Returns a head's row as the cache keeps it. Of Q8_0: scales and codes by the definition in q8_row.h, written out
/// here with the library's rounding, and their products in double.
inline std::vector<double> rounded_row(DType type, std::span<const float> row) {
    std::vector<double> rounded;
    float scale = 0.0F;  // of the block of 32 that an element of Q8_0 is in
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (type != DType::Q8_0) {
            rounded.push_back(round_to(type, row[i]));
            continue;
        }
        if (i % 32 == 0) {
            float most = 0.0F;
            for (std::size_t other = i; other < std::min(i + 32, row.size()); ++other)
                most = std::max(most, std::abs(row[other]));
            BFloat16 up = to_bfloat16(most / 127.0F);
            if (to_float(up) < most / 127.0F) ++up.bits;
            scale = to_float(up);
        }
        rounded.push_back(std::nearbyint(row[i] * (1.0F / scale)) * static_cast<double>(scale));
    }
    return rounded;
}

// One layer's cache with random rows: committed positions, then a tree of scratch rows below them.
class Cache {
public:
    Cache(CpuDevice& device, KvLayout shape, std::int64_t n_q_heads, std::uint32_t seed, float softcap = 0.0F)
        : device_(device),
          stream_(device.make_stream(StreamKind::Compute)),
          shape_(shape),
          n_q_heads_(n_q_heads),
          softcap_(softcap),
          random_(seed) {}

    /// Gives each query head a sink: from far below the scores to far above them.
    Cache& with_sinks() {
        for (std::int64_t head = 0; head < n_q_heads_; ++head)
            sinks_.push_back(static_cast<float>(head % 5) * 4.0F - 7.5F);
        return *this;
    }

    ExecRef exec() { return {device_, *stream_}; }
    std::int64_t cols() const { return shape_.n_kv_heads * shape_.head_dim; }

    // A random token below `parent` (-1: the start); returns its number. Keys have outliers, so that a softmax can
    // fail.
    int add_token(int parent) {
        std::normal_distribution<float> normal;
        std::vector<float> k, v, q;
        for (std::int64_t i = 0; i < cols(); ++i) {
            k.push_back(normal(random_) * (random_() % 61 == 0 ? 8.0F : 1.0F));
            v.push_back(normal(random_));
        }
        for (std::int64_t i = 0; i < n_q_heads_ * shape_.head_dim; ++i) q.push_back(normal(random_));
        k_.push_back(k), v_.push_back(v), q_.push_back(q);
        parents_.push_back(parent);
        return static_cast<int>(parents_.size()) - 1;
    }
    std::vector<int> path(int token) const {
        std::vector<int> path;
        for (; token >= 0; token = parents_[token]) path.insert(path.begin(), token);
        return path;
    }

    // Attention of `tokens` in one pass, the first n_committed of the path of tokens[0] committed (common to all).
    // Scratch rows are given out in an order that `shuffle` changes.
    std::vector<float> run(const std::vector<int>& tokens, std::int64_t n_committed, std::int64_t window,
                           unsigned shuffle) {
        prepare(tokens, n_committed, shuffle);
        return attend(device_, window, {});
    }

    // Rows and arguments of such a pass, for attend().
    void prepare(const std::vector<int>& tokens, std::int64_t n_committed, unsigned shuffle) {
        const std::vector<int> first = path(tokens[0]);
        std::vector<int> rows;  // token of each scratch row
        for (const int token : tokens)
            for (const int step : path(token))
                if (std::find(first.begin(), first.begin() + n_committed, step) == first.begin() + n_committed &&
                    std::find(rows.begin(), rows.end(), step) == rows.end())
                    rows.push_back(step);
        std::mt19937 order(shuffle);
        if (shuffle != 0) std::shuffle(rows.begin(), rows.end(), order);
        const auto row_of = [&](int token) {
            return static_cast<std::int32_t>(std::find(rows.begin(), rows.end(), token) - rows.begin());
        };
        n_committed_ = n_committed;
        commit(std::vector<int>(first.begin(), first.begin() + n_committed));
        fill_scratch(rows);
        pass_ = {};
        for (const int token : tokens) {
            const std::vector<int> steps = path(token);
            pass_.positions.push_back(static_cast<std::int32_t>(steps.size()) - 1);
            pass_.path_begin.push_back(static_cast<std::int32_t>(pass_.path_rows.size()));
            for (std::size_t i = static_cast<std::size_t>(n_committed); i < steps.size(); ++i)
                pass_.path_rows.push_back(row_of(steps[i]));
            const auto& own = q_[token];
            pass_.q.insert(pass_.q.end(), own.begin(), own.end());
        }
    }

    // Chunks that hold a position of the pass that was prepared.
    std::int64_t n_chunks() const {
        return 1 + *std::max_element(pass_.positions.begin(), pass_.positions.end()) / kChunkTokens;
    }

    // Arguments of the pass that was prepared, `out` left to the caller.
    AttentionArgs args(std::int64_t window) const {
        return {.shape = shape_,
                .q = matrix_view(pass_.q.data(), n_tokens(), out_cols()),
                .n_q_heads = n_q_heads_,
                .positions = pass_.positions.data(),
                .chunks = chunks_.data(),
                .n_committed = n_committed_,
                .scratch_k = scratch_k_.data(),
                .scratch_v = scratch_v_.data(),
                .path_begin = pass_.path_begin.data(),
                .path_rows = pass_.path_rows.data(),
                .scale = scale(),
                .softcap = softcap_,
                .window = window,
                .sinks = sinks_.empty()
                             ? ConstTensorView{}
                             : vector_view(reinterpret_cast<const std::byte*>(sinks_.data()), DType::F32, n_q_heads_)};
    }

    // Attention of the pass that was prepared, on `device`, its fold cut before the chunks `cuts` (ascending; none: one
    // whole call). Each part sees its own chunks only, in memory of its own.
    std::vector<float> attend(CpuDevice& device, std::int64_t window, const std::vector<std::int64_t>& cuts) const {
        const auto stream = device.make_stream(StreamKind::Compute);
        const auto n_out = static_cast<std::size_t>(n_tokens() * out_cols());
        std::vector<float> out(n_out + kGuard, std::nanf(""));
        const std::size_t n_state = attention_state_floats(n_tokens(), n_q_heads_, shape_.head_dim);
        std::vector<float> state(n_state + kGuard, std::nanf(""));
        AttentionArgs part = args(window);
        for (std::size_t i = 0; i <= cuts.size(); ++i) {
            const bool last = i == cuts.size();
            if (!cuts.empty()) {
                part.part = i == 0 ? AttentionPart::First : last ? AttentionPart::Last : AttentionPart::Middle;
                part.state = state.data();
                part.first_chunk = i == 0 ? 0 : cuts[i - 1];
                if (!last) part.end_chunk = cuts[i];
            }
            if (last) {
                part.end_chunk = kAllChunks;
                part.out = matrix_view(out.data(), n_tokens(), out_cols());
            }
            std::vector<std::vector<std::byte>> arrived;
            std::vector<const std::byte*> places(chunks_.size(), nullptr);
            for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
                const auto number = static_cast<std::int64_t>(chunk);
                if (number < part.first_chunk || number >= part.end_chunk) continue;
                places[chunk] = arrived.emplace_back(chunks_[chunk], chunks_[chunk] + shape_.chunk_bytes()).data();
            }
            part.chunks = arrived.empty() ? nullptr : places.data();
            attention({device, *stream}, part);
        }
        for (std::size_t i = 0; i < kGuard; ++i)
            EXPECT_TRUE(std::isnan(out[n_out + i]) && std::isnan(state[n_state + i]));
        out.resize(n_out);
        return out;
    }

    // Softmax over the visible path in double, of the rounded rows.
    std::vector<double> reference(int token, std::int64_t window) const {
        const std::vector<int> steps = path(token);
        const auto n = static_cast<std::int64_t>(steps.size());
        const std::int64_t d = shape_.head_dim;
        const auto row_of = [&](const std::vector<std::vector<float>>& rows, int step, std::int64_t at) {
            return rounded_row(
                shape_.dtype, std::span(rows[step]).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(d)));
        };
        std::vector<double> out;
        for (std::int64_t head = 0; head < n_q_heads_; ++head) {
            const std::int64_t at = head / (n_q_heads_ / shape_.n_kv_heads) * d;
            std::vector<double> weights;
            const double sink = sinks_.empty() ? -INFINITY : sinks_[head];
            double best = sink, sum = 0.0;
            const std::int64_t low = window == 0 ? 0 : std::max<std::int64_t>(0, n - window);
            for (std::int64_t i = low; i < n; ++i) {
                double score = 0.0;
                const std::vector<double> key = row_of(k_, steps[i], at);
                for (std::int64_t e = 0; e < d; ++e) score += static_cast<double>(q_[token][head * d + e]) * key[e];
                score *= scale();
                weights.push_back(softcap_ == 0.0F ? score : softcap_ * std::tanh(score / softcap_));
                best = std::max(best, weights.back());
            }
            for (double& weight : weights) sum += weight = std::exp(weight - best);
            sum += std::exp(sink - best);
            std::vector<double> mean(static_cast<std::size_t>(d));
            for (std::int64_t i = low; i < n; ++i) {
                const std::vector<double> value = row_of(v_, steps[i], at);
                for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += weights[i - low] / sum * value[e];
            }
            out.insert(out.end(), mean.begin(), mean.end());
        }
        return out;
    }

private:
    static constexpr std::size_t kGuard = 32;

    std::int64_t n_tokens() const { return static_cast<std::int64_t>(pass_.positions.size()); }
    std::int64_t out_cols() const { return n_q_heads_ * shape_.head_dim; }
    float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim))); }

    // Commits through scratch, in two goes, so that a chunk is also entered in its middle.
    void commit(const std::vector<int>& tokens) {
        const auto n = static_cast<std::int64_t>(tokens.size());
        storage_.assign(static_cast<std::size_t>(ceil_div(n, kChunkTokens)) * shape_.chunk_bytes(), std::byte{0xff});
        chunks_.clear();
        for (std::size_t at = 0; at < storage_.size(); at += shape_.chunk_bytes())
            chunks_.push_back(storage_.data() + at);
        const std::int64_t half = n / 3;
        for (const auto& [from, count] : {std::pair{std::int64_t{0}, half}, std::pair{half, n - half}}) {
            if (count == 0) continue;
            fill_scratch({tokens.begin() + from, tokens.begin() + from + count});
            std::vector<std::int32_t> all;
            for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<std::int32_t>(i));
            kv_commit(exec(), {.shape = shape_,
                               .scratch_k = scratch_k_.data(),
                               .scratch_v = scratch_v_.data(),
                               .scratch_rows = all.data(),
                               .n_rows = count,
                               .first_position = from,
                               .chunks = chunks_.data()});
        }
    }

    void fill_scratch(const std::vector<int>& tokens) {
        const std::size_t bytes = std::max<std::size_t>(1, tokens.size()) * shape_.scratch_row_bytes();
        scratch_k_.assign(bytes, std::byte{0x55});
        scratch_v_.assign(bytes, std::byte{0x55});
        std::vector<float> k, v;
        std::vector<std::int32_t> rows;
        for (const int token : tokens) {
            rows.push_back(static_cast<std::int32_t>(rows.size()));
            k.insert(k.end(), k_[token].begin(), k_[token].end());
            v.insert(v.end(), v_[token].begin(), v_[token].end());
        }
        kv_write(exec(),
                 {.shape = shape_,
                  .k = matrix_view(static_cast<const float*>(k.data()), static_cast<std::int64_t>(rows.size()), cols()),
                  .v = matrix_view(static_cast<const float*>(v.data()), static_cast<std::int64_t>(rows.size()), cols()),
                  .scratch_k = scratch_k_.data(),
                  .scratch_v = scratch_v_.data(),
                  .scratch_rows = rows.data()});
    }

    CpuDevice& device_;
    std::unique_ptr<Stream> stream_;
    KvLayout shape_;
    std::int64_t n_q_heads_;
    float softcap_;
    std::vector<float> sinks_;  // [n_q_heads], or empty
    std::mt19937 random_;
    std::vector<std::vector<float>> k_, v_, q_;
    std::vector<int> parents_;
    std::vector<std::byte> scratch_k_, scratch_v_;
    std::vector<std::byte> storage_;
    std::vector<std::byte*> chunks_;
    std::int64_t n_committed_ = 0;
    struct Pass {
        std::vector<std::int32_t> positions, path_begin, path_rows;
        std::vector<float> q;
    } pass_;
};

/// A test in each form that the machine has, with each KV type.
class FormsAndTypes : public testing::TestWithParam<std::tuple<CpuForm, DType>> {
protected:
    void SetUp() override {
        if (!cpu_has_form(std::get<0>(GetParam())))
            GTEST_SKIP() << "this machine has no " << cpu_form_name(std::get<0>(GetParam()));
    }
    CpuDevice device(int n_threads = 1) { return CpuDevice({.n_threads = n_threads, .form = std::get<0>(GetParam())}); }
    DType dtype() const { return std::get<1>(GetParam()); }
};

/// Instance of a parameterised test: a form and a KV type, named "avx2_F16".
inline std::string case_name(const testing::TestParamInfo<std::tuple<CpuForm, DType>>& param) {
    return std::string(cpu_form_name(std::get<0>(param.param))) + "_" +
           std::string(dtype_name(std::get<1>(param.param)));
}

}  // namespace slipstream::testing_attention
