#include "runtime/pass/forward.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/elementwise.h"
#include "kernels/graph_paths.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

namespace {

ActivationLimits activation_limits(const ForwardLimits& limits, bool streams) {
    return {.n_tokens = limits.max_tokens,
            .n_logit_rows = limits.max_logit_rows,
            .max_drafts = limits.max_drafts > 0 ? limits.max_drafts : limits.max_tokens,
            .streams = streams,
            .pages = limits.pages};
}

}  // namespace

Forward::Forward(const Model& model, const ForwardLimits& limits, PassStream* pass, Collective* collective)
    : model_(&model),
      limits_(limits),
      streams_(pass),
      stream_(model.device().make_stream(StreamKind::Compute)),
      pass_(model, *stream_, activation_limits(limits, pass != nullptr), collective) {
    CHECK(limits.max_tokens > 0 && limits.max_logit_rows > 0 && limits.max_logit_rows <= limits.max_tokens,
          "a pass of {} tokens with {} rows of logits", limits.max_tokens, limits.max_logit_rows);
    Device& device = model.device();
    if (!device.shares_host_memory())
        remote_ = std::make_unique<DeviceLogits>(device, limits.max_logit_rows, model.config().vocab);
    row_positions_.reserve(limits.max_logit_rows);
    if (model.config().has_experts())
        for (const LayerConfig& layer : model.config().layers)
            neighbours_.emplace_back(layer.feed_forward.experts.n_experts);
    // Passes of models with recurrent layers are enqueued op by op: which of its states a layer reads and writes
    // changes from pass to pass, and so does the number of steps, with the committed draft tokens that are not in a
    // state yet. A pass over a layer of experts waits for the router's logits and follows them.
    const bool varies = model.config().is_recurrent() || model.config().has_experts();
    if (pass != nullptr || collective != nullptr || varies || limits.graphs == GraphUse::Never ||
        !stream_->has_graphs())
        return;
    graph_nodes_.reserve(std::min(limits.max_tokens, kMostGraphTokens));
    graphs_ = std::make_unique<PassGraphs>(device, *stream_);
}

void Forward::count_choices(const ExpertChoices& choices, std::int64_t first, std::span<const NodeId> path) {
    if (first != next_counted_)  // the text was cut, or another one begins: these are no neighbours
        for (NeighbourExperts& neighbours : neighbours_) neighbours.add({});
    next_counted_ = first + std::ssize(path);
    for (std::size_t layer = 0; layer < neighbours_.size(); ++layer)
        for (const NodeId node : path) neighbours_[layer].add(choices.of(static_cast<std::int64_t>(layer), node));
    if (streams_ != nullptr) streams_->count_choices(choices, path);
}

std::size_t Forward::device_bytes(const ModelConfig& config, const ForwardLimits& limits, Streaming streaming) {
    return Activations::bytes(config, activation_limits(limits, streaming == Streaming::Yes));
}

WorkspaceShapes Forward::workspace_shapes(const ModelConfig& config, DType kv_dtype, const ForwardLimits& limits) {
    std::vector<AttentionHeads> kinds;
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const LayerConfig& of_layer = config.layers[layer];
        const AttentionHeads heads{config.kv_layout(layer, kv_dtype),
                                   of_layer.has_attention() ? of_layer.attention().n_q_heads : 0};
        if (std::ranges::find(kinds, heads) == kinds.end()) kinds.push_back(heads);
    }
    return {.n_tokens = std::max(limits.max_tokens, expert_rows(config, limits.max_tokens)),
            .max_cols = std::max({config.d_model, config.max_d_ff(), config.max_q_cols(), config.max_delta_values()}),
            .attention = std::move(kinds),
            .delta_steps =
                DeltaSteps::most(limits.max_tokens, limits.max_drafts > 0 ? limits.max_drafts : limits.max_tokens),
            .n_experts = config.largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_experts; }),
            .n_logit_rows = limits.max_logit_rows,
            .vocab = config.vocab,
            .prompt_rows = limits.max_tokens < kPrefillChunkTokens
                               ? 0
                               : std::max({config.d_model, config.max_d_ff(), config.max_q_rows(), config.max_kv_cols(),
                                           config.max_delta_cols()})};
}

