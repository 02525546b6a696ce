// Runs passes over a model: tokens that are nodes below a KV go in, logits come out. It drives the computation
// (model_pass.h) in the ways that callers need: a whole pass, a pass in steps, a prompt layer by layer, a graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/collective.h"
#include "kernels/device.h"
#include "kernels/workspace.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/cache/pass_kv.h"
#include "runtime/model/model.h"
#include "runtime/pass/device_logits.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/pass/model_pass.h"
#include "runtime/pass/pass_control.h"
#include "runtime/pass/pass_graphs.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/pass/pass_profile.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_checkpoint.h"
#include "runtime/pass/prompt_stream.h"

namespace slipstream {

/// Whether passes may be launched as graphs, where the device has them. The bits are the same.
enum class GraphUse : std::uint8_t { Allowed, Never };

struct ForwardLimits {
    std::int64_t max_tokens = 512;  // of one pass
    std::int64_t max_logit_rows = 1;
    GraphUse graphs = GraphUse::Allowed;
};

class Forward {
public:
    /// Takes the memory of activations once, on the model's device, for passes within `limits`. Where weights or KV of
    /// a pass stream, `pass` brings them; it outlives this, and may serve several forwards in turn. Where the model is
    /// a share of one whose matrices are split, `collective` sums up what each half of a layer makes; it outlives this.
    /// Such passes take no graph.
    Forward(const Model& model, const ForwardLimits& limits, PassStream* pass = nullptr,
            Collective* collective = nullptr);

    /// What the constructor takes from the device's budget, kernels' workspace not counted; `streaming` as `pass`.
    enum class Streaming : std::uint8_t { No, Yes };
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, const ForwardLimits& limits,
                                                  Streaming streaming);
    /// The largest calls that passes within `limits` make, over the model of `config`: of several devices each its own.
    [[nodiscard]] static WorkspaceShapes workspace_shapes(const ModelConfig& config, DType kv_dtype,
                                                          const ForwardLimits& limits);

    [[nodiscard]] const ForwardLimits& limits() const { return limits_; }
    [[nodiscard]] const Model& model() const { return *model_; }
    [[nodiscard]] std::int64_t n_layers() const { return model_->config().n_layers(); }

