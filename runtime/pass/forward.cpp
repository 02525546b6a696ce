#include "runtime/pass/forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/elementwise.h"
#include "kernels/graph_paths.h"
#include "kernels/matmul.h"
#include "runtime/pass/hidden_states.h"

namespace slipstream {

namespace {

std::size_t float_bytes(std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows) * row_bytes(DType::F32, cols);
}

// Of the rows whose logits are wanted; heads of the logits take the place of activations.
std::size_t selected_bytes(const ModelConfig& config, const ForwardLimits& limits) {
    return std::max(float_bytes(limits.max_logit_rows, config.d_model), DeviceLogits::top_bytes(limits.max_logit_rows));
}

Buffer floats(Device& device, std::int64_t rows, std::int64_t cols, std::string_view what) {
    return device.allocate(float_bytes(rows, cols), MemoryTag::Activations, what);
}

// Columns [first, first + n) of a float matrix.
template <typename Byte>
BasicTensorView<Byte> columns(BasicTensorView<Byte> view, std::int64_t first, std::int64_t n) {
    view.data += row_bytes(DType::F32, first);
    view.shape[static_cast<std::size_t>(view.rank - 1)] = n;
    return view;
}

bool cancelled(const PassWatch& watch) {
    return watch.cancel != nullptr && watch.cancel->load(std::memory_order_relaxed);
}

}  // namespace

Forward::Forward(const Model& model, const ForwardLimits& limits, PassStream* pass)
    : model_(&model), limits_(limits), pass_(pass), stream_(model.device().make_stream(StreamKind::Compute)) {
    CHECK(limits.max_tokens > 0 && limits.max_logit_rows > 0 && limits.max_logit_rows <= limits.max_tokens,
          "a pass of {} tokens with {} rows of logits", limits.max_tokens, limits.max_logit_rows);
    CHECK(pass == nullptr ? !model.streams_weights() : &pass->model() == &model);
    const ModelConfig& config = model.config();
    Device& device = model.device();
    const std::int64_t n = limits.max_tokens;
    const std::int64_t q_cols = config.n_q_heads * config.head_dim;
    const std::int64_t kv_cols = config.n_kv_heads * config.head_dim;
    hidden_[0] = floats(device, n, config.d_model, "the residual stream");
    if (pass != nullptr) {
        hidden_[1] = floats(device, n, config.d_model, "the residual stream of the next piece");
        fold_state_ = device.allocate(attention_state_floats(n, config.n_q_heads, config.head_dim) * sizeof(float),
                                      MemoryTag::Activations, "attention over KV that streams");
    }
    hidden_now_ = hidden_[0].data();
    normed_ = floats(device, n, config.d_model, "normed activations");
    q_ = floats(device, n, q_cols, "queries");
    k_ = floats(device, n, kv_cols, "keys");
    v_ = floats(device, n, kv_cols, "values");
    attended_ = floats(device, n, q_cols, "attention output");
    gate_ = floats(device, n, config.d_ff, "feed-forward gate");
    up_ = floats(device, n, config.d_ff, "feed-forward activations");
    cos_sin_ = floats(device, n, config.n_rotated, "rope angles");
    selected_ = device.allocate(selected_bytes(config, limits), MemoryTag::Activations, "selected activations");
    logits_ = floats(device, limits.max_logit_rows, config.vocab, "logits");
    if (!device.shares_host_memory())
        remote_ = std::make_unique<DeviceLogits>(device, limits.max_logit_rows, config.vocab);
    row_positions_.reserve(static_cast<std::size_t>(limits.max_logit_rows));
    positions_.reserve(static_cast<std::size_t>(n));
    path_begin_.reserve(static_cast<std::size_t>(n));
    path_rows_.reserve(static_cast<std::size_t>(n * (n + 1) / 2));  // a chain of n: each token's path one row longer
    if (pass != nullptr || limits.graphs == GraphUse::Never || !stream_->has_graphs()) return;
    graph_nodes_.reserve(static_cast<std::size_t>(std::min(n, kMostGraphTokens)));
    graphs_ = std::make_unique<PassGraphs>(device, *stream_);
}

