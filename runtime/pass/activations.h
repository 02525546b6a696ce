// The memory of a pass between its ops: matrices of floats, a row a token, taken once for the largest pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"
#include "runtime/model/model_config.h"

namespace slipstream {

enum class Activation : std::uint8_t {
    Hidden,      // [n_tokens, d_model]: the residual stream
    NextHidden,  // the same of the next prefill chunk; where something streams
    Fold,        // the state of attention over KV that streams; likewise
    Normed,      // [n_tokens, d_model]; the part of a product that is to be summed up, where there are several
    Q,           // [n_tokens, n_q_heads * head_dim]
    K,           // [n_tokens, n_kv_heads * head_dim]
    V,           // the same
    Attended,    // [n_tokens, n_q_heads * head_dim]
    Gate,        // [n_tokens, d_ff]
    Up,          // [n_tokens, d_ff]
    CosSin,      // [n_tokens, n_rotated]: angles of rope
    Selected,    // [n_logit_rows, d_model]: rows whose logits are wanted; their top logits afterwards
    Logits,      // [n_logit_rows, vocab]
};
inline constexpr std::size_t kActivations = 13;

/// The largest pass.
struct ActivationLimits {
    std::int64_t n_tokens = 0;
    std::int64_t n_logit_rows = 0;
    bool streams = false;  // weights or KV
};

class Activations {
public:
    /// Throws OutOfBudget.
    Activations(Device& device, const ModelConfig& config, const ActivationLimits& limits);
    /// What the constructor takes from the device's budget.
    [[nodiscard]] static std::size_t bytes(const ModelConfig& config, const ActivationLimits& limits);

    /// The first `n_rows` rows.
    [[nodiscard]] TensorView rows(Activation which, std::int64_t n_rows) const;
    /// The same as [n_rows * heads, head_dim].
    [[nodiscard]] TensorView heads(Activation which, std::int64_t n_rows, std::int64_t head_dim) const;
    [[nodiscard]] const Buffer& buffer(Activation which) const { return buffers_[static_cast<std::size_t>(which)]; }

    /// The residual stream that is computed with: Hidden or NextHidden.
    [[nodiscard]] TensorView hidden(std::int64_t n_rows) const;
    void use_hidden(std::byte* data) { hidden_ = data; }

private:
    std::array<Buffer, kActivations> buffers_;
    std::array<std::int64_t, kActivations> cols_{};
    std::byte* hidden_ = nullptr;
};

}  // namespace slipstream
