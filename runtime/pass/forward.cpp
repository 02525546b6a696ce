#include "runtime/pass/forward.h"

#include <algorithm>
#include <array>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/elementwise.h"
#include "kernels/graph_paths.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

namespace {

ActivationLimits activation_limits(const ForwardLimits& limits, bool streams) {
    return {.n_tokens = limits.max_tokens, .n_logit_rows = limits.max_logit_rows, .streams = streams};
}

// Columns [first, first + n) of a float matrix.
template <typename Byte>
BasicTensorView<Byte> columns(BasicTensorView<Byte> view, std::int64_t first, std::int64_t n) {
    view.data += row_bytes(DType::F32, first);
    view.shape[view.rank - 1] = n;
    return view;
}

}  // namespace

Forward::Forward(const Model& model, const ForwardLimits& limits, PassStream* pass, Collective* collective)
    : model_(&model),
      limits_(limits),
      pass_(pass),
      collective_(collective),
      stream_(model.device().make_stream(StreamKind::Compute)),
      activations_(model.device(), model.config(), activation_limits(limits, pass != nullptr)),
      paths_(limits.max_tokens) {
    CHECK(limits.max_tokens > 0 && limits.max_logit_rows > 0 && limits.max_logit_rows <= limits.max_tokens,
          "a pass of {} tokens with {} rows of logits", limits.max_tokens, limits.max_logit_rows);
    Device& device = model.device();
    if (!device.shares_host_memory())
        remote_ = std::make_unique<DeviceLogits>(device, limits.max_logit_rows, model.config().vocab);
    row_positions_.reserve(limits.max_logit_rows);
    if (pass != nullptr || collective != nullptr || limits.graphs == GraphUse::Never || !stream_->has_graphs()) return;
    graph_nodes_.reserve(std::min(limits.max_tokens, kMostGraphTokens));
    graphs_ = std::make_unique<PassGraphs>(device, *stream_);
}

std::size_t Forward::device_bytes(const ModelConfig& config, const ForwardLimits& limits, Streaming streaming) {
    return Activations::bytes(config, activation_limits(limits, streaming == Streaming::Yes));
}

WorkspaceShapes Forward::workspace_shapes(const ModelConfig& config, DType kv_dtype, const ForwardLimits& limits) {
    return {.n_tokens = limits.max_tokens,
            .max_cols = std::max({config.d_model, config.d_ff, config.n_q_heads * config.head_dim}),
            .kv = {config.n_kv_heads, config.head_dim, kv_dtype},
            .n_q_heads = config.n_q_heads,
            .n_logit_rows = limits.max_logit_rows,
            .vocab = config.vocab,
            .prompt_rows = limits.max_tokens < kPrefillChunkTokens
                               ? 0
                               : std::max({config.d_model, config.d_ff, config.n_q_heads * config.head_dim,
                                           config.n_kv_heads * config.head_dim})};
}

void Forward::check_pass(const PassReads& reads, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                         std::span<const std::int32_t> logit_tokens) const {
    const std::int64_t n = std::ssize(tokens);
    CHECK(n >= 1 && n <= limits_.max_tokens && nodes.size() == tokens.size() &&
              std::ssize(logit_tokens) <= limits_.max_logit_rows,
          "{} tokens, {} nodes, {} rows of logits; limits {} and {}", n, nodes.size(), logit_tokens.size(),
          limits_.max_tokens, limits_.max_logit_rows);
    CHECK(pass_ != nullptr || !reads.streams(), "a pass that streams, and nothing to bring it");
}

ConstTensorView Forward::run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                             std::span<const std::int32_t> logit_tokens, const PassControl& control, Phase phase,
                             PassHooks* hooks) {
    const LogitRows logits = enqueue(kv, tokens, nodes, logit_tokens, nullptr, control, phase, hooks);
    stream_->synchronize();
    return logits.view();
}

