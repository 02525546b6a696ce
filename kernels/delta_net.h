// The op of gated delta nets, the recurrent layers of Qwen3.5 and Qwen3-Next: a short causal convolution, then a linear
// recurrence with a state instead of a KV cache (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464,
// section 3; transformers: models/qwen3_next, torch_recurrent_gated_delta_rule()).
//
// Tokens pass the op one after the other, never in blocks: a token's result and the state after it depend on the tokens
// before it alone, bit for bit (batch invariance, E1). Only CPU devices have the op (has_delta_ops()).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/checked_math.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Columns of a value head that lie together in a state (DeltaNetShape::state_floats()).
inline constexpr std::int64_t kStateColumns = 16;

/// Sizes of a delta net. A token has `n_key_heads` queries and keys and `n_value_heads` values. Its row of inputs is
/// [queries | keys | values | decay inputs | beta inputs]; the first three are the convolved columns.
struct DeltaNetShape {
    std::int64_t n_key_heads = 0;  // 0: the layer is no delta net
    std::int64_t n_value_heads = 0;
    std::int64_t key_dim = 0;     // of a query or key head
    std::int64_t value_dim = 0;   // of a value head
    std::int64_t conv_width = 0;  // tokens that the convolution sees, the token itself included
    /// Which key head a value head uses. Tiled (GGUF files of qwen35): value head h uses key head h mod n_key_heads.
    /// Otherwise neighbouring value heads share one: h / (n_value_heads / n_key_heads).
    bool tiled = false;

    [[nodiscard]] bool empty() const { return n_key_heads == 0; }
    [[nodiscard]] std::int64_t key_cols() const { return n_key_heads * key_dim; }
    [[nodiscard]] std::int64_t value_cols() const { return n_value_heads * value_dim; }
    [[nodiscard]] std::int64_t convolved_cols() const { return 2 * key_cols() + value_cols(); }
    [[nodiscard]] std::int64_t row_cols() const { return convolved_cols() + 2 * n_value_heads; }
    [[nodiscard]] std::int64_t key_head(std::int64_t value_head) const {
        return tiled ? value_head % n_key_heads : value_head / (n_value_heads / n_key_heads);
    }
    /// Floats of a state: [n_value_heads][ceil(value_dim / 16)][key_dim][16], element (k, v) of a head in block v / 16;
    /// columns from value_dim on are 0.
    [[nodiscard]] std::int64_t state_floats() const {
        return n_value_heads * ceil_div(value_dim, kStateColumns) * key_dim * kStateColumns;
    }
    /// Floats of the convolution's taps: the inputs of the last conv_width - 1 tokens, [conv_width -
    /// 1][convolved_cols()], oldest first; zeros before the first token.
    [[nodiscard]] std::int64_t tap_floats() const { return (conv_width - 1) * convolved_cols(); }
    friend bool operator==(const DeltaNetShape&, const DeltaNetShape&) = default;
};

/// Whether devices of a kind have the op of this header.
[[nodiscard]] constexpr bool has_delta_ops(DeviceKind kind) {
    return kind == DeviceKind::Cpu;
}

}  // namespace slipstream
