#include "runtime/forward.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace slipstream {

namespace {

Buffer floats(Device& device, std::int64_t rows, std::int64_t cols, std::string_view what) {
    return device.allocate(static_cast<std::size_t>(rows) * row_bytes(DType::F32, cols), MemoryTag::Activations, what);
}

}  // namespace

Forward::Forward(const Model& model, const ForwardLimits& limits)
    : model_(&model), limits_(limits), stream_(model.device().make_stream(StreamKind::Compute)) {
    CHECK(limits.max_tokens > 0 && limits.max_logit_rows > 0 && limits.max_logit_rows <= limits.max_tokens,
          "a pass of {} tokens with {} rows of logits", limits.max_tokens, limits.max_logit_rows);
    const ModelConfig& config = model.config();
    Device& device = model.device();
    const std::int64_t n = limits.max_tokens;
    const std::int64_t q_cols = config.n_q_heads * config.head_dim;
    const std::int64_t kv_cols = config.n_kv_heads * config.head_dim;
    hidden_ = floats(device, n, config.d_model, "the residual stream");
    normed_ = floats(device, n, config.d_model, "normed activations");
    q_ = floats(device, n, q_cols, "queries");
    k_ = floats(device, n, kv_cols, "keys");
    v_ = floats(device, n, kv_cols, "values");
    attended_ = floats(device, n, q_cols, "attention output");
    gate_ = floats(device, n, config.d_ff, "feed-forward gate");
    up_ = floats(device, n, config.d_ff, "feed-forward activations");
    cos_sin_ = floats(device, n, config.n_rotated, "rope angles");
    selected_ = floats(device, limits.max_logit_rows, config.d_model, "selected activations");
    logits_ = floats(device, limits.max_logit_rows, config.vocab, "logits");
    positions_.reserve(static_cast<std::size_t>(n));
    path_begin_.reserve(static_cast<std::size_t>(n));
    path_rows_.reserve(static_cast<std::size_t>(n * (n + 1) / 2));  // a chain of n: each token's path one row longer
}

TensorView Forward::activation(const Buffer& buffer, std::int64_t n_rows, std::int64_t cols) const {
    return matrix_view(reinterpret_cast<float*>(buffer.data()), n_rows, cols);
}

ConstTensorView Forward::run(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                             std::span<const std::int32_t> logit_tokens, const PassWatch& watch) {
    const ModelConfig& config = model_->config();
    const auto n = static_cast<std::int64_t>(tokens.size());
    const auto n_rows = static_cast<std::int64_t>(logit_tokens.size());
    CHECK(n >= 1 && n <= limits_.max_tokens && nodes.size() == tokens.size() && n_rows <= limits_.max_logit_rows,
          "{} tokens, {} nodes, {} rows of logits; limits {} and {}", n, nodes.size(), n_rows, limits_.max_tokens,
          limits_.max_logit_rows);
    trace_paths(cache, nodes);
    const TensorView hidden = activation(hidden_, n, config.d_model);
    embed(exec(), {.table = model_->weights().token_embedding, .tokens = tokens.data(), .y = hidden});
    rope_table(exec(), {.positions = positions_.data(),
                        .inverse_frequency = model_->rope().inverse_frequency.data(),
                        .magnitude = model_->rope().magnitude,
                        .cos_sin = activation(cos_sin_, n, config.n_rotated)});
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
        if (watch.cancel != nullptr && watch.cancel->load(std::memory_order_relaxed)) return {};
        if (layer > 0 && watch.on_layers_done) watch.on_layers_done(layer);
        attention_block(cache, layer, nodes, watch);
        feed_forward_block(layer, n);
    }
    const TensorView selected = activation(selected_, n_rows, config.d_model);
    for (std::int64_t i = 0; i < n_rows; ++i) {
        const std::int32_t token = logit_tokens[static_cast<std::size_t>(i)];
        CHECK(token >= 0 && token < n, "logits of token {} of {}", token, n);
        stream_->copy(selected.row(i), hidden.row(token), selected.row_stride_bytes);
    }
    rms_norm(exec(), {.x = selected, .weight = model_->weights().output_norm, .y = selected, .eps = config.rms_eps});
    const TensorView logits = activation(logits_, n_rows, config.vocab);
    matmul(exec(), {.weights = model_->weights().lm_head, .x = selected, .y = logits});
    stream_->synchronize();
    return logits;
}