LogitRows Forward::run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                       std::span<const std::int32_t> logit_tokens, const LogitRequest& needs,
                       const PassControl& control, PassHooks* hooks) {
    const LogitRows logits = enqueue(kv, tokens, nodes, logit_tokens, &needs, control, Phase::Decode, hooks);
    stream_->synchronize();
    return logits;
}

// Where the tokens stand, and their angles; the residual stream is still to be filled.
Forward::Rows Forward::prepare(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                               std::span<const std::int32_t> logit_tokens, Phase phase, PassHooks* hooks) {
    CHECK(phase == Phase::Decode || logit_tokens.empty(), "logits of {} tokens of prompt", logit_tokens.size());
    check_pass({model_, &kv}, tokens, nodes, logit_tokens);
    paths_.trace(kv, nodes);
    activations_.use_hidden(activations_.buffer(Activation::Hidden).data());
    rope_angles(std::ssize(nodes));
    return {&kv, tokens, nodes, kv.nodes().n_committed(), phase, hooks};
}

Forward::Steps::Steps(Forward& forward, const Rows& rows, std::span<const std::int32_t> logit_tokens)
    : forward_(&forward),
      rows_(rows),
      logit_tokens_(logit_tokens),
      running_(forward.stream_for({forward.model_, rows.kv}), {forward.model_, rows.kv}, *forward.stream_) {
    PassStream* stream = forward.stream_for({forward.model_, rows.kv});
    forward.weights_ = stream;
    forward.kv_ = rows.kv->host() != nullptr ? stream : nullptr;
}

LogitRows Forward::Steps::logits(const LogitRequest* needs) {
    forward_->compute_logits(rows_.n(), logit_tokens_);
    return forward_->hand_over(logit_tokens_, needs);
}

LogitRows Forward::enqueue(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                           std::span<const std::int32_t> logit_tokens, const LogitRequest* needs,
                           const PassControl& control, Phase phase, PassHooks* hooks) {
    const Rows rows = prepare(kv, tokens, nodes, logit_tokens, phase, hooks);
    embed_rows(rows);
    if (graphs_ != nullptr && control.cancelled()) return {};
    if (run_graph(rows, logit_tokens, control)) return hand_over(logit_tokens, needs);
    Steps steps = at_layer(0, [&] { return Steps(*this, rows, logit_tokens); });
    for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
        if (!control.report_progress(layer, n_layers())) return {};
        at_layer(layer, [&] { steps.run_layer(layer); });
    }
    const LogitRows logits = at_layer(kLmHeadStage, [&] { return steps.logits(needs); });
    steps.complete();
    return logits;
}

// Layers and logits as one launch, where passes of this shape came before. Tokens and angles went ahead, logits follow.
bool Forward::run_graph(const Rows& rows, std::span<const std::int32_t> logit_tokens, const PassControl& control) {
    const std::int64_t n = rows.n();
    const std::int64_t n_logits = std::ssize(logit_tokens);
    if (graphs_ == nullptr || rows.phase != Phase::Decode || n > kMostGraphTokens || control.on_progress ||
        rows.hooks != nullptr)
        return false;
    for (std::int64_t i = 0; i < n_logits; ++i)
        if (logit_tokens[i] != n - n_logits + i) return false;
    graph_nodes_.assign(rows.nodes.begin(), rows.nodes.end());
    const std::int64_t highest = *std::ranges::max_element(paths_.slots());
    const PassShape shape{.n_tokens = n,
                          .n_logit_rows = n_logits,
                          .n_chunks = graph_chunks(highest / kChunkTokens + 1),
                          .path_rows = graph_path_rows(highest - rows.n_committed + 1),
                          .paths = paths_.rows().data(),
                          .scratch = rows.kv->scratch_k(0),
                          .chunks = rows.kv->chunks(0),
                          .max_nodes = rows.kv->nodes().max_nodes()};
    weights_ = nullptr;
    kv_ = nullptr;
    Rows kept = rows;
    kept.nodes = graph_nodes_;
    return graphs_->run(shape, {.n_committed = rows.n_committed}, [&] {
        for (std::int64_t layer = 0; layer < n_layers(); ++layer) run_layer(layer, kept, LayerPart::Whole);
        compute_logits(n, logit_tokens);
    });
}

