// The memory of a pass between its ops: matrices of floats with a row per token, allocated once for the largest pass
// and the largest layer. A layer has two halves, attention (or a delta net) and feed-forward; what only one half uses
// shares memory with what only the other half uses, and both with the logits, which are computed after the last layer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"
#include "runtime/model/model_config.h"

namespace slipstream {

enum class Activation : std::uint8_t {
    // For the whole pass.
    Hidden,      // [n_tokens, d_model]: the residual stream
    NextHidden,  // [n_tokens, d_model]: residual stream of the next prefill chunk; only if something streams
    Normed,      // [n_tokens, d_model]; also a product before it is added to the residual stream
    CosSin,      // [ropes][n_tokens, n_rotated]: angles of each rotary embedding; queries that grow have their own
    // For the first half of a layer.
    Fold,       // state of attention over KV that comes in parts; only if something streams, or KV has view pages
    Q,          // [n_tokens, n_q_heads * head_dim]
    K,          // [n_tokens, n_kv_heads * head_dim]
    V,          // [n_tokens, n_kv_heads * head_dim]
    Attended,   // [n_tokens, n_q_heads * head_dim]; also the result of delta nets
    AttnGate,   // [n_tokens, n_q_heads * head_dim]; only if a layer has an output gate. Also the gate of delta nets
    Grouped,    // [n_tokens, ..]: a product whose columns belong to several operands in turn; only if there are any
    DeltaRows,  // [n_tokens, row_cols()]: inputs of delta nets; only if there are any
    DeltaConvolved,  // [DeltaSteps::most(), row_cols()]: working memory of delta nets
    // For the second half of a layer.
    Gate,        // [n_tokens, d_ff]
    Up,          // [n_tokens, d_ff]
    Router,      // [n_tokens, n_experts]: logits of the experts. This and the next four only if a layer has experts
    ExpertRows,  // [expert_rows(), d_model]: inputs of experts, then their results
    ExpertGate,  // [expert_rows(), d_ff of an expert]
    ExpertUp,    // [expert_rows(), d_ff of an expert]
    Experts,     // [n_tokens, d_model]: weighted sum of the experts' results
    Shared,      // [n_tokens, d_model]: the result of the shared expert beside them; only if a layer has one
    // From the end of the last layer to the first layer of the next pass.
    Selected,  // [n_logit_rows, d_model]: rows whose logits are computed; their top logits afterwards
    Logits,    // [n_logit_rows, vocab]
};
inline constexpr std::size_t kActivations = 23;
inline constexpr std::size_t kPassActivations = 4;  // for the whole pass

/// The largest pass for which activations are allocated.
struct ActivationLimits {
    std::int64_t n_tokens = 0;
    std::int64_t n_logit_rows = 0;
    std::int64_t max_drafts = 0;  // most draft nodes of the caches, if layers are recurrent
    bool streams = false;         // whether weights or KV stream
    bool pages = false;           // whether KV has view pages
};

/// Returns the most rows (token, expert) that are computed together in a pass of `n_tokens` tokens: those of any one
/// expert fit, and those of all experts in passes of few tokens. 0: no layer has experts.
[[nodiscard]] std::int64_t expert_rows(const ModelConfig& config, std::int64_t n_tokens);

class Activations {
public:
    /// Allocates all activations on `device`, for passes within `limits`. Throws OutOfBudget.
    Activations(Device& device, const ModelConfig& config, const ActivationLimits& limits);
    /// Returns the bytes that the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t bytes(const ModelConfig& config, const ActivationLimits& limits);

    /// Returns a matrix [n_rows, cols] in the memory of `which`; `cols` must be at most those of the largest layer.
    [[nodiscard]] TensorView rows(Activation which, std::int64_t n_rows, std::int64_t cols) const;
    /// Returns [n_rows, n_rotated], the table of the rotary embedding with index `rope` in the model's list, for the
    /// first n_rows tokens of the pass. A row has the cosines of the token's angles, then the sines (rope_table()).
    /// [n_rows, 0] for kNoRope.
    [[nodiscard]] TensorView angles(std::size_t rope, std::int64_t n_rows) const;
    /// Returns [n_rows, n_rotated], the table of the rotary embedding `rope` for queries of the first n_rows tokens. It
    /// is the table of angles(), unless the rotation of queries grows with the position: then they have their own.
    [[nodiscard]] TensorView query_angles(std::size_t rope, std::int64_t n_rows) const;
    /// Returns the memory of `which`; empty if the model or the limits need none.
    [[nodiscard]] std::span<std::byte> memory(Activation which) const {
        return memory_[static_cast<std::size_t>(which)];
    }

    /// Returns the residual stream in use, [n_rows, d_model], in the memory that use_hidden() set; at first that of
    /// Hidden.
    [[nodiscard]] TensorView hidden(std::int64_t n_rows) const;
    void use_hidden(std::byte* data) { hidden_ = data; }
    [[nodiscard]] std::int64_t max_tokens() const { return n_tokens_; }

private:
    std::array<Buffer, kPassActivations> buffers_;
    Buffer shared_;  // what lives for half a layer, and what lives after the layers
    std::array<std::span<std::byte>, kActivations> memory_;
    std::int64_t d_model_;
    std::int64_t n_tokens_;  // tokens of the largest pass
    struct RopeColumns {
        std::int64_t n_rotated = 0;
        std::int64_t begin = 0;        // columns of CosSin before the table
        std::int64_t query_begin = 0;  // columns of CosSin before the table of queries
    };
    [[nodiscard]] TensorView table(std::int64_t begin, std::int64_t n_rotated, std::int64_t n_rows) const;
    std::vector<RopeColumns> ropes_;  // [ropes]
    std::byte* hidden_ = nullptr;
};

/// Returns [n_rows, n_heads * head_dim] as [n_rows * n_heads, head_dim].
[[nodiscard]] inline TensorView as_heads(const TensorView& rows, std::int64_t head_dim) {
    return matrix_view(reinterpret_cast<float*>(rows.data), rows.rows() * rows.cols() / head_dim, head_dim);
}

}  // namespace slipstream
