#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/kv_view.h"
#include "kernels/view_pages.h"
#include "tools/lab/ops/ops_bench.h"

namespace slipstream::tools::ops {

namespace {

constexpr std::int64_t kHeadDims[] = {64, 128};
constexpr std::int64_t kMostTokens = 4096;  // paths have a list of rows per token, which grows quadratically
constexpr DType kKvTypes[] = {DType::F16, DType::BF16, DType::F32, DType::Q8_0};

/// The KV of several layers: `depth` committed positions each, and after them the rows of a pass, a chain of `n`
/// tokens.
class Layers {
public:
    Layers(const Bench& bench, const KvLayout& shape, std::int64_t n)
        : bench_(bench),
          shape_(shape),
          n_(n),
          n_chunks_(ceil_div(bench.options.depth, kChunkTokens)),
          q_(float_rows(bench, n, bench.options.query_heads * shape.head_dim)),
          out_(float_rows(bench, n, bench.options.query_heads * shape.head_dim)),
          rows_(float_rows(bench, n, shape.n_kv_heads * shape.head_dim)),
          scratch_(float_rows(bench, 2 * n, shape.n_kv_heads * shape.head_dim)),
          scores_(float_rows(bench, bench.options.query_heads, ceil_div(bench.options.depth, kGroupTokens))) {
        const std::size_t layer_bytes = n_chunks_ * shape.chunk_bytes();
        const std::size_t all = kMemoryBytes / layer_bytes;
        if (all == 0)
            throw RequestError(fmt::format("--depth {}: a layer of {} bytes, at most {}", bench.options.depth,
                                           layer_bytes, kMemoryBytes));
        n_layers_ = n > kTokensFromMemory ? std::min<std::size_t>(all, 2) : all;
        for (std::size_t i = 0; i < n_layers_ * static_cast<std::size_t>(n_chunks_); ++i)
            chunks_.push_back(bench.memory + i * shape.chunk_bytes());
        scratch_rows_.resize(n);
        std::iota(scratch_rows_.begin(), scratch_rows_.end(), 0);
        for (std::int32_t t = 0; t < static_cast<std::int32_t>(n); ++t) {
            positions_.push_back(static_cast<std::int32_t>(bench.options.depth) + t);
            path_begin_.push_back(static_cast<std::int32_t>(path_rows_.size()));
            for (std::int32_t row = 0; row <= t; ++row) path_rows_.push_back(row);
        }
    }

    [[nodiscard]] std::size_t n_layers() const { return n_layers_; }

