#include "runtime/pass/model_pass.h"

#include <algorithm>
#include <array>

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/delta_net.h"
#include "kernels/elementwise.h"
#include "kernels/view_pages.h"

namespace slipstream {

namespace {

constexpr auto no_bytes = [] { return std::size_t{0}; };

// Returns the bytes of the committed rows of the KV chunks of `args` that a token sees, and of the scratch rows if
// these are folded as well.
std::size_t kv_bytes(const AttentionArgs& args) {
    const std::int64_t first =
        std::max(args.first_chunk * kChunkTokens, args.window == 0 ? 0 : args.n_committed + 1 - args.window);
    const std::int64_t end =
        args.end_chunk == kAllChunks ? args.n_committed : std::min(args.end_chunk * kChunkTokens, args.n_committed);
    const std::int64_t n_scratch = args.end_chunk == kAllChunks ? args.q.rows() : 0;
    return static_cast<std::size_t>(std::max<std::int64_t>(end - first, 0) + n_scratch) * 2 *
           args.shape.scratch_row_bytes();
}

}  // namespace

PassStage product_stage(TensorRole role) {
    switch (role) {
        case TensorRole::AttnOut:
        case TensorRole::DeltaOut:
            return PassStage::Output;
        case TensorRole::Gate:
            return PassStage::GateUp;
        case TensorRole::Down:
            return PassStage::Down;
        case TensorRole::LmHead:
            return PassStage::Head;
        default:
            return PassStage::Qkv;
    }
}

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
        on_device_.resize(static_cast<std::size_t>(
            model.config().largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_experts; })));
        expert_figures_.resize(static_cast<std::size_t>(model.config().n_layers()));
        resident_group_.reserve(static_cast<std::size_t>(
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

void ModelPass::rope_angles(std::int64_t n) {
    stage(PassStage::Rotate, -1, n, no_bytes, [&] {
        for (std::size_t rope = 0; rope < model_->ropes().size(); ++rope) {
            RopeTableArgs args{.positions = paths_.positions().data(),
                               .inverse_frequency = model_->ropes()[rope].inverse_frequency.data(),
                               .magnitude = model_->ropes()[rope].magnitude,
                               .cos_sin = activations_.angles(rope, n)};
            rope_table(exec(), args);
            const RopeConfig& config = model_->config().ropes[rope];
            if (config.query_growth == 0.0) continue;
            query_factors_.clear();
            for (std::int64_t t = 0; t < n; ++t)
                query_factors_.push_back(static_cast<float>(config.query_factor(paths_.positions()[t])));
            args.factors = query_factors_.data();
            args.cos_sin = activations_.query_angles(rope, n);
            rope_table(exec(), args);
        }
    });
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
    const ChunkRange streamed = kv_ != nullptr ? kv_->streamed(layer) : ChunkRange{};
    const LayerPages pages = rows.kv->pages(layer);
    if (pages.most_slots > 0) {
        fold_pages(args, pages, layer, rows);
    } else if (streamed.empty()) {
        fold(args, layer, rows);
    } else {
        fold_segments(args, streamed, layer, rows);
    }
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

// Folds the KV chunks of `args`, and shows committed ones to the observer.
void ModelPass::fold(AttentionArgs args, std::int64_t layer, const PassRows& rows) {
    stage(
        PassStage::Attention, layer, rows.n(), [&] { return kv_bytes(args); }, [&] { attention(exec(), args); });
    if (rows.hooks == nullptr) return;
    const ChunkRange range{args.first_chunk, std::min(args.end_chunk, ceil_div(rows.n_committed, kChunkTokens))};
    if (!range.empty()) rows.hooks->on_kv(exec(), layer, {range, args.chunks}, args.q, rows.n_committed);
}

// Folds view pages, then KV chunks and scratch, all of which are resident.
void ModelPass::fold_pages(AttentionArgs args, const LayerPages& pages, std::int64_t layer, const PassRows& rows) {
    CHECK(kv_ == nullptr && activations_.buffer(Activation::Fold).size_bytes() > 0,
          "view pages in a pass without room for them");
    args.state = reinterpret_cast<float*>(activations_.buffer(Activation::Fold).data());
    args.part = AttentionPart::Last;
    const auto page_bytes = [&] { return pages.n_bytes; };
    stage(PassStage::Attention, layer, rows.n(), page_bytes, [&] {
        view_pages_attention(exec(), {.shape = args.shape,
                                      .q = args.q,
                                      .n_q_heads = args.n_q_heads,
                                      .pages = pages.pages,
                                      .ranges = pages.ranges,
                                      .most_slots = pages.most_slots,
                                      .scale = args.scale,
                                      .softcap = args.softcap,
                                      .sinks = args.sinks,
                                      .state = args.state});
    });
    fold(args, layer, rows);
}

// Folds resident KV chunks, then the streamed segments as they arrive, then the tail and scratch.
void ModelPass::fold_segments(AttentionArgs args, const ChunkRange& streamed, std::int64_t layer,
                              const PassRows& rows) {
    const std::byte* const* here = args.chunks;
    const auto fold_part = [&](const ChunkRange& range, const std::byte* const* chunks) {
        args.first_chunk = range.first;
        args.end_chunk = range.end;
        args.chunks = chunks;
        fold(args, layer, rows);
        args.part = AttentionPart::Middle;
    };
    args.state = reinterpret_cast<float*>(activations_.buffer(Activation::Fold).data());
    args.part = AttentionPart::First;
    if (streamed.first > 0) fold_part({0, streamed.first}, here);
    const auto next_segment = [&] {
        std::optional<KvSegment> segment;
        stage(PassStage::Wait, layer, -1, no_bytes, [&] { segment = kv_->acquire_kv(layer, *stream_); });
        return segment;
    };
    while (const std::optional<KvSegment> segment = next_segment()) {
        fold_part(segment->range, segment->chunks);
        kv_->release_kv(*stream_);
    }
    args.part = args.part == AttentionPart::First ? AttentionPart::Whole : AttentionPart::Last;
    fold_part({streamed.end, kAllChunks}, here);
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
    if (!half.post_norm.empty())
        norm(layer, {.x = product.y,
                     .weight = half.post_norm,
                     .y = product.y,
                     .eps = config.post_norm_eps > 0.0F ? config.post_norm_eps : config.rms_eps});
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

// Computes y = x W^T + bias for each product, timed as one stage; waits for the weights that stream.
void ModelPass::multiply(std::int64_t layer, const PassRows& rows, const ConstTensorView& x,
                         std::span<const Product> products, MatmulStore store) {
    const PassStage of_product = product_stage(products.front().role);
    stage(
        of_product, of_product == PassStage::Head ? -1 : layer, x.rows(), [&] { return weight_bytes(layer, products); },
        [&] { multiply_parts(layer, rows, x, products, store); });
}

std::size_t ModelPass::weight_bytes(std::int64_t layer, std::span<const Product> products, std::int32_t expert) const {
    std::size_t bytes = 0;
    for (const Product& product : products)
        for (const MatrixPart& part : model_->parts(layer, product.role, expert)) bytes += rows_bytes(part.packed);
    return bytes;
}

// A matrix may be in several parts; each part makes columns of y. Parts that are on the device at the same time go to
// the kernel together; a streamed item is computed with, and released, where its last part ends.
void ModelPass::multiply_parts(std::int64_t layer, const PassRows& rows, const ConstTensorView& x,
                               std::span<const Product> products, MatmulStore store) {
    std::array<MatmulArgs, 8> batch;
    std::size_t n = 0;
    const auto compute = [&] {
        matmuls(exec(), std::span(batch).first(n));
        n = 0;
    };
    for (const Product& product : products) {
        for (const MatrixPart& part : model_->parts(layer, product.role)) {
            const std::int64_t n_rows = part.packed.shape[0];
            const bool streams = model_->streams(part.item);
            MatmulArgs& args = batch[n++];
            args = {
                .weights = part.packed, .x = x, .y = matrix_columns(product.y, part.first_row, n_rows), .store = store};
            if (rows.phase == Phase::Prefill)
                args.prompt = PrefillChunk{.first_token = rows.n_committed % kPrefillChunkTokens,
                                           .first_row = part.first_row,
                                           .matrix_rows = product.y.shape[1]};
            if (streams) args.weights.data = acquire_part(layer, part);
            if (!product.bias.empty()) args.bias = matrix_columns(product.bias, part.first_row, n_rows);
            const bool ends = streams && part.ends_item;
            if (ends || n == batch.size()) compute();
            if (ends) weights_->release_item(part.item, *stream_);
        }
    }
    if (n > 0) compute();
}

const std::byte* ModelPass::acquire_part(std::int64_t layer, const MatrixPart& part) {
    const std::byte* data = nullptr;
    stage(PassStage::Wait, layer, -1, no_bytes,
          [&] { data = weights_->acquire_item(part.item, *stream_) + part.offset; });
    return data;
}

// Returns the types of the matrices of `roles` in a layer, or in those of its `experts`, which are multiplied with an
// op's output next: the op may lay out its output for them. Returns none in prefill chunks, whose kernels may need
// another layout.
NextWeights ModelPass::next_weights(std::int64_t layer, const PassRows& rows, std::initializer_list<TensorRole> roles,
                                    std::span<const std::int32_t> experts) const {
    NextWeights next;
    if (rows.phase == Phase::Prefill) return next;
    for (const TensorRole role : roles)
        for (const std::int32_t expert : experts)
            for (const MatrixPart& part : model_->parts(layer, role, expert))
                next.set(static_cast<std::size_t>(part.packed.dtype));
    return next;
}

}  // namespace slipstream
