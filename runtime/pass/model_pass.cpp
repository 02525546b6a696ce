#include "runtime/pass/model_pass.h"

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/elementwise.h"

namespace slipstream {

ModelPass::ModelPass(const Model& model, Stream& stream, const ActivationLimits& limits, Collective* collective)
    : model_(&model),
      stream_(&stream),
      collective_(collective),
      activations_(model.device(), model.config(), limits),
      paths_(limits.n_tokens),
      delta_steps_(model.config().is_recurrent() ? DeltaSteps::most(limits.n_tokens, limits.max_drafts) : 0),
      expert_rows_(model.config(), limits.n_tokens) {
    constexpr std::size_t kProductsTogether = 256;
    if (model.config().has_experts()) {
        expert_products_.reserve(kProductsTogether);
        needed_items_.reserve(model.items().size());
        expert_places_.resize(static_cast<std::size_t>(
            model.config().largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_experts; })));
        expert_figures_.resize(static_cast<std::size_t>(model.config().n_layers()));
        expert_group_.reserve(static_cast<std::size_t>(
            model.config().largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_experts; })));
    }
    query_factors_.reserve(static_cast<std::size_t>(limits.n_tokens));
}

void ModelPass::embed(const PassRows& rows) {
    const TensorView hidden = activations_.hidden(rows.n());
    stage(
        PassStage::Embed, -1, rows.n(), [&] { return rows_bytes(hidden); },
        [&] {
            slipstream::embed(exec(), {.table = model_->weights().token_embedding,
                                       .tokens = rows.tokens.data(),
                                       .y = hidden,
                                       .scale = model_->config().embedding_scale});
        });
    const ConstTensorView& weight = model_->weights().embedding_norm;
    if (!weight.empty()) norm(-1, hidden, weight, hidden);
}

void ModelPass::run_layer(std::int64_t layer, const PassRows& rows, LayerPart part) {
    if (model_->config().layers[layer].has_attention()) {
        keys_and_values(layer, rows);
        if (part == LayerPart::KvRows) return;
        attend(layer, rows);
    } else {
        delta_inputs(layer, rows);
        run_delta_net(layer, rows);
        if (part == LayerPart::KvRows) return;
        delta_output(layer, rows);
    }
    feed_forward(layer, rows);
}

void ModelPass::norm(std::int64_t layer, const ConstTensorView& x, const ConstTensorView& weight, const TensorView& y,
                     NextWeights next) {
    norm(layer, {.x = x, .weight = weight, .y = y, .eps = model_->config().rms_eps, .next = next});
}

void ModelPass::norm(std::int64_t layer, const RmsNormArgs& args) {
    stage(
        PassStage::Norm, layer, args.x.rows(), [&] { return rows_bytes(args.x); }, [&] { rms_norm(exec(), args); });
}

void ModelPass::post_norm(std::int64_t layer, const TensorView& x, const ConstTensorView& weight) {
    const ModelConfig& config = model_->config();
    if (weight.empty()) return;
    norm(
        layer,
        {.x = x, .weight = weight, .y = x, .eps = config.post_norm_eps > 0.0F ? config.post_norm_eps : config.rms_eps});
}

