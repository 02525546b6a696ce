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

#include "kernels/device.h"
#include "runtime/kv_cache.h"
#include "runtime/model.h"

namespace slipstream {

/// What a caller hears of a running pass, between two layers.
struct PassWatch {
    const std::atomic<bool>* cancel = nullptr;           // turns true: the pass is given up
    std::function<void(std::int64_t)> on_layers_done{};  // layers done, before each but the first
    /// What each layer makes for the cache, [n_tokens, n_kv_heads * head_dim] both, F32: keys before rope, and values.
    /// The views hold for work that is enqueued on the stream of exec() during the call.
    std::function<void(std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v)> on_kv_rows{};
};

struct ForwardLimits {
    std::int64_t max_tokens = 512;  // of one pass
    std::int64_t max_logit_rows = 1;
};

class Forward {
public:
    /// Takes the memory of activations once, on the model's device, for passes within `limits`.
    Forward(const Model& model, const ForwardLimits& limits);

    [[nodiscard]] const ForwardLimits& limits() const { return limits_; }
    [[nodiscard]] std::int64_t n_layers() const { return model_->config().n_layers; }

    /// Runs tokens[i] at scratch node nodes[i] of `cache` (made by add_node, parents before children in this or an
    /// earlier pass). Their KV rows are in scratch afterwards. Returns the logits [logit_tokens.size(), vocab] of the
    /// tokens with the indices `logit_tokens`, valid until the next call. Each token in [0, vocab). E1: a token's
    /// logits depend on its path alone, bit for bit. Where *watch.cancel turns true between two layers the pass is
    /// given up and an empty view returned; its rows are then undefined, and the caller drops the nodes.
    ConstTensorView run(KvCache& cache, std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                        std::span<const std::int32_t> logit_tokens, const PassWatch& watch = {});

    [[nodiscard]] ExecRef exec() { return {model_->device(), *stream_}; }

private:
    void trace_paths(const KvCache& cache, std::span<const NodeId> nodes);
    void attention_block(KvCache& cache, std::int64_t layer, std::span<const NodeId> nodes, const PassWatch& watch);
    void feed_forward_block(std::int64_t layer, std::int64_t n_tokens);
    [[nodiscard]] TensorView activation(const Buffer& buffer, std::int64_t n_rows, std::int64_t cols) const;

    const Model* model_;
    ForwardLimits limits_;
    std::unique_ptr<Stream> stream_;
    Buffer hidden_;                         // [max_tokens, d_model]: the residual stream
    Buffer normed_;                         // [max_tokens, d_model]
    Buffer q_;                              // [max_tokens, n_q_heads * head_dim]
    Buffer k_, v_;                          // [max_tokens, n_kv_heads * head_dim]
    Buffer attended_;                       // [max_tokens, n_q_heads * head_dim]
    Buffer gate_, up_;                      // [max_tokens, d_ff]
    Buffer cos_sin_;                        // [max_tokens, n_rotated]
    Buffer selected_;                       // [max_logit_rows, d_model]
    Buffer logits_;                         // [max_logit_rows, vocab]
    std::vector<std::int32_t> positions_;   // [n_tokens] of the running pass
    std::vector<std::int32_t> path_begin_;  // [n_tokens]
    std::vector<std::int32_t> path_rows_;   // scratch rows of every token's path, from the committed tip down
};

}  // namespace slipstream