void Forward::embed_rows(const Rows& rows) {
    embed(
        exec(),
        {.table = model_->weights().token_embedding, .tokens = rows.tokens.data(), .y = activations_.hidden(rows.n())});
}

void Forward::rope_angles(std::int64_t n) {
    rope_table(exec(), {.positions = paths_.positions().data(),
                        .inverse_frequency = model_->rope().inverse_frequency.data(),
                        .magnitude = model_->rope().magnitude,
                        .cos_sin = activations_.rows(Activation::CosSin, n)});
}

// y = x W^T for matrices in parts, wherever they are: each part makes columns of a y. Parts go to the device together
// as far as they are there together: what streams is computed where its item ends, and given back.
void Forward::multiply(std::int64_t layer, const Rows& rows, const ConstTensorView& x,
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
            args = {.weights = part.packed, .x = x, .y = columns(product.y, part.first_row, n_rows), .store = store};
            if (rows.phase == Phase::Prefill)
                args.prompt = PrefillChunk{.first_token = rows.n_committed % kPrefillChunkTokens,
                                           .first_row = part.first_row,
                                           .matrix_rows = product.y.shape[1]};
            if (streams) args.weights.data = weights_->acquire_item(part.item, *stream_) + part.offset;
            if (!product.bias.empty()) args.bias = columns(product.bias, part.first_row, n_rows);
            const bool ends = streams && part.ends_item;
            if (ends || n == batch.size()) compute();
            if (ends) weights_->release_item(part.item, *stream_);
        }
    }
    if (n > 0) compute();
}

// What an op may lay its output out for. Whole prefill chunks may have kernels that want it in another way.
NextWeights Forward::next_weights(std::int64_t layer, const Rows& rows, std::initializer_list<MatrixRole> roles) const {
    NextWeights next;
    if (rows.phase == Phase::Prefill) return next;
    for (const MatrixRole role : roles)
        for (const MatrixPart& part : model_->parts(layer, role)) next.set(static_cast<std::size_t>(part.packed.dtype));
    return next;
}

// The one body of a layer: of passes, of their graphs, and of prefill chunks.
void Forward::run_layer(std::int64_t layer, const Rows& rows, LayerPart part) {
    keys_and_values(layer, rows);
    if (part == LayerPart::KvRows) return;
    attend(layer, rows);
    feed_forward(layer, rows);
}

// Adds what half a layer makes, `x` times a matrix, to the residual stream: inside the product, where that is whole.
// Parts of one are summed up first; normed activations, which neither half needs any more, give them their place.
void Forward::add_to_residual(std::int64_t layer, MatrixRole role, const Rows& rows, const ConstTensorView& x,
                              const ConstTensorView& bias) {
    const TensorView hidden = activations_.hidden(rows.n());
    Product product{.role = role, .y = hidden, .bias = bias};
    if (collective_ == nullptr) return multiply(layer, rows, x, {&product, 1}, MatmulStore::Add);
    product.y = activations_.rows(Activation::Normed, rows.n());
    multiply(layer, rows, x, {&product, 1});
    collective_->all_reduce(exec(), product.y);
    add(exec(), {.x = product.y, .y = hidden});
}