// Computes queries, keys and values, and writes keys and values to scratch.
void ModelPass::keys_and_values(std::int64_t layer, const PassRows& rows) {
    using enum TensorRole;
    const ModelConfig& config = model_->config();
    const AttentionConfig& attention = config.attention(layer);
    const LayerWeights& weights = model_->weights().layers[layer];
    const std::int64_t n = rows.n();
    const TensorView normed = activations_.rows(Activation::Normed, n, config.d_model);
    const TensorView q = activations_.rows(Activation::Q, n, attention.q_cols());
    const TensorView k = activations_.rows(Activation::K, n, attention.kv_cols());
    const TensorView v = activations_.rows(Activation::V, n, attention.kv_cols());

    norm(layer, activations_.hidden(n), weights[AttnNorm], normed, next_weights(layer, rows, {Q, K, V, AttnGate}));
    const TensorView gate = activations_.rows(Activation::AttnGate, n, attention.q_cols());
    const TensorView both = activations_.rows(Activation::Grouped, n, 2 * attention.q_cols());
    const Product products[] = {{Q, attention.gate_in_queries ? both : q, weights[QBias]},
                                {K, k, weights[KBias]},
                                {V, v, weights[VBias]},
                                {AttnGate, gate}};
    multiply(layer, rows, normed, std::span(products).first(attention.output_gate ? 4 : 3));
    if (attention.gate_in_queries) {
        const std::int64_t head = attention.head_dim;
        gather_columns(exec(), {.x = both, .y = q, .run = head, .first = 0, .stride = 2 * head});
        gather_columns(exec(), {.x = both, .y = gate, .run = head, .first = head, .stride = 2 * head});
    }
    if (attention.norms_values) {
        const TensorView v_heads = as_heads(v, attention.head_dim);
        norm(layer, attention.values_from_keys ? as_heads(k, attention.head_dim) : v_heads, {}, v_heads);
    }
    // rotate_write() norms the heads, too; here they are normed before, if an observer wants the normed keys, or if all
    // heads are normed together.
    const bool norms_apart = !weights[QNorm].empty() && (rows.hooks != nullptr || attention.norms_projections);
    if (norms_apart) {
        const TensorView q_heads = attention.norms_projections ? q : as_heads(q, attention.head_dim);
        const TensorView k_heads = attention.norms_projections ? k : as_heads(k, attention.head_dim);
        norm(layer, q_heads, weights[QNorm], q_heads);
        norm(layer, k_heads, weights[KNorm], k_heads);
    }
    if (rows.hooks != nullptr) rows.hooks->on_rows(exec(), layer, k, v);
    stage(
        PassStage::Rotate, layer, n, [&] { return rows_bytes(q) + rows_bytes(k) + rows_bytes(v); },
        [&] {
            rotate_write(exec(), {.shape = rows.kv->layout(layer),
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .cos_sin = activations_.angles(attention.rope, n),
                                  .layout = config.rope_layout,
                                  .scratch_k = rows.kv->scratch_k(layer),
                                  .scratch_v = rows.kv->scratch_v(layer),
                                  .scratch_rows = scratch_rows(rows.nodes),
                                  .q_cos_sin = activations_.query_angles(attention.rope, n),
                                  .q_norm = norms_apart ? ConstTensorView{} : weights[QNorm],
                                  .k_norm = norms_apart ? ConstTensorView{} : weights[KNorm],
                                  .eps = config.rms_eps});
        });
}

void ModelPass::attend(std::int64_t layer, const PassRows& rows) {
    const AttentionConfig& attention = model_->config().attention(layer);
    const TensorView attended = activations_.rows(Activation::Attended, rows.n(), attention.q_cols());
    const AttentionArgs args{
        .shape = rows.kv->layout(layer),
        .q = activations_.rows(Activation::Q, rows.n(), attention.q_cols()),
        .out = attended,
        .n_q_heads = attention.n_q_heads,
        .positions = paths_.slots().data(),
        .chunks = kv_ != nullptr ? kv_->chunks(layer) : rows.kv->chunks(layer),
        .n_committed = rows.n_committed,
        .scratch_k = rows.kv->scratch_k(layer),
        .scratch_v = rows.kv->scratch_v(layer),
        .path_begin = paths_.begin().data(),
        .path_rows = paths_.rows().data(),
        .scale = attention.scale(),
        .softcap = attention.softcap,
        .window = attention.window,
        .sinks = model_->weights().layers[layer][TensorRole::Sinks],
        .next = attention.has_gate() ? NextWeights{} : next_weights(layer, rows, {TensorRole::AttnOut}),
    };
    fold(args, layer, rows);
    if (attention.has_gate()) gate_attention(layer, rows, attended);
    const LayerWeights& weights = model_->weights().layers[layer];
    add_to_residual(layer, rows,
                    {.matrix = TensorRole::AttnOut,
                     .x = attended,
                     .bias = weights[TensorRole::AttnOutBias],
                     .post_norm = weights[TensorRole::AttnPostNorm]});
}

// Multiplies the attention's result by the sigmoid of the gate that was computed with the queries.
void ModelPass::gate_attention(std::int64_t layer, const PassRows& rows, const TensorView& attended) {
    const TensorView gate = activations_.rows(Activation::AttnGate, rows.n(), attended.cols());
    stage(
        PassStage::Activation, layer, rows.n(), [&] { return rows_bytes(gate) + rows_bytes(attended); },
        [&] {
            gated_activation(exec(), {.gate = gate,
                                      .up = attended,
                                      .y = attended,
                                      .kind = GatedActivation::Sigmoid,
                                      .next = next_weights(layer, rows, {TensorRole::AttnOut})});
        });
}