std::size_t Forward::device_bytes(const ModelConfig& config, const ForwardLimits& limits, Streaming streaming) {
    const std::int64_t n = limits.max_tokens;
    const std::int64_t q_cols = config.n_q_heads * config.head_dim;
    const std::int64_t kv_cols = config.n_kv_heads * config.head_dim;
    std::size_t bytes = float_bytes(n, config.d_model) * 2 + float_bytes(n, q_cols) * 2 + float_bytes(n, kv_cols) * 2 +
                        float_bytes(n, config.d_ff) * 2 + float_bytes(n, config.n_rotated) +
                        selected_bytes(config, limits) + float_bytes(limits.max_logit_rows, config.vocab);
    if (streaming == Streaming::Yes)
        bytes += float_bytes(n, config.d_model) +
                 attention_state_floats(n, config.n_q_heads, config.head_dim) * sizeof(float);
    return bytes;
}

WorkspaceShapes Forward::workspace_shapes(const ModelConfig& config, const KvShape& kv, const ForwardLimits& limits) {
    return {.n_tokens = limits.max_tokens,
            .max_cols = std::max({config.d_model, config.d_ff, config.n_q_heads * config.head_dim}),
            .kv = kv,
            .n_q_heads = config.n_q_heads,
            .n_logit_rows = limits.max_logit_rows,
            .vocab = config.vocab,
            .prompt_rows = limits.max_tokens < kPromptPieceTokens
                               ? 0
                               : std::max({config.d_model, config.d_ff, config.n_q_heads * config.head_dim,
                                           config.n_kv_heads * config.head_dim})};
}

TensorView Forward::activation(const Buffer& buffer, std::int64_t n_rows, std::int64_t cols) const {
    return matrix_view(reinterpret_cast<float*>(buffer.data()), n_rows, cols);
}

TensorView Forward::hidden(std::int64_t n_rows) const {
    return matrix_view(reinterpret_cast<float*>(hidden_now_), n_rows, model_->config().d_model);
}

void Forward::check_pass(const KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                         std::span<const std::int32_t> logit_tokens) const {
    const std::int64_t n = std::ssize(tokens);
    CHECK(n >= 1 && n <= limits_.max_tokens && nodes.size() == tokens.size() &&
              std::ssize(logit_tokens) <= limits_.max_logit_rows,
          "{} tokens, {} nodes, {} rows of logits; limits {} and {}", n, nodes.size(), logit_tokens.size(),
          limits_.max_tokens, limits_.max_logit_rows);
    CHECK(pass_ == nullptr ? !cache.streams() : &cache == &pass_->cache(), "a cache that the pass does not stream");
}

ConstTensorView Forward::run(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                             std::span<const std::int32_t> logit_tokens, const PassWatch& watch, Phase kind) {
    const LogitRows logits = enqueue(cache, tokens, nodes, logit_tokens, nullptr, watch, kind);
    stream_->synchronize();
    return logits.view();
}

LogitRows Forward::run(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                       std::span<const std::int32_t> logit_tokens, const LogitRequest& needs, const PassWatch& watch) {
    const LogitRows logits = enqueue(cache, tokens, nodes, logit_tokens, &needs, watch, Phase::Decode);
    stream_->synchronize();
    return logits;
}

LogitRows Forward::enqueue(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                           std::span<const std::int32_t> logit_tokens, const LogitRequest* needs,
                           const PassWatch& watch, Phase kind) {
    const std::int64_t n_layers = model_->config().n_layers;
    check_pass(cache, tokens, nodes, logit_tokens);
    trace_paths(cache, nodes);
    const Rows rows{tokens, nodes, cache.n_committed(), kind};
    CHECK(kind == Phase::Decode || logit_tokens.empty(), "logits of {} tokens of prompt", logit_tokens.size());
    hidden_now_ = hidden_[0].data();
    embed_rows(rows);
    rope_angles(rows.n());
    if (graphs_ != nullptr && cancelled(watch)) return {};
    if (kind == Phase::Decode && run_graph(cache, rows, logit_tokens, watch)) return hand_over(logit_tokens, needs);
    RunningPass running(pass_, *stream_);
    weights_ = pass_;
    kv_ = cache.streams() ? pass_ : nullptr;
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        if (cancelled(watch)) return {};
        if (layer > 0 && watch.on_progress)
            watch.on_progress(static_cast<double>(layer) / static_cast<double>(n_layers));
        keys_and_values(cache, layer, rows, watch);
        attention_block(cache, layer, rows, watch);
        feed_forward_block(layer, rows);
    }
    compute_logits(rows.n(), logit_tokens);
    const LogitRows logits = hand_over(logit_tokens, needs);
    running.complete();
    return logits;
}