    void attend(std::size_t layer) const {
        const std::int64_t cols = bench_.options.query_heads * shape_.head_dim;
        attention(bench_.exec(), {.shape = shape_,
                                  .q = matrix_view<const std::byte>(q_.data(), DType::F32, n_, cols),
                                  .out = matrix_view(out_.data(), DType::F32, n_, cols),
                                  .n_q_heads = bench_.options.query_heads,
                                  .positions = positions_.data(),
                                  .chunks = chunks_.data() + layer * static_cast<std::size_t>(n_chunks_),
                                  .n_committed = bench_.options.depth,
                                  .scratch_k = scratch_.data(),
                                  .scratch_v = scratch_.data() + n_ * shape_.scratch_row_bytes(),
                                  .path_begin = path_begin_.data(),
                                  .path_rows = path_rows_.data(),
                                  .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim))});
    }
    /// Scores all slot groups for the queries of the first token.
    void score(std::size_t layer) const {
        kv_score(bench_.exec(), {.shape = shape_,
                                 .q = matrix_view<const std::byte>(q_.data(), DType::F32, 1,
                                                                   bench_.options.query_heads * shape_.head_dim),
                                 .n_q_heads = bench_.options.query_heads,
                                 .chunks = chunks_.data() + layer * static_cast<std::size_t>(n_chunks_),
                                 .end_chunk = n_chunks_,
                                 .n_committed = bench_.options.depth,
                                 .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
                                 .out = reinterpret_cast<float*>(scores_.data()),
                                 .n_groups = ceil_div(bench_.options.depth, kGroupTokens)});
    }
    /// Rounds all slots of a layer to view pages.
    void write_pages(std::size_t layer) {
        if (fills_.empty()) {
            for (std::int32_t head = 0; head < shape_.n_kv_heads; ++head)
                for (std::int64_t slot = 0; slot < bench_.options.depth; slot += kPageSlots)
                    fills_.push_back({head, static_cast<std::int32_t>(slot / kPageSlots),
                                      static_cast<std::int32_t>(std::min(kPageSlots, bench_.options.depth - slot)),
                                      static_cast<std::int32_t>(fills_.size())});
            pages_ = bench_.device.allocate(fills_.size() * view_page_bytes(shape_.head_dim), MemoryTag::Workspace,
                                            "view pages");
        }
        view_pages_write(bench_.exec(), {.shape = shape_,
                                         .from = chunks_.data() + layer * static_cast<std::size_t>(n_chunks_),
                                         .fills = fills_.data(),
                                         .n_fills = std::ssize(fills_),
                                         .pages = pages_.data()});
    }
    void write() {
        const auto rows =
            matrix_view<const std::byte>(rows_.data(), DType::F32, n_, shape_.n_kv_heads * shape_.head_dim);
        kv_write(bench_.exec(), {.shape = shape_,
                                 .k = rows,
                                 .v = rows,
                                 .scratch_k = scratch_.data(),
                                 .scratch_v = scratch_.data() + n_ * shape_.scratch_row_bytes(),
                                 .scratch_rows = scratch_rows_.data()});
    }
    /// Commits the pass's rows to the last n positions of the layer.
    void commit(std::size_t layer) {
        const std::int64_t first = std::max<std::int64_t>(0, bench_.options.depth - n_);
        kv_commit(bench_.exec(), {.shape = shape_,
                                  .scratch_k = scratch_.data(),
                                  .scratch_v = scratch_.data() + n_ * shape_.scratch_row_bytes(),
                                  .scratch_rows = scratch_rows_.data(),
                                  .n_rows = std::min(n_, bench_.options.depth),
                                  .first_position = first,
                                  .chunks = chunks_.data() + layer * static_cast<std::size_t>(n_chunks_)});
    }

private:
    const Bench& bench_;
    KvLayout shape_;
    std::int64_t n_;
    std::int64_t n_chunks_;
    std::size_t n_layers_ = 0;
    Buffer q_, out_, rows_, scratch_, scores_;
    std::vector<std::byte*> chunks_;  // [n_layers, n_chunks]
    std::vector<std::int32_t> scratch_rows_, positions_, path_begin_, path_rows_;
    std::vector<PageFill> fills_;
    Buffer pages_;  // of one layer
};

/// View pages of several layers: `depth` slots of every kv head.
class PageLayers {
public:
    PageLayers(const Bench& bench, const KvLayout& shape, std::int64_t n)
        : bench_(bench),
          shape_(shape),
          n_(n),
          q_(float_rows(bench, n, bench.options.query_heads * shape.head_dim)),
          state_(float_rows(
              bench, 1,
              static_cast<std::int64_t>(attention_state_floats(n, bench.options.query_heads, shape.head_dim)))) {
        const std::int64_t head_pages = ceil_div(bench.options.depth, kPageSlots);
        for (std::int64_t head = 0; head < shape.n_kv_heads; ++head)
            ranges_.push_back(
                {static_cast<std::int32_t>(head * head_pages), static_cast<std::int32_t>(bench.options.depth)});
        layer_bytes_ = static_cast<std::size_t>(shape.n_kv_heads * head_pages) * view_page_bytes(shape.head_dim);
        const std::size_t all = kMemoryBytes / layer_bytes_;
        if (all == 0)
            throw RequestError(fmt::format("--depth {}: the pages of a layer have {} bytes, at most {}",
                                           bench.options.depth, layer_bytes_, kMemoryBytes));
        n_layers_ = n > kTokensFromMemory ? std::min<std::size_t>(all, 2) : all;
    }
    [[nodiscard]] std::size_t n_layers() const { return n_layers_; }
    [[nodiscard]] std::size_t layer_bytes() const { return layer_bytes_; }
    void attend(std::size_t layer) const {
        view_pages_attention(
            bench_.exec(),
            {.shape = shape_,
             .q = matrix_view<const std::byte>(q_.data(), DType::F32, n_, bench_.options.query_heads * shape_.head_dim),
             .n_q_heads = bench_.options.query_heads,
             .pages = bench_.memory + layer * layer_bytes_,
             .ranges = ranges_.data(),
             .most_slots = bench_.options.depth,
             .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
             .state = reinterpret_cast<float*>(state_.data())});
    }

private:
    const Bench& bench_;
    KvLayout shape_;
    std::int64_t n_;
    std::size_t n_layers_ = 0;
    std::size_t layer_bytes_ = 0;
    Buffer q_, state_;
    std::vector<PageRange> ranges_;
};