// Positions of the pass's tokens, and for each the scratch rows from the committed tip down to itself.
void Forward::trace_paths(const KvCache& cache, std::span<const NodeId> nodes) {
    positions_.clear();
    path_begin_.clear();
    path_rows_.clear();
    for (const NodeId node : nodes) {
        const std::int64_t length = cache.position(node) - cache.n_committed() + 1;
        positions_.push_back(static_cast<std::int32_t>(cache.position(node)));
        path_begin_.push_back(static_cast<std::int32_t>(path_rows_.size()));
        path_rows_.resize(path_rows_.size() + static_cast<std::size_t>(length));
        std::size_t at = path_rows_.size();
        for (NodeId step = node; step != kCommittedTip; step = cache.parent(step)) path_rows_[--at] = step;
    }
}

void Forward::attention_block(KvCache& cache, std::int64_t layer, std::span<const NodeId> nodes,
                              const PassWatch& watch) {
    const ModelConfig& config = model_->config();
    const LayerWeights& weights = model_->weights().layers[static_cast<std::size_t>(layer)];
    const auto n = static_cast<std::int64_t>(nodes.size());
    const std::int64_t d = config.head_dim;
    const TensorView hidden = activation(hidden_, n, config.d_model);
    const TensorView normed = activation(normed_, n, config.d_model);
    const TensorView q = activation(q_, n, config.n_q_heads * d);
    const TensorView k = activation(k_, n, config.n_kv_heads * d);
    const TensorView v = activation(v_, n, config.n_kv_heads * d);
    const TensorView attended = activation(attended_, n, config.n_q_heads * d);
    const TensorView cos_sin = activation(cos_sin_, n, config.n_rotated);

    rms_norm(exec(), {.x = hidden, .weight = weights.attn_norm, .y = normed, .eps = config.rms_eps});
    matmul(exec(), {.weights = weights.q, .x = normed, .y = q, .bias = weights.q_bias});
    matmul(exec(), {.weights = weights.k, .x = normed, .y = k, .bias = weights.k_bias});
    matmul(exec(), {.weights = weights.v, .x = normed, .y = v, .bias = weights.v_bias});
    if (!weights.q_norm.empty()) {  // Qwen3: each head by itself, before rope
        const TensorView q_heads = activation(q_, n * config.n_q_heads, d);
        const TensorView k_heads = activation(k_, n * config.n_kv_heads, d);
        rms_norm(exec(), {.x = q_heads, .weight = weights.q_norm, .y = q_heads, .eps = config.rms_eps});
        rms_norm(exec(), {.x = k_heads, .weight = weights.k_norm, .y = k_heads, .eps = config.rms_eps});
    }
    if (watch.on_kv_rows) watch.on_kv_rows(layer, k, v);
    rope(exec(), {.x = q, .cos_sin = cos_sin, .head_dim = d, .layout = config.rope_layout});
    rope(exec(), {.x = k, .cos_sin = cos_sin, .head_dim = d, .layout = config.rope_layout});
    kv_write(exec(), {.shape = cache.shape(),
                      .k = k,
                      .v = v,
                      .scratch_k = cache.scratch_k(layer),
                      .scratch_v = cache.scratch_v(layer),
                      .scratch_rows = nodes.data()});
    attention(exec(), {.shape = cache.shape(),
                       .q = q,
                       .out = attended,
                       .n_q_heads = config.n_q_heads,
                       .positions = positions_.data(),
                       .chunks = cache.chunks(layer),
                       .n_committed = cache.n_committed(),
                       .scratch_k = cache.scratch_k(layer),
                       .scratch_v = cache.scratch_v(layer),
                       .path_begin = path_begin_.data(),
                       .path_rows = path_rows_.data(),
                       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))),
                       .window = config.window(layer)});
    matmul(exec(), {.weights = weights.attn_out,
                    .x = attended,
                    .y = hidden,
                    .bias = weights.attn_out_bias,
                    .store = MatmulStore::Add});
}

void Forward::feed_forward_block(std::int64_t layer, std::int64_t n_tokens) {
    const ModelConfig& config = model_->config();
    const LayerWeights& weights = model_->weights().layers[static_cast<std::size_t>(layer)];
    const TensorView hidden = activation(hidden_, n_tokens, config.d_model);
    const TensorView normed = activation(normed_, n_tokens, config.d_model);
    const TensorView gate = activation(gate_, n_tokens, config.d_ff);
    const TensorView up = activation(up_, n_tokens, config.d_ff);
    rms_norm(exec(), {.x = hidden, .weight = weights.ffn_norm, .y = normed, .eps = config.rms_eps});
    matmul(exec(), {.weights = weights.gate, .x = normed, .y = gate});
    matmul(exec(), {.weights = weights.up, .x = normed, .y = up});
    swiglu(exec(), {.gate = gate, .up = up, .y = gate});
    matmul(exec(), {.weights = weights.down, .x = gate, .y = hidden, .store = MatmulStore::Add});
}

}  // namespace slipstream
