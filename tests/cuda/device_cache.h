// A layer's cache on a device for tests of attention: seeded rows in a tree of tokens, committed or in scratch, read in
// one call or in parts; and softmax over them in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "tests/cuda/device_array.h"
#include "tests/kernels/attention_cases.h"

namespace slipstream::testing_cuda {

class DeviceCache {
public:
    DeviceCache(ExecRef exec, KvLayout shape, std::int64_t n_q_heads, std::uint32_t seed, float softcap = 0.0F)
        : exec_(exec), shape_(shape), n_q_heads_(n_q_heads), softcap_(softcap), random_(seed) {}

    /// Gives each query head a sink: from far below the scores to far above them.
    DeviceCache& with_sinks() {
        for (std::int64_t head = 0; head < n_q_heads_; ++head)
            sinks_.push_back(static_cast<float>(head % 5) * 4.0F - 7.5F);
        sinks_there_ = upload_bytes(exec_, std::as_bytes(std::span<const float>(sinks_)));
        return *this;
    }

    /// A random token below `parent` (-1: the start); its number. Keys have outliers, so that a softmax can fail.
    int add_token(int parent) {
        std::normal_distribution<float> normal;
        Token token{.parent = parent};
        for (std::int64_t i = 0; i < kv_cols(); ++i) {
            token.k.push_back(normal(random_) * (random_() % 61 == 0 ? 8.0F : 1.0F));
            token.v.push_back(normal(random_));
        }
        for (std::int64_t i = 0; i < q_cols(); ++i) token.q.push_back(normal(random_));
        token.kept_k = kept(token.k);
        token.kept_v = kept(token.v);
        tokens_.push_back(std::move(token));
        return static_cast<int>(tokens_.size()) - 1;
    }
    /// A chain of `n` tokens below `parent`; the last one.
    int add_chain(int parent, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) parent = add_token(parent);
        return parent;
    }
    [[nodiscard]] std::vector<int> path(int token) const {
        std::vector<int> path;
        for (; token >= 0; token = tokens_[token].parent) path.push_back(token);
        std::reverse(path.begin(), path.end());
        return path;
    }

