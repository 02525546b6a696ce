// The forward pass: tokens that hang on a KV cache go in, logits come out. Every architecture served is the same
// pre-norm decoder with grouped-query attention and a gated feed-forward; what differs stands in ModelConfig and in
// which weights exist.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/indexed.h"
#include "kernels/device.h"
#include "kernels/matmul.h"
#include "kernels/workspace.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/pass/device_logits.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/pass/pass_graphs.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_stream.h"

namespace slipstream {

/// What a caller hears of a running pass, between two layers.
struct PassWatch {
    const std::atomic<bool>* cancel = nullptr;  // turns true: the pass is given up
    std::function<void(double)> on_progress{};  // part of the pass done, after each layer (and piece)
    /// What each layer makes for the cache, [n_tokens, n_kv_heads * head_dim] both, F32: keys before rope, and values.
    /// The views hold for work that is enqueued on the stream of exec() during the call.
    std::function<void(std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v)> on_kv_rows{};
    /// Where on_kv_rows enqueues the same work for every pass of as many tokens, but for what arrays hold that a graph
    /// reads anew (kernels/graph.h): something that stands for it. Null: it does not, and its passes take no graph.
    const void* kv_rows_key = nullptr;
};

/// Whether passes may be launched as graphs, where the device has them. The bits are the same.
enum class GraphUse : std::uint8_t { Allowed, Never };

/// Which kernels compute the matrices of a pass, where a device has others for prompts (kernels/matmul.h). A row's bits
/// follow from its position and from this alone.
enum class Phase : std::uint8_t {
    Decode,   // any nodes
    Prefill,  // the next positions of the text, within one piece of kPromptPieceTokens; their logits are not wanted
};

struct ForwardLimits {
    std::int64_t max_tokens = 512;  // of one pass
    std::int64_t max_logit_rows = 1;
    GraphUse graphs = GraphUse::Allowed;
};

class Forward {
public:
    /// Takes the memory of activations once, on the model's device, for passes within `limits`. Where weights or KV
    /// stream, `pass` brings them, and every cache that is run is the one of `pass`; it outlives this, and may serve
    /// several forwards in turn.
    Forward(const Model& model, const ForwardLimits& limits, PassStream* pass = nullptr);

    /// What the constructor takes from the device's budget, kernels' workspace not counted; `streams` as Streaming.
    enum class Streaming : std::uint8_t { No, Yes };
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, const ForwardLimits& limits,
                                                  Streaming streaming);
    /// The largest calls that passes within `limits` make.
    [[nodiscard]] static WorkspaceShapes workspace_shapes(const ModelConfig& config, const KvShape& kv,
                                                          const ForwardLimits& limits);

    [[nodiscard]] const ForwardLimits& limits() const { return limits_; }
    [[nodiscard]] std::int64_t n_layers() const { return model_->config().n_layers; }

    /// Runs tokens[i] at scratch node nodes[i] of `cache` (made by add_node, parents before children in this or an
    /// earlier pass). Their KV rows are in scratch afterwards. Returns the logits [logit_tokens.size(), vocab] of the
    /// tokens with the indices `logit_tokens`, in host memory, valid until the next call. Each token in [0, vocab). E1:
    /// a token's logits depend on its path alone, bit for bit. Where *watch.cancel turns true between two layers the
    /// pass is given up and an empty view returned; its rows are then undefined, and the caller drops the nodes.
    /// Passes that take a graph (see graphs()) look at it once, before they begin.
    ConstTensorView run(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                        std::span<const std::int32_t> logit_tokens, const PassWatch& watch = {},
                        Phase kind = Phase::Decode);
    /// The same of decoded rows, where few of the logits may be looked at: rows stay on a device whose memory the host
    /// does not share, and what `needs` says of each comes over.
    LogitRows run(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs, const PassWatch& watch);

    /// Whether a prompt from position `begin` to `end`, in pieces that end at multiples of `piece_tokens`, goes through
    /// layer by layer: something streams, and ring and host hold what that takes. The bits are those of piece by piece.
    [[nodiscard]] bool runs_by_layer(std::int64_t begin, std::int64_t end, std::int64_t piece_tokens) const;
    /// As the second run(), with a prompt (Phase::Prefill) before it that is committed on the way: `prompt` at the
    /// positions from `begin`, where the cache ended before begin + prompt.size() were reserved, in pieces that end
    /// at multiples of `piece_tokens`. Where it is given up, the caller rolls them back.
    LogitRows run_by_layer(KvCache& cache, std::int64_t begin, std::int64_t piece_tokens,
                           std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                           std::span<const NodeId> nodes, std::span<const std::int32_t> logit_tokens,
                           const LogitRequest& needs, const PassWatch& watch = {});