std::string shape_text(const Options& options, std::int64_t head_dim) {
    return fmt::format("{}/{} x {}, {} deep", options.query_heads, options.kv_heads, head_dim, options.depth);
}

/// Times `call` for each layer, and reports it as `result`.
template <typename Call>
void time_layers(const Bench& bench, Case result, const Call& call) {
    result.timing = time_runs(bench.options.n_threads, [&] {
        for (std::size_t layer = 0; layer < result.n_calls; ++layer) call(layer);
    });
    bench.report(result);
}

void time_page_attention(const Bench& bench) {
    const Options& options = bench.options;
    for (const std::int64_t head_dim : kHeadDims)
        for (const std::int64_t n : options.n_tokens) {
            if (bench.skips(n)) continue;
            const PageLayers layers(bench, {.n_kv_heads = options.kv_heads, .head_dim = head_dim}, n);
            time_layers(bench,
                        {.op = "view_pages_attention",
                         .shape = shape_text(options, head_dim),
                         .type = "4 bits",
                         .n_tokens = n,
                         .bytes = static_cast<double>(layers.layer_bytes()),
                         .operations = 4 * static_cast<double>(n * options.depth * options.query_heads * head_dim),
                         .n_calls = layers.n_layers()},
                        [&](std::size_t layer) { layers.attend(layer); });
        }
}

}  // namespace

void time_attention(const Bench& bench) {
    const Options& options = bench.options;
    if (options.wants("view_pages_attention")) time_page_attention(bench);
    if (options.op == "view_pages_attention") return;
    for (const std::int64_t n : options.n_tokens)
        if (n > kMostTokens)
            throw RequestError(fmt::format("--tokens {}: attention and rows of KV take at most {}", n, kMostTokens));
    for (const DType type : kKvTypes) {
        if (options.type && *options.type != type) continue;
        for (const std::int64_t head_dim : kHeadDims) {
            const KvLayout shape{.n_kv_heads = options.kv_heads, .head_dim = head_dim, .dtype = type};
            for (const std::int64_t n : options.n_tokens) {
                if (bench.skips(n)) continue;
                Layers layers(bench, shape, n);
                const auto count = static_cast<double>(n);
                const double row_bytes = static_cast<double>(shape.scratch_row_bytes());
                layers.write();  // the rows of the pass, which attention reads, too
                const auto report = [&](std::string op, double bytes, double operations, const auto& call) {
                    time_layers(bench,
                                {.op = std::move(op),
                                 .shape = shape_text(options, head_dim),
                                 .type = std::string(dtype_name(type)),
                                 .n_tokens = n,
                                 .bytes = bytes,
                                 .operations = operations,
                                 .n_calls = layers.n_layers()},
                                call);
                };
                const auto depth = static_cast<double>(options.depth);
                if (options.wants("attention"))
                    report("attention", 2 * depth * row_bytes,
                           4 * count * (depth + (count + 1) / 2) *
                               static_cast<double>(bench.options.query_heads * head_dim),
                           [&](std::size_t layer) { layers.attend(layer); });
                const double floats = count * static_cast<double>(options.kv_heads * head_dim) * sizeof(float);
                if (options.wants("kv_write"))
                    report("kv_write", 2 * (floats + count * row_bytes), 0, [&](std::size_t) { layers.write(); });
                if (options.wants("kv_score") && n == 1)
                    report("kv_score", depth * row_bytes,
                           2 * depth * static_cast<double>(bench.options.query_heads * head_dim),
                           [&](std::size_t layer) { layers.score(layer); });
                if (options.wants("view_pages_write") && n == 1)
                    report("view_pages_write",
                           2 * depth * row_bytes + depth / static_cast<double>(kPageSlots) *
                                                       static_cast<double>(options.kv_heads) *
                                                       static_cast<double>(view_page_bytes(head_dim)),
                           0, [&](std::size_t layer) { layers.write_pages(layer); });
                if (options.wants("kv_commit"))
                    report("kv_commit", 4 * std::min(count, depth) * row_bytes, 0,
                           [&](std::size_t layer) { layers.commit(layer); });
            }
        }
    }
}

}  // namespace slipstream::tools::ops