    /// Attention [n, n_q_heads * head_dim] of `tokens` in one pass, the first `n_committed` of the path of tokens[0]
    /// committed (common to all), its fold cut before the chunks `cuts`; each part sees its own chunks only.
    std::vector<float> run(const std::vector<int>& tokens, std::int64_t n_committed, std::int64_t window = 0,
                           const std::vector<std::int64_t>& cuts = {}) {
        const std::vector<int> first = path(tokens[0]);
        commit({first.begin(), first.begin() + n_committed});
        // Scratch holds what is not committed, in a shuffled order.
        std::vector<std::int32_t> row_of(tokens_.size(), -1);
        std::vector<int> rows;
        for (const int token : tokens) {
            const std::vector<int> steps = path(token);
            for (auto step = steps.begin() + n_committed; step != steps.end(); ++step)
                if (row_of[*step] < 0) {
                    row_of[*step] = 0;
                    rows.push_back(*step);
                }
        }
        std::shuffle(rows.begin(), rows.end(), random_);
        for (std::size_t i = 0; i < rows.size(); ++i) row_of[rows[i]] = static_cast<std::int32_t>(i);
        write_scratch(rows);
        std::vector<std::int32_t> positions;
        std::vector<std::int32_t> path_begin;
        std::vector<std::int32_t> path_rows;
        std::vector<float> q;
        for (const int token : tokens) {
            const std::vector<int> steps = path(token);
            positions.push_back(static_cast<std::int32_t>(steps.size()) - 1);
            path_begin.push_back(static_cast<std::int32_t>(path_rows.size()));
            for (auto step = steps.begin() + n_committed; step != steps.end(); ++step)
                path_rows.push_back(row_of[*step]);
            const std::vector<float>& own = tokens_[token].q;
            q.insert(q.end(), own.begin(), own.end());
        }
        const std::int64_t n = std::ssize(tokens);
        const DeviceFloats q_device(exec_, n, q_cols(), q);
        const DeviceFloats out(exec_, n, q_cols(), 9);
        const DeviceFloats state(exec_, 1,
                                 static_cast<std::int64_t>(attention_state_floats(n, n_q_heads_, shape_.head_dim)));
        AttentionArgs part{.shape = shape_,
                           .q = q_device.view(),
                           .out = {},
                           .n_q_heads = n_q_heads_,
                           .positions = positions.data(),
                           .n_committed = n_committed,
                           .scratch_k = scratch_k_.data(),
                           .scratch_v = scratch_v_.data(),
                           .path_begin = path_begin.data(),
                           .path_rows = path_rows.data(),
                           .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim))),
                           .softcap = softcap_,
                           .window = window};
        if (!sinks_.empty()) part.sinks = vector_view(sinks_there_.data(), DType::F32, n_q_heads_);
        for (std::size_t i = 0; i <= cuts.size(); ++i) {
            const bool last = i == cuts.size();
            if (!cuts.empty()) {
                part.part = i == 0 ? AttentionPart::First : last ? AttentionPart::Last : AttentionPart::Middle;
                part.state = state.data();
                part.first_chunk = i == 0 ? 0 : cuts[i - 1];
            }
            part.end_chunk = last ? kAllChunks : cuts[i];
            if (last) part.out = out.view();
            std::vector<const std::byte*> places(chunks_.size(), nullptr);
            for (std::int64_t chunk = 0; chunk < std::ssize(chunks_); ++chunk)
                if (chunk >= part.first_chunk && chunk < part.end_chunk) places[chunk] = chunks_[chunk];
            part.chunks = places.data();
            attention(exec_, part);
        }
        static_cast<void>(state.read());
        return out.read();
    }

    /// Softmax over the visible path in double, of the rounded rows; with each weight's largest value beside it: the
    /// scale of what rounding may change.
    struct Exact {
        std::vector<double> out;
        std::vector<double> magnitude;  // sum of weight * |v|
    };
    [[nodiscard]] Exact exact(int token, std::int64_t window = 0) const {
        const std::vector<int> steps = path(token);
        const std::int64_t n = std::ssize(steps);
        const std::int64_t d = shape_.head_dim;
        const double scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
        Exact result;
        for (std::int64_t head = 0; head < n_q_heads_; ++head) {
            const std::int64_t at = head / (n_q_heads_ / shape_.n_kv_heads) * d;
            const std::int64_t low = window == 0 ? 0 : std::max<std::int64_t>(0, n - window);
            std::vector<double> weights;
            const double sink = sinks_.empty() ? -INFINITY : sinks_[head];
            double best = sink;
            for (std::int64_t i = low; i < n; ++i) {
                double score = 0.0;
                for (std::int64_t e = 0; e < d; ++e)
                    score += static_cast<double>(at_of(tokens_[token].q, head * d + e)) * row(steps, i).kept_k[at + e];
                score *= scale;
                weights.push_back(softcap_ == 0.0F ? score : softcap_ * std::tanh(score / softcap_));
                best = std::max(best, weights.back());
            }
            double sum = std::exp(sink - best);
            for (double& weight : weights) sum += weight = std::exp(weight - best);
            for (std::int64_t e = 0; e < d; ++e) {
                double value = 0.0;
                double magnitude = 0.0;
                for (std::int64_t i = low; i < n; ++i) {
                    const double v = row(steps, i).kept_v[at + e];
                    value += weights[i - low] / sum * v;
                    magnitude += weights[i - low] / sum * std::fabs(v);
                }
                result.out.push_back(value);
                result.magnitude.push_back(magnitude);
            }
        }
        return result;
    }

    /// A chunk's bytes as they lie on the device.
    [[nodiscard]] std::vector<std::byte> chunk_bytes(std::size_t chunk) const {
        return download_bytes(exec_, chunks_[chunk], shape_.chunk_bytes());
    }
    [[nodiscard]] std::int64_t q_cols() const { return n_q_heads_ * shape_.head_dim; }
    [[nodiscard]] std::int64_t kv_cols() const { return shape_.n_kv_heads * shape_.head_dim; }