// Layers and logits as one launch, where passes of this shape came before. Tokens and angles went ahead, logits follow.
bool Forward::run_graph(KvCache& cache, const Rows& rows, std::span<const std::int32_t> logit_tokens,
                        const PassWatch& watch) {
    const std::int64_t n = rows.n();
    const std::int64_t n_logits = std::ssize(logit_tokens);
    if (graphs_ == nullptr || n > kMostGraphTokens || watch.on_progress ||
        (watch.on_kv_rows && watch.kv_rows_key == nullptr))
        return false;
    for (std::int64_t i = 0; i < n_logits; ++i)
        if (logit_tokens[static_cast<std::size_t>(i)] != n - n_logits + i) return false;
    graph_nodes_.assign(rows.nodes.begin(), rows.nodes.end());
    const std::int64_t highest = *std::ranges::max_element(positions_);
    const PassShape shape{.n_tokens = n,
                          .n_logit_rows = n_logits,
                          .n_chunks = graph_chunks(highest / kChunkTokens + 1),
                          .path_rows = graph_path_rows(highest - rows.n_committed + 1),
                          .paths = path_rows_.data(),
                          .cache = cache.scratch_k(0),
                          .chunks = cache.chunks(0),
                          .max_nodes = cache.max_nodes(),
                          .kv_rows = watch.kv_rows_key};
    weights_ = nullptr;
    kv_ = nullptr;
    const Rows kept{rows.tokens, graph_nodes_, rows.n_committed};
    return graphs_->run(shape, {.n_committed = rows.n_committed}, [&] {
        for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
            keys_and_values(cache, layer, kept, watch);
            attention_block(cache, layer, kept, watch);
            feed_forward_block(layer, kept);
        }
        compute_logits(n, logit_tokens);
    });
}

bool Forward::runs_by_layer(std::int64_t begin, std::int64_t end, std::int64_t piece_tokens) const {
    if (pass_ == nullptr || end <= begin || end % piece_tokens != 0 || !PromptStream::fits(*pass_, end, piece_tokens))
        return false;
    const std::int64_t n_pieces = end / piece_tokens - begin / piece_tokens + 1;
    const PinnedArena& arena = pass_->arena();
    return HiddenStates::host_bytes(n_pieces, hidden_[0].size_bytes()) <= arena.limit_bytes() - arena.used_bytes();
}