    /// Runs tokens[i] at scratch node nodes[i] of `kv`; a node's parent must come before it, in this or an earlier
    /// pass. Each token must be in [0, vocab). Afterwards the KV rows of the nodes are in scratch. Returns the logits
    /// [logit_tokens.size(), vocab] of the tokens with the indices `logit_tokens`, in host memory, valid until the next
    /// call. E1: a token's logits depend on its path alone, bit for bit. If *control.cancel turns true between two
    /// layers, the pass is given up and an empty view is returned; its rows are then undefined, and the caller must
    /// drop the nodes. A pass that is launched as a graph (see graphs()) reads *control.cancel once, before the launch.
    /// `hooks` may be null.
    ConstTensorView run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                        std::span<const std::int32_t> logit_tokens, const PassControl& control = {},
                        Phase phase = Phase::Decode, PassHooks* hooks = nullptr);
    /// Like run() above in Phase::Decode, for callers that read few of the logits: if the host does not share the
    /// device's memory, the rows stay on the device, and only what `needs` requests of each row is copied to the host.
    LogitRows run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs, const PassControl& control,
                  PassHooks* hooks = nullptr);
    /// Like run(), but on a GPU it returns when the pass is enqueued: results are there once the stream of exec() is
    /// synchronized, and until then `nodes` must not change. If `needs` is null, whole rows are copied to the host.
    LogitRows enqueue(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                      std::span<const std::int32_t> logit_tokens, const LogitRequest* needs, const PassControl& control,
                      Phase phase, PassHooks* hooks = nullptr);

    /// Returns whether run_by_layer() can run a prompt from position `begin` to `end`, in prefill chunks that end at
    /// multiples of `chunk_tokens`: something streams, and the ring and the host have room for what that needs. The
    /// bits are those of running prefill chunk by prefill chunk.
    [[nodiscard]] bool runs_by_layer(KvCache& cache, std::int64_t begin, std::int64_t end,
                                     std::int64_t chunk_tokens) const;
    /// Returns whether the ring has room for such a prompt, or nothing streams. For callers that keep the hidden states
    /// themselves.
    [[nodiscard]] bool ring_holds_prompt(KvCache& cache, std::int64_t end, std::int64_t chunk_tokens) const;
    /// Returns whether weights or the KV of `cache` are read from the host.
    [[nodiscard]] bool streams(KvCache& cache) const { return PassReads{model_, &cache}.streams(); }
    /// Host memory for the hidden states of one prefill chunk of a prompt, or of the pass after it.
    [[nodiscard]] std::size_t prompt_row_bytes() const {
        return pass_.activations().buffer(Activation::Hidden).size_bytes();
    }
    /// Host memory for the hidden states of such a prompt.
    [[nodiscard]] std::size_t prompt_host_bytes(const PromptRange& range) const;
    /// As the second run(), with a prompt (Phase::Prefill) before it that is committed on the way: `prompt` at the
    /// positions from `begin`, where the cache ended before begin + prompt.size() were reserved, in prefill chunks that
    /// end at multiples of `chunk_tokens`. Where it is given up, the caller rolls them back.
    LogitRows run_by_layer(KvCache& cache, std::int64_t begin, std::int64_t chunk_tokens,
                           std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                           std::span<const NodeId> nodes, std::span<const std::int32_t> logit_tokens,
                           const LogitRequest& needs, const PassControl& control = {}, PassHooks* hooks = nullptr,
                           const PromptCheckpoints* checkpoints = nullptr);

    /// What crossed the link as logits; nothing where the host shares the device's memory.
    [[nodiscard]] LogitFigures logit_figures() const;

    /// Passes that were launched as graphs: those of up to 64 tokens without progress to tell, with logits of the last
    /// tokens or none, where nothing streams. Null where there are none: GraphUse::Never, something streams, a
    /// collective, or a device without graphs.
    [[nodiscard]] const PassGraphs* graphs() const { return graphs_.get(); }

    /// Times the stages of passes from now on; null: no longer. It must outlive its use. Passes launch no graphs if the
    /// profile synchronizes after each stage; else a graph is one stage.
    void profile_with(PassProfile* profile) { pass_.profile_with(profile); }

    [[nodiscard]] ExecRef exec() { return {model_->device(), *stream_}; }

    /// A pass in steps, as enqueue() takes it: for whoever has other work between two layers. The residual stream is
    /// filled first, by embed() or through hidden(); layers follow in order, then logits, then complete(). One pass of
    /// a forward at a time. Where it does not come to complete(), what it streams is given up.
    class Steps {
    public:
        Steps(Forward& forward, PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
              std::span<const std::int32_t> logit_tokens, Phase phase, PassHooks* hooks = nullptr)
            : Steps(forward, forward.prepare(kv, tokens, nodes, logit_tokens, phase, hooks), logit_tokens) {}

        void embed() { forward_->pass_.embed(rows_); }
        /// [n_tokens, d_model], F32: the residual stream, memory of the device.
        [[nodiscard]] TensorView hidden() const { return forward_->pass_.activations().hidden(rows_.n()); }
        void run_layer(std::int64_t layer) { forward_->pass_.run_layer(layer, rows_, LayerPart::Whole); }
        /// As enqueue() returns them.
        [[nodiscard]] LogitRows logits(const LogitRequest* needs);
        void complete() { running_.complete(); }

    private:
        friend class Forward;
        Steps(Forward& forward, const PassRows& rows, std::span<const std::int32_t> logit_tokens);

        Forward* forward_;
        PassRows rows_;
        std::span<const std::int32_t> logit_tokens_;
        RunningPass running_;
    };

    /// A prompt and the pass behind it in steps, as run_by_layer() takes them: for whoever carries the rows of prefill
    /// chunks from layer to layer. Layers in order, each from begin_layer() to end_layer(), all prefill chunks in
    /// between, the pass as the last of them; then logits(), end(), complete(). Where it does not come to complete(),
    /// what it streams is given up, and the caller rolls the cache back.
    class PromptSteps {
    public:
        PromptSteps(Forward& forward, KvCache& cache, const PromptRange& range, std::span<const TokenId> prompt,
                    std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                    std::span<const std::int32_t> logit_tokens, PassHooks* hooks = nullptr);

        /// Layers from range.first_layer on; `first_chunk` is the first prefill chunk that has not passed the layer.
        void begin_layer(std::int64_t layer, std::int64_t first_chunk = 0);
        /// Fills the residual stream, for the model's first layer.
        void embed(std::int64_t prefill_chunk) { forward_->pass_.embed(rows_of(prefill_chunk)); }
        /// [n_tokens, d_model], F32: the residual stream, memory of the device, for the rows of a prefill chunk.
        [[nodiscard]] TensorView hidden(std::int64_t prefill_chunk) const {
            return forward_->pass_.activations().hidden(rows_of(prefill_chunk).n());
        }
        /// The same for the pass.
        [[nodiscard]] TensorView hidden() const { return forward_->pass_.activations().hidden(rows_after_.n()); }
        void run_prefill_chunk(std::int64_t layer, std::int64_t prefill_chunk);
        void end_layer();
        /// The residual stream holds what the last layer made of the pass. As enqueue() returns them.
        [[nodiscard]] LogitRows logits(const LogitRequest* needs);
        /// All that may fail of the end.
        void end();
        void complete();

        // Checkpoints (prompt_checkpoint.h), between two steps and with the compute stream synchronized.

        /// Copies a KV chunk of this prompt, or before it, that is computed in the layer.
        void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) const;
        /// Copies the KV rows of the first `n` tokens of the pass in a layer that it has passed.
        void read_rows_after(std::int64_t layer, std::int64_t n, std::byte* out) const;
        /// Before the first step: `fill(out)` gives a KV chunk of the prompt that an earlier run computed.
        void restore_chunk(std::int64_t layer, std::int64_t chunk, const std::function<void(std::byte*)>& fill);
        void restore_rows_after(std::int64_t layer, std::int64_t n, const std::byte* rows);
        /// Position at which a prefill chunk begins.
        [[nodiscard]] std::int64_t begin_of(std::int64_t prefill_chunk) const { return range_.begin_of(prefill_chunk); }
        /// Bytes of the KV rows of `n` tokens in a layer, keys and values.
        [[nodiscard]] std::size_t rows_bytes(std::int64_t layer, std::int64_t n) const {
            return 2 * static_cast<std::size_t>(n) * cache_->layout(layer).scratch_row_bytes();
        }

    private:
        friend class Forward;
        [[nodiscard]] PassRows rows_of(std::int64_t prefill_chunk) const;

        Forward* forward_;
        KvCache* cache_;
        PromptRange range_;
        std::span<const TokenId> prompt_;
        PassRows rows_after_;
        std::span<const std::int32_t> logit_tokens_;
        std::optional<PromptStream> stream_;  // none where nothing streams
    };