private:
    struct Token {
        int parent = -1;
        std::vector<float> k{}, v{}, q{};
        std::vector<double> kept_k{}, kept_v{};  // as the cache keeps k and v
    };
    [[nodiscard]] const Token& row(const std::vector<int>& steps, std::int64_t i) const { return tokens_[steps[i]]; }
    static float at_of(const std::vector<float>& values, std::int64_t i) { return values[i]; }
    [[nodiscard]] std::vector<double> kept(std::span<const float> rows) const {
        std::vector<double> all;
        for (const auto d = static_cast<std::size_t>(shape_.head_dim); !rows.empty(); rows = rows.subspan(d)) {
            const std::vector<double> row = testing_attention::rounded_row(shape_.dtype, rows.first(d));
            all.insert(all.end(), row.begin(), row.end());
        }
        return all;
    }

    // Through scratch, in two goes, so that a chunk is also entered in its middle. What nobody writes is NaN.
    void commit(const std::vector<int>& tokens) {
        storage_.clear();
        chunks_.clear();
        const std::vector<std::byte> blank(shape_.chunk_bytes(), std::byte{0xff});
        for (std::int64_t chunk = 0; chunk < ceil_div(std::ssize(tokens), kChunkTokens); ++chunk)
            chunks_.push_back(storage_.emplace_back(upload_bytes(exec_, blank)).data());
        const std::int64_t third = std::ssize(tokens) / 3;
        for (const auto& [from, to] : {std::pair{std::int64_t{0}, third}, std::pair{third, std::ssize(tokens)}}) {
            if (from == to) continue;
            write_scratch({tokens.begin() + from, tokens.begin() + to});
            std::vector<std::int32_t> rows;
            for (std::int64_t i = 0; i < to - from; ++i) rows.push_back(static_cast<std::int32_t>(i));
            kv_commit(exec_, {.shape = shape_,
                              .scratch_k = scratch_k_.data(),
                              .scratch_v = scratch_v_.data(),
                              .scratch_rows = rows.data(),
                              .n_rows = to - from,
                              .first_position = from,
                              .chunks = chunks_.data()});
            exec_.stream.synchronize();
        }
    }

    void write_scratch(const std::vector<int>& tokens) {
        const std::vector<std::byte> blank(std::max<std::size_t>(1, tokens.size()) * shape_.scratch_row_bytes(),
                                           std::byte{0xff});
        scratch_k_ = upload_bytes(exec_, blank);
        scratch_v_ = upload_bytes(exec_, blank);
        std::vector<float> k, v;
        std::vector<std::int32_t> rows;
        for (const int number : tokens) {
            const Token& token = tokens_[number];
            rows.push_back(static_cast<std::int32_t>(rows.size()));
            k.insert(k.end(), token.k.begin(), token.k.end());
            v.insert(v.end(), token.v.begin(), token.v.end());
        }
        const std::int64_t n = std::ssize(rows);
        const DeviceFloats k_device(exec_, n, kv_cols(), k);
        const DeviceFloats v_device(exec_, n, kv_cols(), v);
        kv_write(exec_, {.shape = shape_,
                         .k = k_device.view(),
                         .v = v_device.view(),
                         .scratch_k = scratch_k_.data(),
                         .scratch_v = scratch_v_.data(),
                         .scratch_rows = rows.data()});
        exec_.stream.synchronize();
    }

    ExecRef exec_;
    KvLayout shape_;
    std::int64_t n_q_heads_;
    float softcap_;
    std::vector<float> sinks_;  // [n_q_heads], or empty
    Buffer sinks_there_;        // their copy on the device
    std::mt19937 random_;
    std::vector<Token> tokens_;
    Buffer scratch_k_, scratch_v_;
    std::vector<Buffer> storage_;
    std::vector<std::byte*> chunks_;
};

}  // namespace slipstream::testing_cuda