LogitRows Forward::run_by_layer(KvCache& cache, std::int64_t begin, std::int64_t piece_tokens,
                                std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                                std::span<const NodeId> nodes, std::span<const std::int32_t> logit_tokens,
                                const LogitRequest& needs, const PassWatch& watch) {
    const ModelConfig& config = model_->config();
    const std::int64_t end = begin + std::ssize(prompt);
    check_pass(cache, tokens, nodes, logit_tokens);
    CHECK(pass_ != nullptr && !prompt.empty() && cache.n_committed() == end && end % piece_tokens == 0 &&
          piece_tokens <= limits_.max_tokens && piece_tokens <= cache.max_nodes());
    piece_rows_.resize(static_cast<std::size_t>(piece_tokens));
    std::iota(piece_rows_.begin(), piece_rows_.end(), 0);
    // Pieces of the prompt, then the pass itself.
    const std::int64_t n_pieces = end / piece_tokens - begin / piece_tokens + 1;
    const auto rows_of = [&](std::int64_t piece) -> Rows {
        if (piece + 1 == n_pieces) return {tokens, nodes, end, Phase::Decode};
        const std::int64_t first = std::max(begin, (begin / piece_tokens + piece) * piece_tokens);
        const auto n = static_cast<std::size_t>((begin / piece_tokens + piece + 1) * piece_tokens - first);
        return {prompt.subspan(static_cast<std::size_t>(first - begin), n), std::span(piece_rows_).first(n), first,
                Phase::Prefill};
    };
    weights_ = nullptr;
    kv_ = nullptr;
    PromptStream stream(*pass_, exec(), begin, end, piece_tokens);
    HiddenStates states(model_->device(), pass_->copy_in(), pass_->arena(), {hidden_[0].data(), hidden_[1].data()},
                        n_pieces, float_bytes(std::max(piece_tokens, std::ssize(tokens)), config.d_model),
                        config.n_layers);
    weights_ = &stream;
    kv_ = stream.kv_pieces();
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
        stream.begin_layer(layer);
        for (std::int64_t piece = 0; piece < n_pieces; ++piece) {
            if (cancelled(watch)) return {};
            if (layer + piece > 0 && watch.on_progress)
                watch.on_progress(static_cast<double>(layer * n_pieces + piece) /
                                  static_cast<double>(config.n_layers * n_pieces));
            const bool is_pass = piece + 1 == n_pieces;
            const Rows rows = rows_of(piece);
            stream.begin_piece(rows.n_committed, is_pass ? rows.n_committed : rows.n_committed + rows.n());
            hidden_now_ = states.begin(*stream_);
            if (layer == 0) embed_rows(rows);
            if (is_pass) {
                trace_paths(cache, rows.nodes);
            } else {
                trace_chain(rows.n_committed, rows.n());
            }
            rope_angles(rows.n());
            keys_and_values(cache, layer, rows, watch);
            // Of the last layer nothing but the rows for the cache is wanted of a prompt.
            if (is_pass || layer + 1 < config.n_layers) {
                attention_block(cache, layer, rows, watch);
                feed_forward_block(layer, rows);
            }
            if (!is_pass)
                kv_commit(exec(), {.shape = cache.shape(),
                                   .scratch_k = cache.scratch_k(layer),
                                   .scratch_v = cache.scratch_v(layer),
                                   .scratch_rows = rows.nodes.data(),
                                   .n_rows = rows.n(),
                                   .first_position = rows.n_committed,
                                   .chunks = cache.chunks(layer)});
            stream.end_piece();
            states.end(*stream_);
        }
        stream.end_layer(layer);
    }
    compute_logits(std::ssize(tokens), logit_tokens);
    const LogitRows logits = hand_over(logit_tokens, &needs);
    stream.complete();
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

// The same for scratch rows 0 to n, each below the one before, from position `begin`: every path is the beginning of
// the last one.
void Forward::trace_chain(std::int64_t begin, std::int64_t n) {
    positions_.clear();
    path_begin_.assign(static_cast<std::size_t>(n), 0);
    path_rows_.clear();
    for (std::int64_t i = 0; i < n; ++i) {
        positions_.push_back(static_cast<std::int32_t>(begin + i));
        path_rows_.push_back(static_cast<std::int32_t>(i));
    }
}

void Forward::embed_rows(const Rows& rows) {
    embed(exec(), {.table = model_->weights().token_embedding, .tokens = rows.tokens.data(), .y = hidden(rows.n())});
}

void Forward::rope_angles(std::int64_t n) {
    rope_table(exec(), {.positions = positions_.data(),
                        .inverse_frequency = model_->rope().inverse_frequency.data(),
                        .magnitude = model_->rope().magnitude,
                        .cos_sin = activation(cos_sin_, n, model_->config().n_rotated)});
}

// y = x W^T for a matrix in parts, wherever they are; `args` says all but the weights. Each part makes columns of y.
void Forward::multiply(std::int64_t layer, MatrixRole role, const Rows& rows, MatmulArgs args) {
    const TensorView y = args.y;
    const ConstTensorView bias = args.bias;
    for (const MatrixPart& part : model_->parts(layer, role)) {
        const std::int64_t n_rows = part.packed.shape[0];
        args.weights = part.packed;
        const bool streams = model_->streams(part.item);
        if (rows.kind == Phase::Prefill)
            args.prompt = PromptPiece{.first_token = rows.n_committed % kPromptPieceTokens,
                                      .first_row = part.first_row,
                                      .matrix_rows = y.shape[1]};
        if (streams) args.weights.data = weights_->acquire_item(part.item, *stream_) + part.offset;
        args.y = columns(y, part.first_row, n_rows);
        if (!bias.empty()) args.bias = columns(bias, part.first_row, n_rows);
        matmul(exec(), args);
        if (streams && part.ends_item) weights_->release_item(part.item, *stream_);
    }
}

