// The small ops between matmuls: norm, rotation, gate, sum, softcap, and the gather of embedding rows. The bits of an
// element depend on its own row alone (batch invariance, E1).
#pragma once

#include <bitset>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Types of the weights that the output of an op is multiplied by next, bit i for DType(i). A device may use them to
/// lay out the output for those products. They change no bit.
using NextWeights = std::bitset<static_cast<std::size_t>(kDTypeCount)>;

/// y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i], row by row. y may be x (in place).
struct RmsNormArgs {
    ConstTensorView x;       // [n_rows, d], F32; for qk-norm the rows are (token, head)
    ConstTensorView weight;  // [d], F32, or empty: all weights are 1
    TensorView y;            // [n_rows, d], F32
    float eps = 1e-5F;
    NextWeights next{};
};
void rms_norm(ExecRef exec, const RmsNormArgs& args);

/// Which two elements of a head are rotated together.
enum class RopeLayout : std::uint8_t {
    Interleaved,  // (2i, 2i + 1): GGUF files of the llama family
    Half,         // (i, i + n_rotated / 2): Hugging Face, and GGUF files of the others
};

/// Computes the cosines and sines of each token's angles, once per pass. An angle is position * inverse_frequency[i],
/// computed and reduced in double, so that it is exact up to float rounding at any context length. Cosines and sines
/// are multiplied by `magnitude`.
struct RopeTableArgs {
    const std::int32_t* positions = nullptr;    // [n_tokens], absolute
    const double* inverse_frequency = nullptr;  // [n_rotated / 2]
    float magnitude = 1.0F;                     // yarn, longrope
    const float* factors = nullptr;             // [n_tokens] or null: multiply the cosines and sines of a token
    TensorView cos_sin;                         // [n_tokens, n_rotated], F32: the cosines, then the sines
};
void rope_table(ExecRef exec, const RopeTableArgs& args);

/// Rotates each pair of x by the angles of its token, in place. Elements n_rotated and later of a head stay unchanged.
struct RopeArgs {
    TensorView x;             // [n_tokens, n_heads * head_dim], F32
    ConstTensorView cos_sin;  // [n_tokens, n_rotated], F32
    std::int64_t head_dim = 0;
    RopeLayout layout = RopeLayout::Half;
};
void rope(ExecRef exec, const RopeArgs& args);

/// The function of the gate in a gated activation.
enum class GatedActivation : std::uint8_t {
    Silu,      // v / (1 + exp(-v)): SwiGLU
    GeluTanh,  // v / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (v + 0.044715 v^3), which is v / (1 + exp(-2 u)): GeGLU
    Sigmoid,   // 1 / (1 + exp(-v))
    ClampedSilu,  // gpt-oss: v / (1 + exp(-1.702 v)) of min(v, limit); up is clamped to [-limit, limit], plus 1
};

/// y = kind(gate) * up; of ClampedSilu kind(min(gate, limit)) * (clamp(up, -limit, limit) + 1). y may be gate or up (in
/// place). GeluTanh of -infinity is 0 (its limit) up to the smallest numbers of float; the others are only defined for
/// finite numbers.
struct GatedActivationArgs {
    ConstTensorView gate;  // [n_tokens, d_ff], F32
    ConstTensorView up;    // [n_tokens, d_ff], F32
    TensorView y;          // [n_tokens, d_ff], F32
    GatedActivation kind = GatedActivation::Silu;
    float limit = 0.0F;  // of ClampedSilu: above 0, finite
    NextWeights next{};
};
void gated_activation(ExecRef exec, const GatedActivationArgs& args);

/// y = (y + scale * x) * factor.
struct AddArgs {
    ConstTensorView x;         // [n_rows, d], F32
    TensorView y;              // [n_rows, d], F32
    float scale = 1.0F;        // multiplies x; 1 changes no bit
    ConstTensorView factor{};  // [1], F32, in memory of the device, or empty: 1
};
void add(ExecRef exec, const AddArgs& args);

/// y = cap * tanh(y / cap), in place: brings numbers smoothly into [-cap, cap]. Rounding moves a result y' by at most
/// 2^-21 |y'|, so numbers near 0 keep their digits; infinities become -cap and cap.
struct SoftcapArgs {
    TensorView y;      // [n_rows, d], F32
    float cap = 0.0F;  // above 0, finite
};
void softcap(ExecRef exec, const SoftcapArgs& args);

/// y[t] = float(table[tokens[t]]) * scale. The table is in host memory for every kind of device; its rows are gathered
/// there.
struct EmbedArgs {
    ConstTensorView table;                 // [vocab, d_model], any DType
    const std::int32_t* tokens = nullptr;  // [n_tokens], each in [0, vocab)
    TensorView y;                          // [n_tokens, d_model], F32
    float scale = 1.0F;                    // multiplies rows in F32; 1 changes no bit
};
void embed(ExecRef exec, const EmbedArgs& args);

}  // namespace slipstream