// Queries, keys and values of a layer, the latter two rounded into scratch.
void Forward::keys_and_values(std::int64_t layer, const Rows& rows) {
    const ModelConfig& config = model_->config();
    const LayerWeights& weights = model_->weights().layers[layer];
    const std::int64_t n = rows.n();
    const TensorView normed = activations_.rows(Activation::Normed, n);
    const TensorView q = activations_.rows(Activation::Q, n);
    const TensorView k = activations_.rows(Activation::K, n);
    const TensorView v = activations_.rows(Activation::V, n);

    rms_norm(exec(), {.x = activations_.hidden(n),
                      .weight = weights.attn_norm,
                      .y = normed,
                      .eps = config.rms_eps,
                      .next = next_weights(layer, rows, {MatrixRole::Q, MatrixRole::K, MatrixRole::V})});
    const Product products[] = {{.role = MatrixRole::Q, .y = q, .bias = weights.q_bias},
                                {.role = MatrixRole::K, .y = k, .bias = weights.k_bias},
                                {.role = MatrixRole::V, .y = v, .bias = weights.v_bias}};
    multiply(layer, rows, normed, products);
    // Qwen3 norms each head by itself, before rope; on its own where somebody wants to see it.
    const bool norms_apart = !weights.q_norm.empty() && rows.hooks != nullptr;
    if (norms_apart) {
        const TensorView q_heads = activations_.heads(Activation::Q, n, config.head_dim);
        const TensorView k_heads = activations_.heads(Activation::K, n, config.head_dim);
        rms_norm(exec(), {.x = q_heads, .weight = weights.q_norm, .y = q_heads, .eps = config.rms_eps});
        rms_norm(exec(), {.x = k_heads, .weight = weights.k_norm, .y = k_heads, .eps = config.rms_eps});
    }
    if (rows.hooks != nullptr) rows.hooks->on_rows(exec(), layer, k, v);
    rotate_write(exec(), {.shape = rows.kv->shape(),
                          .q = q,
                          .k = k,
                          .v = v,
                          .cos_sin = activations_.rows(Activation::CosSin, n),
                          .layout = config.rope_layout,
                          .scratch_k = rows.kv->scratch_k(layer),
                          .scratch_v = rows.kv->scratch_v(layer),
                          .scratch_rows = scratch_rows(rows.nodes),
                          .q_norm = norms_apart ? ConstTensorView{} : weights.q_norm,
                          .k_norm = norms_apart ? ConstTensorView{} : weights.k_norm,
                          .eps = config.rms_eps});
}

// The half of a layer that reads KV.
void Forward::attend(std::int64_t layer, const Rows& rows) {
    const ModelConfig& config = model_->config();
    const TensorView attended = activations_.rows(Activation::Attended, rows.n());
    const AttentionArgs args{
        .shape = rows.kv->shape(),
        .q = activations_.rows(Activation::Q, rows.n()),
        .out = attended,
        .n_q_heads = config.n_q_heads,
        .positions = paths_.slots().data(),
        .chunks = kv_ != nullptr ? kv_->chunks(layer) : rows.kv->chunks(layer),
        .n_committed = rows.n_committed,
        .scratch_k = rows.kv->scratch_k(layer),
        .scratch_v = rows.kv->scratch_v(layer),
        .path_begin = paths_.begin().data(),
        .path_rows = paths_.rows().data(),
        .scale = config.attention_scale(),
        .window = config.window(layer),
        .next = next_weights(layer, rows, {MatrixRole::AttnOut}),
    };
    const ChunkRange streamed = kv_ != nullptr ? kv_->streamed(layer) : ChunkRange{};
    if (streamed.empty()) {
        fold(args, layer, rows);
    } else {
        fold_segments(args, streamed, layer, rows);
    }
    add_to_residual(layer, MatrixRole::AttnOut, rows, attended, model_->weights().layers[layer].attn_out_bias);
}

// A part of the fold over chunks, and who wants to see them.
void Forward::fold(AttentionArgs args, std::int64_t layer, const Rows& rows) {
    attention(exec(), args);
    if (rows.hooks == nullptr) return;
    const ChunkRange range{args.first_chunk, std::min(args.end_chunk, ceil_div(rows.n_committed, kChunkTokens))};
    if (!range.empty()) rows.hooks->on_kv(exec(), layer, {range, args.chunks}, args.q, rows.n_committed);
}

