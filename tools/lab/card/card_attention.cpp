// Attention after a long context: one token, a draft tree, a prefill chunk. The KV is that of several layers, used in
// turn, so that short contexts are read from memory, too, and not from the cache.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/workspace.h"
#include "tools/lab/card/card_runs.h"
#include "tools/lab/random_model/random_model_blocks.h"

namespace slipstream::tools {

namespace {

// Positions and paths of a pass of n tokens, as an attention call gets them.
struct PassShape {
    std::string name;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> path_begin;
    std::vector<std::int32_t> path_rows;
};

// Returns a chain. Row i is token i, so all tokens share one list of rows.
PassShape chain(const std::string& name, std::int64_t n, std::int64_t n_committed) {
    PassShape shape{.name = name};
    for (std::int64_t i = 0; i < n; ++i) {
        shape.positions.push_back(static_cast<std::int32_t>(n_committed + i));
        shape.path_begin.push_back(0);
        shape.path_rows.push_back(static_cast<std::int32_t>(i));
    }
    return shape;
}

// Returns a tree in which every node has two children, until the nodes are used up.
PassShape binary_tree(std::int64_t n, std::int64_t n_committed) {
    PassShape shape{.name = fmt::format("tree of {}", n)};
    for (std::int64_t i = 0; i < n; ++i) {
        std::vector<std::int32_t> path;
        for (std::int64_t node = i;; node = (node - 1) / 2) {
            path.push_back(static_cast<std::int32_t>(node));
            if (node == 0) break;
        }
        shape.positions.push_back(static_cast<std::int32_t>(n_committed) + static_cast<std::int32_t>(path.size()) - 1);
        shape.path_begin.push_back(static_cast<std::int32_t>(shape.path_rows.size()));
        shape.path_rows.insert(shape.path_rows.end(), path.rbegin(), path.rend());
    }
    return shape;
}

class AttentionBench {
public:
    explicit AttentionBench(CardBench& bench)
        : bench_(bench),
          kv_{.n_kv_heads = bench.sizes.n_kv_heads, .head_dim = bench.sizes.head_dim, .dtype = DType::F16},
          most_tokens_(std::max({std::int64_t{1}, bench.sizes.tree_tokens, bench.sizes.prefill_tokens})),
          most_chunks_(*std::max_element(bench.sizes.contexts.begin(), bench.sizes.contexts.end()) / kChunkTokens) {
        const std::size_t scratch_bytes = kv_.scratch_row_bytes() * most_tokens_;
        const auto q_floats = static_cast<std::size_t>(most_tokens_ * q_width());
        chunks_ = bench.device.allocate(kv_.chunk_bytes() * most_chunks_, MemoryTag::Kv, "KV of a long context");
        scratch_ = bench.device.allocate(2 * scratch_bytes, MemoryTag::Kv, "rows of a pass");
        q_ = bench.device.allocate(q_floats * sizeof(float), MemoryTag::Activations, "queries");
        out_ = bench.device.allocate(q_floats * sizeof(float), MemoryTag::Activations, "attention's output");
        fill(chunks_, DType::F16);
        fill(scratch_, DType::F16);
        fill(q_, DType::F32);
        for (std::int64_t i = 0; i < most_chunks_; ++i) table_.push_back(chunks_.data() + i * kv_.chunk_bytes());
        reserve_workspace(bench.device,
                          {.n_tokens = most_tokens_, .max_cols = 0, .attention = {{kv_, bench.sizes.n_q_heads}}});
    }

    void run(const PassShape& shape, std::int64_t n_committed) {
        if (!bench_.has_time()) return;
        const auto n = static_cast<std::int64_t>(shape.positions.size());
        const std::int64_t n_chunks = n_committed / kChunkTokens;
        // As many layers as fit into the buffer, at most 32, which is more than a cache holds.
        const std::int64_t n_layers = std::clamp<std::int64_t>(most_chunks_ / n_chunks, 1, 32);
        const CardTiming timing = bench_.clock.time(n_layers, [&] {
            for (std::int64_t layer = 0; layer < n_layers; ++layer)
                attention(bench_.exec(), arguments(shape, n_committed, table_.data() + layer * n_chunks));
        });
        const auto tokens = static_cast<double>(n);
        const auto row = static_cast<double>(kv_.scratch_row_bytes());
        bench_.report.add({.bench = "attention",
                           .what = fmt::format("{} at {}", shape.name, n_committed),
                           .n = n,
                           .seconds = timing.seconds,
                           .spread = timing.spread,
                           .bytes = 2.0 * row * (static_cast<double>(n_committed) + tokens) +
                                    2.0 * tokens * static_cast<double>(q_width()) * sizeof(float),
                           .flops = 4.0 * tokens * static_cast<double>(q_width()) * static_cast<double>(n_committed),
                           .enqueue_seconds = timing.enqueue_seconds});
    }

private:
    [[nodiscard]] std::int64_t q_width() const { return bench_.sizes.n_q_heads * bench_.sizes.head_dim; }

    void fill(const Buffer& buffer, DType type) {
        const std::size_t bytes = std::min<std::size_t>(buffer.size_bytes(), std::size_t{16} << 20);
        const Buffer host = bench_.device.allocate_host(bytes, MemoryTag::Workspace, "values of attention");
        RandomBlocks(type, 1.0).fill(host.data(), static_cast<std::int64_t>(bytes / dtype_info(type).block_bytes), 5);
        for (std::size_t begin = 0; begin < buffer.size_bytes(); begin += bytes)
            bench_.stream.copy(buffer.data() + begin, host.data(), std::min(bytes, buffer.size_bytes() - begin));
        bench_.stream.synchronize();
    }

    [[nodiscard]] AttentionArgs arguments(const PassShape& shape, std::int64_t n_committed,
                                          const std::byte* const* chunks) const {
        const auto n = static_cast<std::int64_t>(shape.positions.size());
        return {.shape = kv_,
                .q = matrix_view(static_cast<const std::byte*>(q_.data()), DType::F32, n, q_width()),
                .out = matrix_view(out_.data(), DType::F32, n, q_width()),
                .n_q_heads = bench_.sizes.n_q_heads,
                .positions = shape.positions.data(),
                .chunks = chunks,
                .n_committed = n_committed,
                .scratch_k = scratch_.data(),
                .scratch_v = scratch_.data() + scratch_.size_bytes() / 2,
                .path_begin = shape.path_begin.data(),
                .path_rows = shape.path_rows.data(),
                .scale = 1.0F / std::sqrt(static_cast<float>(bench_.sizes.head_dim))};
    }

    CardBench& bench_;
    KvLayout kv_;
    std::int64_t most_tokens_;
    std::int64_t most_chunks_;
    Buffer chunks_, scratch_, q_, out_;
    std::vector<const std::byte*> table_;
};

}  // namespace

void bench_card_attention(CardBench& bench) {
    const CardSizes& sizes = bench.sizes;
    bench.report.section(fmt::format("attention, {} query and {} kv heads of {}, F16; n: tokens", sizes.n_q_heads,
                                     sizes.n_kv_heads, sizes.head_dim));
    AttentionBench attention(bench);
    for (const std::int64_t context : sizes.contexts) {
        attention.run(chain("one token", 1, context), context);
        attention.run(binary_tree(sizes.tree_tokens, context), context);
        attention.run(chain(fmt::format("{} of a prompt", sizes.prefill_tokens), sizes.prefill_tokens, context),
                      context);
    }
    bench.stream.synchronize();
}

}  // namespace slipstream::tools
