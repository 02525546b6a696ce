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
#include "runtime/experts/distinct_experts.h"
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

/// Whether passes may be launched as graphs, if the device has graphs. Results are the same, bit for bit.
enum class GraphUse : std::uint8_t { Allowed, Never };

struct ForwardLimits {
    std::int64_t max_tokens = 512;  // most tokens of one pass
    std::int64_t max_logit_rows = 1;
    std::int64_t max_drafts = 0;  // most draft nodes of the caches, whose inputs recurrent layers store; 0: max_tokens
    GraphUse graphs = GraphUse::Allowed;
    bool pages = false;  // whether the KV of passes may have view pages
};

class Forward {
public:
    /// Allocates the activations on the model's device once, for passes within `limits`. If weights or KV of a pass
    /// stream, `pass` copies them; it must outlive this object, and may serve several Forwards in turn. If `model` is a
    /// shard of a split model, `collective` sums the products of each half of a layer over the shards; it must outlive
    /// this object. With `pass` or `collective`, passes are not launched as graphs. Throws OutOfBudget.
    Forward(const Model& model, const ForwardLimits& limits, PassStream* pass = nullptr,
            Collective* collective = nullptr);

    /// Whether the constructor is given `pass` (Yes). device_bytes() returns the bytes that it takes from the device's
    /// budget, without the workspace of kernels.
    enum class Streaming : std::uint8_t { No, Yes };
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, const ForwardLimits& limits,
                                                  Streaming streaming);
    /// Returns the shapes of the largest kernel calls that passes within `limits` make over a model of `config`. If a
    /// model is split over devices, each device has a `config` of its own.
    [[nodiscard]] static WorkspaceShapes workspace_shapes(const ModelConfig& config, DType kv_dtype,
                                                          const ForwardLimits& limits);

    [[nodiscard]] const ForwardLimits& limits() const { return limits_; }
    [[nodiscard]] const Model& model() const { return *model_; }
    [[nodiscard]] std::int64_t n_layers() const { return model_->config().n_layers(); }

    /// Runs tokens[i] at scratch node nodes[i] of `kv`; a node's parent must come before it, in this or an earlier
    /// pass. Each token must be in [0, vocab). Afterwards the KV rows of the nodes are in scratch. Returns the logits
    /// [logit_tokens.size(), vocab] of the tokens with the indices `logit_tokens`, in host memory, valid until the next
    /// call. Batch invariance (E1): a token's logits depend on its path alone, bit for bit. If *control.cancel turns
    /// true between two layers, the pass is cancelled and an empty view is returned; its rows are then undefined, and
    /// the caller must drop the nodes. A pass that is launched as a graph (see graphs()) reads *control.cancel once,
    /// before the launch. `hooks` may be null.
    ConstTensorView run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                        std::span<const std::int32_t> logit_tokens, const PassControl& control = {},
                        Phase phase = Phase::Decode, PassHooks* hooks = nullptr);
    /// Runs a pass as the other run() does, in Phase::Decode, for callers that read few of the logits: if the host does
    /// not share the device's memory, the rows of logits stay on the device, and only what `needs` requests of each row
    /// is copied to the host. The result is empty if the pass was cancelled, and is valid until the next call.
    LogitRows run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs, const PassControl& control,
                  PassHooks* hooks = nullptr);
    /// Enqueues a pass that computes what run() computes. On a GPU, returns before the pass is done: the logits are
    /// valid from when the caller has synchronized the stream of exec() until the next call, and until then `nodes`
    /// must not change. If `needs` is null, whole rows are copied to the host.
    LogitRows enqueue(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                      std::span<const std::int32_t> logit_tokens, const LogitRequest* needs, const PassControl& control,
                      Phase phase, PassHooks* hooks = nullptr);

    /// Returns whether run_by_layer() can run a prompt from position `begin` to `end`, in prefill chunks that end at
    /// multiples of `chunk_tokens`: if something streams, and the ring and the host have room for what such a prompt
    /// needs. The bits are those of running prefill chunk by prefill chunk.
    [[nodiscard]] bool runs_by_layer(KvCache& cache, std::int64_t begin, std::int64_t end,
                                     std::int64_t chunk_tokens) const;
    /// Returns whether the ring has room for a prompt up to position `end` that runs layer by layer, in prefill chunks
    /// that end at multiples of `chunk_tokens`, or nothing streams. For callers that keep the hidden states themselves.
    [[nodiscard]] bool ring_holds_prompt(KvCache& cache, std::int64_t end, std::int64_t chunk_tokens) const;
    /// Returns whether weights or the KV of `cache` are read from the host.
    [[nodiscard]] bool streams(KvCache& cache) const { return PassReads{model_, &cache}.streams(); }
    /// Returns the bytes of host memory for the hidden states of one prefill chunk of a prompt, or of the pass after
    /// it.
    [[nodiscard]] std::size_t prompt_row_bytes() const { return pass_.activations().memory(Activation::Hidden).size(); }
    /// Returns the bytes of host memory for the hidden states of all prefill chunks of a prompt, and of the pass after
    /// it.
    [[nodiscard]] std::size_t prompt_host_bytes(const PromptRange& range) const;
    /// Computes a prompt (Phase::Prefill) layer by layer, and then a pass over `tokens`, as run() with a LogitRequest
    /// does; returns the logits of that pass. `prompt` is at the positions from `begin` on, in prefill chunks that end
    /// at multiples of `chunk_tokens`, and is committed on the way. The positions before begin + prompt.size() must be
    /// reserved (KvCache::reserve()). If the pass is cancelled, which returns an empty view, or throws, the caller must
    /// roll the cache back.
    LogitRows run_by_layer(KvCache& cache, std::int64_t begin, std::int64_t chunk_tokens,
                           std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                           std::span<const NodeId> nodes, std::span<const std::int32_t> logit_tokens,
                           const LogitRequest& needs, const PassControl& control = {}, PassHooks* hooks = nullptr,
                           const PromptCheckpoints* checkpoints = nullptr);

    /// Returns [n_layers()]: what passes needed of experts since construction; empty if no layer has experts.
    [[nodiscard]] std::span<const ExpertFigures> expert_figures() const { return pass_.expert_figures(); }
    /// Notes in `choices`, in the layers of model(), what the tokens of passes choose from now on; null: no longer. It
    /// must outlive its use, and have room for the nodes of the caches of the passes.
    void note_choices_in(ExpertChoices* choices) { pass_.note_choices_in(choices); }
    /// Counts what the tokens at `path` chose, as `choices` has noted it: they are committed now, from position `first`
    /// on. Slots go to experts of high counts.
    void count_choices(const ExpertChoices& choices, std::int64_t first, std::span<const NodeId> path);
    /// Returns [n_layers()]: the distinct experts of neighbours among the tokens that were counted; empty if no layer
    /// has experts.
    [[nodiscard]] std::span<const NeighbourExperts> neighbours() const { return neighbours_; }
    /// Returns the traffic of logits on the link since construction; all zero if the host shares the device's memory.
    [[nodiscard]] LogitFigures logit_figures() const;

    /// Returns the graphs of passes. A pass is launched as a graph if it has up to 64 tokens, no progress callback, and
    /// logits of its last tokens or none, and nothing streams. Returns null if there are no graphs: with
    /// GraphUse::Never, if something streams, a layer has experts or is recurrent, with a collective, or on a device
    /// without graphs.
    [[nodiscard]] const PassGraphs* graphs() const { return graphs_.get(); }

    /// Times the stages of passes from now on; null: no longer. It must outlive its use. Passes launch no graphs if the
    /// profile synchronizes after each stage; else a graph is one stage.
    void profile_with(PassProfile* profile) { pass_.profile_with(profile); }

    [[nodiscard]] ExecRef exec() { return {model_->device(), *stream_}; }
    /// Returns the residual stream of the last pass after the model's last layer, before the output norm: [n, d_model],
    /// F32, in device memory, for the first `n` of its tokens (a prompt that ran layer by layer not counted). Valid
    /// until the next pass; undefined if the last pass was cancelled or threw.
    [[nodiscard]] ConstTensorView last_hidden(std::int64_t n) const { return pass_.activations().hidden(n); }

    /// A pass in steps, with the arguments of enqueue(), for callers that have other work between two layers. The
    /// residual stream must be filled first, by embed() or through hidden(); then follow the layers in order, logits()
    /// and complete(). A Forward runs one pass at a time. If complete() is not called, the destructor drops what the
    /// pass streams.
    class Steps {
    public:
        Steps(Forward& forward, PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
              std::span<const std::int32_t> logit_tokens, Phase phase, PassHooks* hooks = nullptr)
            : Steps(forward, forward.prepare(kv, tokens, nodes, logit_tokens, phase, hooks), logit_tokens) {}

        void embed() { forward_->pass_.embed(rows_); }
        /// Returns the residual stream, [n_tokens, d_model], F32, in device memory.
        [[nodiscard]] TensorView hidden() const { return forward_->pass_.activations().hidden(rows_.n()); }
        void run_layer(std::int64_t layer) { forward_->pass_.run_layer(layer, rows_, LayerPart::Whole); }
        /// Computes the logits and returns them as enqueue() does.
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

    /// A prompt and the pass after it in steps, with the arguments of run_by_layer(), for callers that carry the hidden
    /// states of prefill chunks from layer to layer. Layers run in order: begin_layer(), the prefill chunks that have
    /// not passed the layer yet, the pass, end_layer(). Then logits(), end() and complete() follow. Without complete()
    /// the destructor drops what the prompt streams, and the caller must roll the cache back.
    class PromptSteps {
    public:
        PromptSteps(Forward& forward, KvCache& cache, const PromptRange& range, std::span<const TokenId> prompt,
                    std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                    std::span<const std::int32_t> logit_tokens, PassHooks* hooks = nullptr);

        /// Begins a layer. Call for each layer in order, from range.first_layer on; `first_chunk` is the first prefill
        /// chunk that has not passed the layer.
        void begin_layer(std::int64_t layer, std::int64_t first_chunk = 0);
        /// Fills the residual stream with the embedding of a prefill chunk, for the model's first layer.
        void embed(std::int64_t prefill_chunk) { forward_->pass_.embed(rows_of(prefill_chunk)); }
        /// Returns the residual stream of a prefill chunk, [n_tokens, d_model], F32, in device memory.
        [[nodiscard]] TensorView hidden(std::int64_t prefill_chunk) const {
            return forward_->pass_.activations().hidden(rows_of(prefill_chunk).n());
        }
        /// Returns the residual stream of the pass after the prompt, [n_tokens, d_model], F32, in device memory.
        [[nodiscard]] TensorView hidden() const { return forward_->pass_.activations().hidden(rows_after_.n()); }
        void run_prefill_chunk(std::int64_t layer, std::int64_t prefill_chunk);
        void end_layer();
        /// Computes the logits of the pass, whose residual stream must hold the result of the last layer, and returns
        /// them as enqueue() does.
        [[nodiscard]] LogitRows logits(const LogitRequest* needs);
        /// Makes the compute stream wait for the last flush of KV. Throws if a copy has failed; complete() cannot fail.
        void end();
        void complete();

        // Checkpoints (prompt_checkpoint.h), between two steps and with the compute stream synchronized.

        /// Copies to `out`, in host memory, a KV chunk of the prompt or before the prompt. The layer must have computed
        /// the KV chunk. It is copied when the call returns.
        void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) const;
        /// Copies the KV rows of the first `n` tokens of the pass, in a layer that the pass has gone through, to `out`
        /// [rows_bytes(layer, n)] in host memory, before it returns: K, then V.
        void read_rows_after(std::int64_t layer, std::int64_t n, std::byte* out) const;
        /// Returns the first KV chunk of a layer that must be restored if an earlier run computed the layer up to
        /// position `end`: 0, unless the layer keeps a ring.
        [[nodiscard]] std::int64_t first_restored_chunk(std::int64_t layer, std::int64_t end) const {
            return cache_->first_restored_chunk(layer, end);
        }
        /// Call before the first step: restores a KV chunk of the prompt that an earlier run computed. `fill(out)` must
        /// write the KV chunk to `out`.
        void restore_chunk(std::int64_t layer, std::int64_t chunk, const std::function<void(std::byte*)>& fill);
        void restore_rows_after(std::int64_t layer, std::int64_t n, const std::byte* rows);
        /// Returns the position at which a prefill chunk begins.
        [[nodiscard]] std::int64_t begin_of(std::int64_t prefill_chunk) const { return range_.begin_of(prefill_chunk); }
        /// Returns the bytes of the KV rows of `n` tokens in a layer, K and V.
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
        std::optional<PromptStream> stream_;  // nullopt if nothing streams
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
    std::vector<NeighbourExperts> neighbours_;  // [n_layers()]; empty: no layer has experts
    std::int64_t next_counted_ = 0;             // position after the tokens that were counted last
    std::unique_ptr<DeviceLogits> remote_;      // null if the host shares the device's memory
    std::unique_ptr<PassGraphs> graphs_;
    std::vector<std::int64_t> row_positions_;  // [logit rows]: position of the token that follows each row
    std::vector<NodeId> prefill_rows_;         // scratch rows 0, 1, ... of a prefill chunk
    std::vector<NodeId> graph_nodes_;          // scratch rows; graphs read them here
};

}  // namespace slipstream
