#include "runtime/model/model_shard.h"

#include <numeric>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

struct Range {
    std::int64_t first = 0;
    std::int64_t n = 0;
};

void check_range(const Range& range, std::int64_t all, std::string_view what) {
    CHECK(range.first >= 0 && range.n >= 1 && range.first + range.n <= all, "{} {}, {} of them, of {}", what,
          range.first, range.n, all);
}

ConstTensorView rows_of(const ConstTensorView& matrix, const Range& range) {
    return matrix.slice_rows(range.first, range.n);
}

ConstTensorView elements_of(const ConstTensorView& vector, const Range& range) {
    return vector_view(vector.data + row_bytes(vector.dtype, range.first), vector.dtype, range.n);
}

ConstTensorView columns_of(ConstTensorView matrix, const Range& range, std::int64_t layer, std::string_view what) {
    if (range.first == 0 && range.n == matrix.cols()) return matrix;
    const std::int64_t block = dtype_info(matrix.dtype).block_elements;
    if (range.first % block != 0 || range.n % block != 0)
        throw Unsupported(
            fmt::format("{} of layer {} is in blocks of {} columns ({}), and columns {} to {} would cut through one; "
                        "choose other "
                        "shares, or split the model by layers",
                        what, layer, block, dtype_name(matrix.dtype), range.first, range.first + range.n - 1));
    matrix.data += row_bytes(matrix.dtype, range.first);
    matrix.shape[1] = range.n;
    return matrix;
}

// Returns the elements of a dimension of a layer's tensor that belong to the shard.
Range range_of(TensorDim dim, const ModelConfig& config, std::int64_t layer, const ModelShard& shard) {
    if (dim == TensorDim::Q || dim == TensorDim::QRows || dim == TensorDim::Kv) {
        const std::int64_t n_groups = config.n_kv_groups();
        const std::int64_t of_group = dim_size(dim, config, layer) / n_groups;
        return {shard.first_kv_group * of_group, shard.n_kv_groups.value_or(n_groups) * of_group};
    }
    if (dim == TensorDim::FeedForward)
        return {shard.first_ffn, shard.n_ffn.value_or(config.layers[layer].feed_forward.d_ff)};
    return {0, dim_size(dim, config, layer)};
}

}  // namespace

std::string_view split_name(SplitKind kind) {
    return kind == SplitKind::Layers ? "layers" : "tensor";
}

ModelShard whole_shard(const ModelConfig& config) {
    return {.n_vocab = config.vocab};
}

ModelConfig shard_config(const ModelConfig& config, const ModelShard& shard) {
    check_range({shard.first_vocab, shard.n_vocab}, config.vocab, "rows of the vocabulary from");
    ModelConfig thin = config;
    if (!shard.layers.empty()) {
        thin.layers.clear();
        for (const std::int64_t layer : shard.layers) {
            check_range({layer, 1}, config.n_layers(), "layers from");
            thin.layers.push_back(config.layers[layer]);
        }
    }
    const std::int64_t n_groups = config.n_kv_groups();
    check_range({shard.first_kv_group, shard.n_kv_groups.value_or(n_groups)}, n_groups, "groups of kv heads from");
    for (LayerConfig& layer : thin.layers) {
        if (!layer.has_attention()) {
            CHECK(!shard.n_kv_groups && !shard.n_ffn, "a part of a delta net");
            continue;
        }
        AttentionConfig& attention = layer.attention();
        const std::int64_t n_kv_heads = attention.n_kv_heads / n_groups * shard.n_kv_groups.value_or(n_groups);
        const std::int64_t n_ffn = shard.n_ffn.value_or(layer.feed_forward.d_ff);
        if (shard.n_ffn) check_range({shard.first_ffn, n_ffn}, layer.feed_forward.d_ff, "feed-forward columns from");
        CHECK(layer.feed_forward.experts.empty() || !shard.n_ffn, "experts, and a part of the feed-forward's columns");
        attention.n_q_heads = attention.queries_per_kv_head() * n_kv_heads;
        attention.n_kv_heads = n_kv_heads;
        layer.feed_forward.d_ff = n_ffn;
    }
    thin.vocab = shard.n_vocab;
    return thin;
}

ModelWeights shard_weights(const ModelWeights& weights, const ModelConfig& config, const ModelShard& shard) {
    ModelWeights thin = weights;
    thin.lm_head = rows_of(weights.lm_head, {shard.first_vocab, shard.n_vocab});
    std::vector<std::int64_t> layers = shard.layers;
    if (layers.empty()) {
        layers.resize(weights.layers.size());
        std::iota(layers.begin(), layers.end(), 0);
    }
    thin.layers.clear();
    for (const std::int64_t layer : layers) {
        LayerWeights& of = thin.layers.emplace_back(weights.layers.at(layer));
        for (const TensorInfo& info : kLayerTensors) {
            ConstTensorView& view = of[info.role];
            if (view.rank == 0) continue;
            const Range cols = range_of(info.cols, config, layer, shard);
            if (!info.is_vector()) {
                view = rows_of(view, range_of(info.rows, config, layer, shard));
                view = columns_of(view, cols, layer, info.name);
            } else {
                view = elements_of(view, cols);
            }
            if (info.added_once && shard.first_kv_group > 0) view = {};
        }
    }
    return thin;
}

}  // namespace slipstream