void Forward::check_pass(const PassReads& reads, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                         std::span<const std::int32_t> logit_tokens) const {
    const std::int64_t n = std::ssize(tokens);
    CHECK(n >= 1 && n <= limits_.max_tokens && nodes.size() == tokens.size() &&
              std::ssize(logit_tokens) <= limits_.max_logit_rows,
          "{} tokens, {} nodes, {} rows of logits; limits {} and {}", n, nodes.size(), logit_tokens.size(),
          limits_.max_tokens, limits_.max_logit_rows);
    CHECK(streams_ != nullptr || !reads.streams(), "a pass that streams, without a transfer ring");
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

// Computes slots, positions, paths and RoPE angles of the tokens. The caller must fill the residual stream (embed()).
PassRows Forward::prepare(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                          std::span<const std::int32_t> logit_tokens, Phase phase, PassHooks* hooks) {
    CHECK(phase == Phase::Decode || logit_tokens.empty(), "logits of {} tokens of prompt", logit_tokens.size());
    check_pass({model_, &kv}, tokens, nodes, logit_tokens);
    pass_.trace(kv, nodes);
    pass_.activations().use_hidden(pass_.activations().memory(Activation::Hidden).data());
    pass_.rope_angles(std::ssize(nodes));
    return {&kv, tokens, nodes, kv.nodes().n_committed(), phase, hooks};
}

Forward::Steps::Steps(Forward& forward, const PassRows& rows, std::span<const std::int32_t> logit_tokens)
    : forward_(&forward),
      rows_(rows),
      logit_tokens_(logit_tokens),
      running_(forward.stream_for({forward.model_, rows.kv}), {forward.model_, rows.kv}, *forward.stream_) {
    PassStream* stream = forward.stream_for({forward.model_, rows.kv});
    forward.pass_.read_from(stream, rows.kv->host() != nullptr ? stream : nullptr);
}

LogitRows Forward::Steps::logits(const LogitRequest* needs) {
    forward_->pass_.compute_logits(rows_.n(), logit_tokens_);
    return forward_->hand_over(logit_tokens_, needs);
}

LogitRows Forward::enqueue(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                           std::span<const std::int32_t> logit_tokens, const LogitRequest* needs,
                           const PassControl& control, Phase phase, PassHooks* hooks) {
    const PassRows rows = prepare(kv, tokens, nodes, logit_tokens, phase, hooks);
    pass_.embed(rows);
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

// Runs layers and logits as one graph, if the pass may be one and passes of its shape came before; else returns false
// with nothing enqueued. The caller has enqueued embedding and angles, and copies the logits to the host.
bool Forward::run_graph(const PassRows& rows, std::span<const std::int32_t> logit_tokens, const PassControl& control) {
    const std::int64_t n = rows.n();
    const std::int64_t n_logits = std::ssize(logit_tokens);
    if (graphs_ == nullptr || rows.phase != Phase::Decode || n > kMostGraphTokens || control.on_progress ||
        rows.hooks != nullptr || (pass_.profile() != nullptr && pass_.profile()->synchronizes()))
        return false;
    for (std::int64_t i = 0; i < n_logits; ++i)
        if (logit_tokens[i] != n - n_logits + i) return false;
    graph_nodes_.assign(rows.nodes.begin(), rows.nodes.end());
    const std::int64_t highest = *std::ranges::max_element(pass_.paths().slots());
    const PassShape shape{.n_tokens = n,
                          .n_logit_rows = n_logits,
                          .n_chunks = graph_chunks(highest / kChunkTokens + 1),
                          .path_rows = graph_path_rows(highest - rows.n_committed + 1),
                          .paths = pass_.paths().rows().data(),
                          .scratch = rows.kv->scratch_k(0),
                          .chunks = rows.kv->chunks(0),
                          .max_nodes = rows.kv->nodes().max_nodes()};
    pass_.read_from(nullptr, nullptr);
    PassRows kept = rows;
    kept.nodes = graph_nodes_;
    // Capturing runs the code of all stages without computing them, so they are not timed.
    struct Unprofiled {
        explicit Unprofiled(ModelPass& of) : pass(&of), profile(of.profile()) { pass->profile_with(nullptr); }
        ~Unprofiled() { pass->profile_with(profile); }
        Unprofiled(const Unprofiled&) = delete;
        Unprofiled& operator=(const Unprofiled&) = delete;
        ModelPass* pass;
        PassProfile* profile;
    } const captured(pass_);
    const auto began = captured.profile != nullptr ? captured.profile->begin() : PassProfile::Begin{};
    const bool launched = graphs_->run(shape, {.n_committed = rows.n_committed}, [&] {
        for (std::int64_t layer = 0; layer < n_layers(); ++layer) pass_.run_layer(layer, kept, LayerPart::Whole);
        pass_.compute_logits(n, logit_tokens);
    });
    if (launched && captured.profile != nullptr) captured.profile->end(began, PassStage::Graph, *stream_, -1, n, 0);
    return launched;
}

LogitFigures Forward::logit_figures() const {
    return remote_ != nullptr ? remote_->figures() : LogitFigures{};
}

// Enqueues the copy of the logits to the host if the device does not share its memory: the top logits that `needs` asks
// for, or whole rows if it is null. Returns rows that are valid once the stream has passed this point.
LogitRows Forward::hand_over(std::span<const std::int32_t> logit_tokens, const LogitRequest* needs) {
    const std::int64_t n_rows = std::ssize(logit_tokens);
    const TensorView logits = pass_.activations().rows(Activation::Logits, n_rows, model_->config().vocab);
    if (remote_ == nullptr) return {ConstTensorView(logits)};
    if (needs == nullptr) return {remote_->enqueue_rows(exec(), logits)};
    row_positions_.clear();
    for (const std::int32_t token : logit_tokens)
        row_positions_.push_back(std::int64_t{pass_.paths().positions()[token]} + 1);
    remote_->enqueue_top(exec(), logits, *needs, row_positions_,
                         pass_.activations().memory(Activation::Selected).data());
    return {*remote_, n_rows, model_->config().vocab};
}

}  // namespace slipstream