    /// What crossed the link as logits; nothing where the host shares the device's memory.
    [[nodiscard]] LogitFigures logit_figures() const;

    /// Passes that were launched as graphs: those of up to 64 tokens without progress to tell, with logits of the last
    /// tokens or none, where nothing streams. Null where there are none: GraphUse::Never, something streams, or a
    /// device without graphs.
    [[nodiscard]] const PassGraphs* graphs() const { return graphs_.get(); }

    [[nodiscard]] ExecRef exec() { return {model_->device(), *stream_}; }

private:
    // Tokens that go through a layer together.
    struct Rows {
        std::span<const TokenId> tokens{};
        std::span<const NodeId> nodes{};  // scratch rows
        std::int64_t n_committed = 0;     // positions below them in the cache
        Phase kind = Phase::Decode;
        [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(nodes.size()); }
    };

    [[nodiscard]] bool run_graph(KvCache& cache, const Rows& rows, std::span<const std::int32_t> logit_tokens,
                                 const PassWatch& watch);
    void trace_paths(const KvCache& cache, std::span<const NodeId> nodes);
    void trace_chain(std::int64_t begin, std::int64_t n);
    void embed_rows(const Rows& rows);
    void rope_angles(std::int64_t n);
    void keys_and_values(KvCache& cache, std::int64_t layer, const Rows& rows, const PassWatch& watch);
    void attention_block(KvCache& cache, std::int64_t layer, const Rows& rows, const PassWatch& watch);
    void attend(KvCache& cache, std::int64_t layer, AttentionArgs args);
    void feed_forward_block(std::int64_t layer, const Rows& rows);
    void multiply(std::int64_t layer, MatrixRole role, const Rows& rows, MatmulArgs args);
    // `needs` null: whole rows.
    [[nodiscard]] LogitRows run_layers(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                       std::span<const std::int32_t> logit_tokens, const LogitRequest* needs,
                                       const PassWatch& watch, Phase kind);
    void compute_logits(std::int64_t n_tokens, std::span<const std::int32_t> logit_tokens);
    [[nodiscard]] LogitRows hand_over(std::span<const std::int32_t> logit_tokens, const LogitRequest* needs);
    void check_pass(const KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                    std::span<const std::int32_t> logit_tokens) const;
    [[nodiscard]] TensorView hidden(std::int64_t n_rows) const;
    [[nodiscard]] TensorView activation(const Buffer& buffer, std::int64_t n_rows, std::int64_t cols) const;

    const Model* model_;
    ForwardLimits limits_;
    PassStream* pass_;                 // null: nothing streams
    WeightStream* weights_ = nullptr;  // of the running pass; null: nothing streams
    KvStream* kv_ = nullptr;           // the same of KV, where it comes in pieces
    std::unique_ptr<Stream> stream_;
    Buffer hidden_[2];                      // [max_tokens, d_model]: the residual stream; two where something streams
    std::byte* hidden_now_ = nullptr;       // the one that is computed with
    Buffer fold_state_;                     // of attention over KV that streams
    Buffer normed_;                         // [max_tokens, d_model]
    Buffer q_;                              // [max_tokens, n_q_heads * head_dim]
    Buffer k_, v_;                          // [max_tokens, n_kv_heads * head_dim]
    Buffer attended_;                       // [max_tokens, n_q_heads * head_dim]
    Buffer gate_, up_;                      // [max_tokens, d_ff]
    Buffer cos_sin_;                        // [max_tokens, n_rotated]
    Buffer selected_;                       // [max_logit_rows, d_model]; heads of rows when it is done with
    Buffer logits_;                         // [max_logit_rows, vocab]
    std::unique_ptr<DeviceLogits> remote_;  // null where the host reaches the device's
    std::vector<std::int64_t> row_positions_;  // [logit rows] of the running pass: of the tokens that follow
    std::vector<NodeId> piece_rows_;           // scratch rows 0, 1, ... of a piece of prompt
    Indexed<std::int32_t> positions_;          // [n_tokens] of the running pass
    std::vector<std::int32_t> path_begin_;     // [n_tokens]
    std::vector<std::int32_t> path_rows_;      // scratch rows of every token's path, from the committed tip down
    std::vector<NodeId> graph_nodes_;          // scratch rows of a pass, where graphs read them
    std::unique_ptr<PassGraphs> graphs_;
};

}  // namespace slipstream
