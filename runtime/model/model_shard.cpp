#include "runtime/model/model_shard.h"

#include <string_view>

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

// Elements of a bias, or of none.
ConstTensorView elements_of(const ConstTensorView& vector, const Range& range) {
    if (vector.empty()) return vector;
    return vector_view(vector.data + row_bytes(vector.dtype, range.first), vector.dtype, range.n);
}

ConstTensorView columns_of(ConstTensorView matrix, const Range& range, std::size_t layer, std::string_view what) {
    const std::int64_t block = dtype_info(matrix.dtype).block_elements;
    if (range.first % block != 0 || range.n % block != 0)
        throw Unsupported(
            fmt::format("{} of layer {} lies in blocks of {} columns ({}), and columns {} to {} would cut through one; "
                        "choose other "
                        "shares, or split the model by layers",
                        what, layer, block, dtype_name(matrix.dtype), range.first, range.first + range.n - 1));
    matrix.data += row_bytes(matrix.dtype, range.first);
    matrix.shape[1] = range.n;
    return matrix;
}

}  // namespace

std::string_view split_name(SplitKind kind) {
    return kind == SplitKind::Layers ? "layers" : "tensor";
}

ModelShard whole_shard(const ModelConfig& config) {
    return {.n_kv_heads = config.n_kv_heads, .n_ffn = config.d_ff, .n_vocab = config.vocab};
}

ModelConfig shard_config(const ModelConfig& config, const ModelShard& shard) {
    check_range({shard.first_kv_head, shard.n_kv_heads}, config.n_kv_heads, "kv heads from");
    check_range({shard.first_ffn, shard.n_ffn}, config.d_ff, "feed-forward columns from");
    check_range({shard.first_vocab, shard.n_vocab}, config.vocab, "rows of the vocabulary from");
    ModelConfig thin = config;
    if (!shard.layers.empty()) {
        thin.n_layers = std::ssize(shard.layers);
        thin.layer_window = {};
        for (const std::int64_t layer : shard.layers) {
            check_range({layer, 1}, config.n_layers, "layers from");
            if (!config.layer_window.empty()) thin.layer_window.push_back(config.window(layer));
        }
    }
    thin.n_q_heads = config.n_q_heads / config.n_kv_heads * shard.n_kv_heads;
    thin.n_kv_heads = shard.n_kv_heads;
    thin.d_ff = shard.n_ffn;
    thin.vocab = shard.n_vocab;
    return thin;
}

ModelWeights shard_weights(const ModelWeights& weights, const ModelConfig& config, const ModelShard& shard) {
    const std::int64_t d = config.head_dim;
    const std::int64_t group = config.n_q_heads / config.n_kv_heads;  // query heads of a kv head
    const Range kv{shard.first_kv_head * d, shard.n_kv_heads * d};
    const Range q{kv.first * group, kv.n * group};
    const Range ffn{shard.first_ffn, shard.n_ffn};
    ModelWeights thin = weights;
    thin.lm_head = rows_of(weights.lm_head, {shard.first_vocab, shard.n_vocab});
    if (!shard.layers.empty()) {
        thin.layers.clear();
        for (const std::int64_t layer : shard.layers) thin.layers.push_back(weights.layers.at(layer));
    }
    for (std::size_t i = 0; i < thin.layers.size(); ++i) {
        LayerWeights& layer = thin.layers[i];
        layer.q = rows_of(layer.q, q);
        layer.k = rows_of(layer.k, kv);
        layer.v = rows_of(layer.v, kv);
        layer.q_bias = elements_of(layer.q_bias, q);
        layer.k_bias = elements_of(layer.k_bias, kv);
        layer.v_bias = elements_of(layer.v_bias, kv);
        layer.attn_out = columns_of(layer.attn_out, q, i, "the attention output");
        if (shard.first_kv_head > 0) layer.attn_out_bias = {};
        layer.gate = rows_of(layer.gate, ffn);
        layer.up = rows_of(layer.up, ffn);
        layer.down = columns_of(layer.down, ffn, i, "the feed-forward's down matrix");
    }
    return thin;
}

}  // namespace slipstream