// Chunks that are resident, those that stream as they come, then the tail and the scratch.
void Forward::fold_segments(AttentionArgs args, const ChunkRange& streamed, std::int64_t layer, const Rows& rows) {
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
    while (const std::optional<KvSegment> segment = kv_->acquire_kv(layer, *stream_)) {
        fold_part(segment->range, segment->chunks);
        kv_->release_kv(*stream_);
    }
    args.part = args.part == AttentionPart::First ? AttentionPart::Whole : AttentionPart::Last;
    fold_part({streamed.end, kAllChunks}, here);
}

// The other half.
void Forward::feed_forward(std::int64_t layer, const Rows& rows) {
    const LayerWeights& weights = model_->weights().layers[layer];
    const TensorView normed = activations_.rows(Activation::Normed, rows.n());
    const TensorView gate = activations_.rows(Activation::Gate, rows.n());
    const TensorView up = activations_.rows(Activation::Up, rows.n());
    rms_norm(exec(), {.x = activations_.hidden(rows.n()),
                      .weight = weights.ffn_norm,
                      .y = normed,
                      .eps = model_->config().rms_eps,
                      .next = next_weights(layer, rows, {MatrixRole::Gate, MatrixRole::Up})});
    const Product products[] = {{.role = MatrixRole::Gate, .y = gate}, {.role = MatrixRole::Up, .y = up}};
    multiply(layer, rows, normed, products);
    gated_activation(exec(),
                     {.gate = gate, .up = up, .y = gate, .next = next_weights(layer, rows, {MatrixRole::Down})});
    add_to_residual(layer, MatrixRole::Down, rows, gate, {});
}

LogitFigures Forward::logit_figures() const {
    return remote_ != nullptr ? remote_->figures() : LogitFigures{};
}

void Forward::compute_logits(std::int64_t n_tokens, std::span<const std::int32_t> logit_tokens) {
    const std::int64_t n_rows = std::ssize(logit_tokens);
    const TensorView hidden = activations_.hidden(n_tokens);
    const TensorView selected = activations_.rows(Activation::Selected, n_rows);
    // Rows of a tree stand behind one another: one copy a run of them.
    for (std::int64_t begin = 0, end = 0; begin < n_rows; begin = end) {
        const std::int32_t token = logit_tokens[begin];
        for (end = begin + 1; end < n_rows && logit_tokens[end] == token + end - begin;) ++end;
        CHECK(token >= 0 && token + end - begin <= n_tokens, "logits of tokens {} to {} of {}", token,
              token + end - begin - 1, n_tokens);
        stream_->copy(selected.row(begin), hidden.row(token), (end - begin) * selected.row_stride_bytes);
    }
    rms_norm(exec(), {.x = selected,
                      .weight = model_->weights().output_norm,
                      .y = selected,
                      .eps = model_->config().rms_eps,
                      .next = next_weights(0, Rows{}, {MatrixRole::LmHead})});
    const Product product{.role = MatrixRole::LmHead, .y = activations_.rows(Activation::Logits, n_rows)};
    multiply(0, Rows{}, selected, {&product, 1});
}

// To the host, once the stream has come there: whole rows, or what `needs` says of them.
LogitRows Forward::hand_over(std::span<const std::int32_t> logit_tokens, const LogitRequest* needs) {
    const std::int64_t n_rows = std::ssize(logit_tokens);
    const TensorView logits = activations_.rows(Activation::Logits, n_rows);
    if (remote_ == nullptr) return {ConstTensorView(logits)};
    if (needs == nullptr) return {remote_->enqueue_rows(exec(), logits)};
    row_positions_.clear();
    for (const std::int32_t token : logit_tokens) row_positions_.push_back(std::int64_t{paths_.positions()[token]} + 1);
    remote_->enqueue_top(exec(), logits, *needs, row_positions_, activations_.buffer(Activation::Selected).data());
    return {*remote_, n_rows, model_->config().vocab};
}

}  // namespace slipstream