// Queries, keys and values of a layer, the latter two rounded into scratch.
void Forward::keys_and_values(KvCache& cache, std::int64_t layer, const Rows& rows, const PassWatch& watch) {
    const ModelConfig& config = model_->config();
    const LayerWeights& weights = model_->weights().layers[static_cast<std::size_t>(layer)];
    const std::int64_t n = rows.n();
    const std::int64_t d = config.head_dim;
    const TensorView normed = activation(normed_, n, config.d_model);
    const TensorView q = activation(q_, n, config.n_q_heads * d);
    const TensorView k = activation(k_, n, config.n_kv_heads * d);
    const TensorView v = activation(v_, n, config.n_kv_heads * d);
    const TensorView cos_sin = activation(cos_sin_, n, config.n_rotated);

    rms_norm(exec(), {.x = hidden(n), .weight = weights.attn_norm, .y = normed, .eps = config.rms_eps});
    multiply(layer, MatrixRole::Q, rows, {.x = normed, .y = q, .bias = weights.q_bias});
    multiply(layer, MatrixRole::K, rows, {.x = normed, .y = k, .bias = weights.k_bias});
    multiply(layer, MatrixRole::V, rows, {.x = normed, .y = v, .bias = weights.v_bias});
    if (!weights.q_norm.empty()) {  // Qwen3: each head by itself, before rope
        const TensorView q_heads = activation(q_, n * config.n_q_heads, d);
        const TensorView k_heads = activation(k_, n * config.n_kv_heads, d);
        rms_norm(exec(), {.x = q_heads, .weight = weights.q_norm, .y = q_heads, .eps = config.rms_eps});
        rms_norm(exec(), {.x = k_heads, .weight = weights.k_norm, .y = k_heads, .eps = config.rms_eps});
    }
    if (watch.on_kv_rows) watch.on_kv_rows(layer, k, v);
    rotate_write(exec(), {.shape = cache.shape(),
                          .q = q,
                          .k = k,
                          .v = v,
                          .cos_sin = cos_sin,
                          .layout = config.rope_layout,
                          .scratch_k = cache.scratch_k(layer),
                          .scratch_v = cache.scratch_v(layer),
                          .scratch_rows = rows.nodes.data()});
}

void Forward::attention_block(KvCache& cache, std::int64_t layer, const Rows& rows, const PassWatch&) {
    const ModelConfig& config = model_->config();
    const LayerWeights& weights = model_->weights().layers[static_cast<std::size_t>(layer)];
    const std::int64_t q_cols = config.n_q_heads * config.head_dim;
    const TensorView attended = activation(attended_, rows.n(), q_cols);
    attend(cache, layer,
           {.shape = cache.shape(),
            .q = activation(q_, rows.n(), q_cols),
            .out = attended,
            .n_q_heads = config.n_q_heads,
            .positions = positions_.data(),
            .chunks = cache.chunks(layer),
            .n_committed = rows.n_committed,
            .scratch_k = cache.scratch_k(layer),
            .scratch_v = cache.scratch_v(layer),
            .path_begin = path_begin_.data(),
            .path_rows = path_rows_.data(),
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
            .window = config.window(layer)});
    multiply(layer, MatrixRole::AttnOut, rows,
             {.x = attended, .y = hidden(rows.n()), .bias = weights.attn_out_bias, .store = MatmulStore::Add});
}

