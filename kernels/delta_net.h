// The ops of gated delta nets, the recurrent layers of Qwen3.5 and Qwen3-Next: a short causal convolution, then a
// linear recurrence with a state instead of a KV cache (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv
// 2412.06464, section 3; transformers: models/qwen3_next, torch_recurrent_gated_delta_rule()).
//
// Tokens pass the op one after the other, never in blocks: a token's result and the state after it depend on the tokens
// before it alone, bit for bit (batch invariance, E1).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/checked_math.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Columns of a value head that lie together in a state (DeltaNetShape::state_floats()).
inline constexpr std::int64_t kStateColumns = 16;
/// Most tokens that a convolution may see.
inline constexpr std::int64_t kMostTaps = 8;

/// Sizes of a delta net. A token has `n_key_heads` queries and keys and `n_value_heads` values. Its row of inputs is
/// [queries | keys | values | decay inputs | beta inputs]; the first three are the convolved columns.
struct DeltaNetShape {
    std::int64_t n_key_heads = 0;    // 0: the layer is no delta net
    std::int64_t n_value_heads = 0;  // a multiple of n_key_heads
    std::int64_t key_dim = 0;        // of a query or key head
    std::int64_t value_dim = 0;      // of a value head
    std::int64_t conv_width = 0;     // tokens that the convolution sees, the token itself included; 2 to kMostTaps
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

/// One token that passes a delta net. `from` and `to` are numbers of working states: the step reads the state before
/// the token in `from` and leaves the state after it in `to`; if they differ, `from` keeps its state for other steps.
/// The state before the first step is in working state 0.
struct DeltaStep {
    std::int32_t row = 0;      // >= 0: of DeltaNetArgs::rows; it has a result. < 0: stored row -1 - row; it has none
    std::int32_t parent = -1;  // step of the token before this one; -1: that token is the last of the state before
    std::int32_t from = 0;
    std::int32_t to = 0;
};

/// Returns how many working states suffice for any tree of `n_steps` steps, if of the children of a step the one with
/// the most steps below it is the last and takes its parent's working state: each other child has at most half of the
/// steps of its parent.
[[nodiscard]] constexpr std::int64_t working_states(std::int64_t n_steps) {
    std::int64_t n = 1;
    for (; n_steps > 1; n_steps /= 2) ++n;
    return n;
}

/// For each step: with the inputs x of the token and of the conv_width - 1 tokens before it,
///   c = silu(sum over those tokens, oldest first, of conv weight * x), per convolved column;
///   q, k: each head of c / sqrt(sum of its squares + eps); q also * key_dim^-0.5; v: of c;
///   decay = exp(rate * softplus(decay input + bias)), beta = sigmoid(beta input), per value head.
/// Then with the state S [key_dim, value_dim] of each value head:
///   S *= decay; u = beta * (v - S^T k); S += k u^T; result = S^T q.
/// All arithmetic is in float. Products with S are sums over k in four parts (k mod 4), each ascending with fused
/// multiply-adds, added as (0 + 1) + (2 + 3). So all kernel variants of a CPU give the same bits. A GPU adds the
/// squares of a head in another order, and its exponentials and logarithms differ.
struct DeltaNetArgs {
    DeltaNetShape shape;
    ConstTensorView rows;                // [n_rows, row_cols()], F32: inputs of the pass
    const float* stored = nullptr;       // [.., row_cols()]: inputs of tokens of earlier passes
    std::span<const DeltaStep> steps{};  // a parent comes before its children; every row of `rows` has one step
    std::int64_t n_kept = 0;             // first steps, a chain; the state after them is kept. 0: none is
    std::int64_t n_working = 1;          // working states
    const float* conv = nullptr;         // [conv_width, convolved_cols()], oldest token first
    const float* decay_rates = nullptr;  // [n_value_heads], below 0
    const float* decay_bias = nullptr;   // [n_value_heads]
    const float* state = nullptr;        // [state_floats()]: before the steps
    const float* taps = nullptr;         // [tap_floats()]: before the steps
    float* kept_state = nullptr;         // after n_kept steps; may be `state`
    float* kept_taps = nullptr;          // after n_kept steps; may be `taps`
    float* convolved = nullptr;          // [steps, row_cols()]: working memory
    TensorView out;                      // [n_rows, value_cols()], F32
    float eps = 1e-6F;                   // of the norms of queries and keys
};
void delta_net(ExecRef exec, const DeltaNetArgs& args);

/// Copies runs of columns: y[t][r * run + i] = x[t][first + r * stride + i], i in [0, run). For matrices whose rows
/// belong to several operands in turn.
struct GatherColumnsArgs {
    ConstTensorView x;  // [n_rows, ..], F32
    TensorView y;       // [n_rows, n_runs * run], F32; must not overlap x
    std::int64_t run = 0;
    std::int64_t first = 0;
    std::int64_t stride = 0;
};
void gather_columns(ExecRef exec, const GatherColumnsArgs& args);

}  // namespace slipstream