private:
    [[nodiscard]] PassRows prepare(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                   std::span<const std::int32_t> logit_tokens, Phase phase, PassHooks* hooks);
    [[nodiscard]] PassStream* stream_for(const PassReads& reads) const { return reads.streams() ? streams_ : nullptr; }
    void check_pass(const PassReads& reads, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                    std::span<const std::int32_t> logit_tokens) const;
    [[nodiscard]] bool run_graph(const PassRows& rows, std::span<const std::int32_t> logit_tokens,
                                 const PassControl& control);
    [[nodiscard]] PromptRange prompt_range(std::int64_t begin, std::int64_t end, std::int64_t chunk_tokens) const {
        return {.begin = begin, .end = end, .chunk_tokens = chunk_tokens, .last_layer = n_layers() - 1};
    }
    [[nodiscard]] bool feed_layers(PromptSteps& steps, PromptState state, const PassControl& control,
                                   const PromptCheckpoints* checkpoints);
    [[nodiscard]] LogitRows hand_over(std::span<const std::int32_t> logit_tokens, const LogitRequest* needs);

    const Model* model_;
    ForwardLimits limits_;
    PassStream* streams_;  // null: nothing streams
    std::unique_ptr<Stream> stream_;
    ModelPass pass_;
    std::unique_ptr<DeviceLogits> remote_;  // null where the host reaches the device's
    std::unique_ptr<PassGraphs> graphs_;
    std::vector<std::int64_t> row_positions_;  // [logit rows]: position of the token after each
    std::vector<NodeId> prefill_rows_;         // scratch rows 0, 1, ... of a prefill chunk
    std::vector<NodeId> graph_nodes_;          // scratch rows; graphs read them here
};

}  // namespace slipstream
