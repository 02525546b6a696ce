// Layers of attention as a pass calls them, over caches of noise on a device: for tests of what is the same in all of
// them, and of graphs, whose launches read positions and paths where they lay before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/float16.h"
#include "kernels/graph.h"
#include "kernels/workspace.h"

namespace slipstream::testing_cuda {

class Layers {
public:
    Layers(ExecRef exec, const KvLayout& shape, std::int64_t n_q_heads, std::int64_t window, float softcap = 0.0F)
        : exec_(exec), shape_(shape), n_q_heads_(n_q_heads), window_(window), softcap_(softcap) {
        const auto cols = static_cast<std::size_t>(n_q_heads * shape.head_dim);
        reserve_workspace(exec.device, {.n_tokens = kTokens, .attention = {{shape, n_q_heads}}});
        chunk_bytes_ = shape.chunk_bytes();
        memory_ = exec.device.allocate(kLayers * kChunks * chunk_bytes_, MemoryTag::Kv, "chunks");
        scratch_ = exec.device.allocate(2 * kRows * shape.scratch_row_bytes(), MemoryTag::Kv, "scratch");
        q_ = exec.device.allocate(kTokens * cols * 4, MemoryTag::Activations, "queries");
        out_ = exec.device.allocate(kLayers * kTokens * cols * 4, MemoryTag::Activations, "results");
        fill(memory_, shape.dtype);
        fill(scratch_, shape.dtype);
        fill(q_, DType::F32);
        for (std::size_t i = 0; i < kLayers * kChunks; ++i) chunks_.push_back(memory_.data() + i * chunk_bytes_);
        positions_.reserve(kTokens), begin_.reserve(kTokens), rows_.reserve(kTokens * kRows);
    }

    /// A random tree of `n` tokens behind `n_committed` positions; arrays stay where they are.
    void grow(std::int64_t n, std::int64_t n_committed, std::mt19937& random) {
        std::vector<std::vector<std::int32_t>> paths;
        positions_.clear(), begin_.clear(), rows_.clear();
        for (std::int32_t i = 0; i < n; ++i) {
            const auto parent = i == 0 ? -1 : static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(i));
            paths.push_back(parent < 0 ? std::vector<std::int32_t>{} : paths[parent]);
            paths.back().push_back((i * 7 + 3) % static_cast<std::int32_t>(kRows));
            positions_.push_back(static_cast<std::int32_t>(n_committed + std::ssize(paths.back())) - 1);
            begin_.push_back(static_cast<std::int32_t>(rows_.size()));
            rows_.insert(rows_.end(), paths.back().begin(), paths.back().end());
        }
        n_committed_ = n_committed;
    }
    void enqueue() {
        const std::int64_t n = std::ssize(positions_);
        const std::int64_t cols = n_q_heads_ * shape_.head_dim;
        for (std::size_t layer = 0; layer < kLayers; ++layer)
            attention(exec_, {.shape = shape_,
                              .q = matrix_view(reinterpret_cast<const float*>(q_.data()), n, cols),
                              .out = matrix_view(reinterpret_cast<float*>(out_.data()) +
                                                     static_cast<std::ptrdiff_t>(layer * kTokens) * cols,
                                                 n, cols),
                              .n_q_heads = n_q_heads_,
                              .positions = positions_.data(),
                              .chunks = chunks_.data() + layer * kChunks,
                              .n_committed = n_committed_,
                              .scratch_k = scratch_.data(),
                              .scratch_v = scratch_.data() + kRows * shape_.scratch_row_bytes(),
                              .path_begin = begin_.data(),
                              .path_rows = rows_.data(),
                              .scale = 0.125F,
                              .softcap = softcap_,
                              .window = layer == 0 ? 0 : window_});
    }
    [[nodiscard]] std::vector<std::byte> results() {
        std::vector<std::byte> found(out_.size_bytes());
        exec_.stream.copy(found.data(), out_.data(), found.size());
        exec_.stream.synchronize();
        return found;
    }
    /// So that nothing is found that an earlier call has left.
    void clear_results() {
        const std::vector<std::byte> nothing(out_.size_bytes(), std::byte{0xff});
        exec_.stream.copy(out_.data(), nothing.data(), nothing.size());
        exec_.stream.synchronize();
    }
    [[nodiscard]] GraphNumbers numbers() const { return {.n_committed = n_committed_}; }
    [[nodiscard]] std::int64_t shared_chunks() const {
        return graph_chunks(*std::ranges::max_element(positions_) / kChunkTokens + 1);
    }

    static constexpr std::size_t kLayers = 3;
    static constexpr std::size_t kChunks = 6;
    static constexpr std::size_t kRows = 40;
    static constexpr std::size_t kTokens = 12;

private:
    void fill(const Buffer& buffer, DType dtype) {
        std::mt19937 random(5);
        std::normal_distribution<float> normal;
        std::vector<std::byte> bytes(buffer.size_bytes());
        for (std::size_t at = 0; at < bytes.size(); at += row_bytes(dtype, 1)) {
            const float value = normal(random);
            if (dtype == DType::F32) std::memcpy(&bytes[at], &value, 4);
            const Half half = to_half(value);
            if (dtype == DType::F16) std::memcpy(&bytes[at], &half, 2);
        }
        exec_.stream.copy(buffer.data(), bytes.data(), bytes.size());
        exec_.stream.synchronize();
    }

    ExecRef exec_;
    KvLayout shape_;
    std::int64_t n_q_heads_;
    std::int64_t window_;
    float softcap_;
    std::size_t chunk_bytes_ = 0;
    Buffer memory_, scratch_, q_, out_;
    std::vector<std::byte*> chunks_;
    std::vector<std::int32_t> positions_, begin_, rows_;
    std::int64_t n_committed_ = 0;
};

}  // namespace slipstream::testing_cuda