// The fold over chunks: what is resident, what streams as it comes, then the tail and the scratch.
void Forward::attend(KvCache& cache, std::int64_t layer, AttentionArgs args) {
    const std::int64_t n_host = kv_ != nullptr ? kv_->host_chunks() : 0;
    const std::int64_t n_resident = kv_ != nullptr ? cache.resident_chunks(layer) : 0;
    if (n_host <= n_resident) {
        attention(exec(), args);
        return;
    }
    args.state = reinterpret_cast<float*>(fold_state_.data());
    args.part = AttentionPart::First;
    const auto fold = [&](std::int64_t first_chunk, std::int64_t end_chunk) {
        args.first_chunk = first_chunk;
        args.end_chunk = end_chunk;
        attention(exec(), args);
        args.part = AttentionPart::Middle;
    };
    if (n_resident > 0) fold(0, n_resident);
    while (const std::optional<KvPiece> piece = kv_->acquire_kv(layer, *stream_)) {
        fold(piece->first_chunk, piece->end_chunk);
        kv_->release_kv(*stream_);
    }
    args.part = args.part == AttentionPart::First ? AttentionPart::Whole : AttentionPart::Last;
    fold(n_host, kAllChunks);
}

void Forward::feed_forward_block(std::int64_t layer, const Rows& rows) {
    const std::int64_t n_tokens = rows.n();
    const ModelConfig& config = model_->config();
    const LayerWeights& weights = model_->weights().layers[static_cast<std::size_t>(layer)];
    const TensorView normed = activation(normed_, n_tokens, config.d_model);
    const TensorView gate = activation(gate_, n_tokens, config.d_ff);
    const TensorView up = activation(up_, n_tokens, config.d_ff);
    rms_norm(exec(), {.x = hidden(n_tokens), .weight = weights.ffn_norm, .y = normed, .eps = config.rms_eps});
    multiply(layer, MatrixRole::Gate, rows, {.x = normed, .y = gate});
    multiply(layer, MatrixRole::Up, rows, {.x = normed, .y = up});
    swiglu(exec(), {.gate = gate, .up = up, .y = gate});
    multiply(layer, MatrixRole::Down, rows, {.x = gate, .y = hidden(n_tokens), .store = MatmulStore::Add});
}

LogitFigures Forward::logit_figures() const {
    return remote_ != nullptr ? remote_->figures() : LogitFigures{};
}

void Forward::compute_logits(std::int64_t n_tokens, std::span<const std::int32_t> logit_tokens) {
    const ModelConfig& config = model_->config();
    const std::int64_t n_rows = std::ssize(logit_tokens);
    const TensorView selected = activation(selected_, n_rows, config.d_model);
    // Rows of a tree stand behind one another: one copy a run of them.
    for (std::int64_t begin = 0, end = 0; begin < n_rows; begin = end) {
        const std::int32_t token = logit_tokens[static_cast<std::size_t>(begin)];
        for (end = begin + 1; end < n_rows && logit_tokens[static_cast<std::size_t>(end)] == token + end - begin;)
            ++end;
        CHECK(token >= 0 && token + end - begin <= n_tokens, "logits of tokens {} to {} of {}", token,
              token + end - begin - 1, n_tokens);
        stream_->copy(selected.row(begin), hidden(n_tokens).row(token),
                      static_cast<std::size_t>(end - begin) * selected.row_stride_bytes);
    }
    rms_norm(exec(), {.x = selected, .weight = model_->weights().output_norm, .y = selected, .eps = config.rms_eps});
    const TensorView logits = activation(logits_, n_rows, config.vocab);
    multiply(0, MatrixRole::LmHead, Rows{}, {.x = selected, .y = logits});
}

// To the host, once the stream has come there: whole rows, or what `needs` says of them.
LogitRows Forward::hand_over(std::span<const std::int32_t> logit_tokens, const LogitRequest* needs) {
    const ModelConfig& config = model_->config();
    const std::int64_t n_rows = std::ssize(logit_tokens);
    const TensorView logits = activation(logits_, n_rows, config.vocab);
    if (remote_ == nullptr) return {ConstTensorView(logits)};
    if (needs == nullptr) return {remote_->enqueue_rows(exec(), logits)};
    row_positions_.clear();
    for (const std::int32_t token : logit_tokens) row_positions_.push_back(std::int64_t{positions_[token]} + 1);
    remote_->enqueue_top(exec(), logits, *needs, row_positions_, selected_.data());
    return {*remote_, n_rows, config.vocab};
}

}  // namespace slipstream