void ModelPass::feed_forward(std::int64_t layer, const PassRows& rows) {
    using enum TensorRole;
    const ModelConfig& config = model_->config();
    const FeedForwardConfig& feed_forward = config.layers[layer].feed_forward;
    if (!feed_forward.experts.empty()) return mixture(layer, rows);
    const LayerWeights& weights = model_->weights().layers[layer];
    const TensorView normed = activations_.rows(Activation::Normed, rows.n(), config.d_model);
    norm(layer, activations_.hidden(rows.n()), weights[FfnNorm], normed, next_weights(layer, rows, {Gate, Up}));
    gate_and_up(layer, rows, normed);
    add_to_residual(layer, rows,
                    {.matrix = Down,
                     .x = activations_.rows(Activation::Gate, rows.n(), feed_forward.d_ff),
                     .post_norm = weights[FfnPostNorm],
                     .scale = weights[OutputScale]});
}

void ModelPass::gate_and_up(std::int64_t layer, const PassRows& rows, const ConstTensorView& normed) {
    using enum TensorRole;
    const FeedForwardConfig& feed_forward = model_->config().layers[layer].feed_forward;
    const TensorView gate = activations_.rows(Activation::Gate, rows.n(), feed_forward.d_ff);
    const TensorView up = activations_.rows(Activation::Up, rows.n(), feed_forward.d_ff);
    const Product products[] = {{Gate, gate}, {Up, up}};
    multiply(layer, rows, normed, products);
    stage(
        PassStage::Activation, layer, rows.n(), [&] { return rows_bytes(gate) + rows_bytes(up); },
        [&] {
            gated_activation(exec(), {.gate = gate,
                                      .up = up,
                                      .y = gate,
                                      .kind = feed_forward.activation,
                                      .limit = feed_forward.activation_limit,
                                      .next = next_weights(layer, rows, {Down})});
        });
}

// Adds the result of half a layer to the residual stream. A whole product without norm and scale adds in place.
// Otherwise the order is: product, sum over shards, norm, add and scale; the result is in the buffer of normed
// activations, which the half no longer needs.
void ModelPass::add_to_residual(std::int64_t layer, const PassRows& rows, const HalfResult& half) {
    const ModelConfig& config = model_->config();
    const TensorView hidden = activations_.hidden(rows.n());
    Product product{half.matrix, hidden, half.bias};
    if (collective_ == nullptr && half.post_norm.empty() && half.scale.empty() && config.residual_scale == 1.0F)
        return multiply(layer, rows, half.x, {&product, 1}, MatmulStore::Add);
    product.y = activations_.rows(Activation::Normed, rows.n(), hidden.cols());
    multiply(layer, rows, half.x, {&product, 1});
    if (collective_ != nullptr)
        stage(
            PassStage::Sum, layer, rows.n(), [&] { return rows_bytes(product.y); },
            [&] { collective_->all_reduce(exec(), product.y); });
    post_norm(layer, product.y, half.post_norm);
    stage(
        PassStage::Sum, layer, rows.n(), [&] { return rows_bytes(product.y) + rows_bytes(hidden); },
        [&] { add(exec(), {.x = product.y, .y = hidden, .scale = config.residual_scale, .factor = half.scale}); });
}

void ModelPass::compute_logits(std::int64_t n_tokens, std::span<const std::int32_t> logit_tokens) {
    const ModelConfig& config = model_->config();
    const std::int64_t n_rows = std::ssize(logit_tokens);
    const TensorView hidden = activations_.hidden(n_tokens);
    const TensorView selected = activations_.rows(Activation::Selected, n_rows, config.d_model);
    // One copy for each run of consecutive rows; the rows of a tree are one run.
    for (std::int64_t begin = 0, end = 0; begin < n_rows; begin = end) {
        const std::int32_t token = logit_tokens[begin];
        for (end = begin + 1; end < n_rows && logit_tokens[end] == token + end - begin;) ++end;
        CHECK(token >= 0 && token + end - begin <= n_tokens, "logits of tokens {} to {} of {}", token,
              token + end - begin - 1, n_tokens);
        stream_->copy(selected.row(begin), hidden.row(token), (end - begin) * selected.row_stride_bytes);
    }
    norm(-1, selected, model_->weights().output_norm, selected, next_weights(0, {}, {TensorRole::LmHead}));
    const Product product{TensorRole::LmHead, activations_.rows(Activation::Logits, n_rows, config.vocab)};
    multiply(0, {}, selected, {&product, 1});
    if (config.logit_softcap > 0.0F) softcap(exec(), {.y = product.y, .cap = config.logit_softcap});
}

}  // namespace slipstream
