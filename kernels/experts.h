// The ops of a mixture of experts: the choice of experts for each token, one grouped product over (expert, its rows),
// and the weighted sum of the experts' rows. The router's logits are a matmul() with F32 weights.
//
// A row is a pair (token, expert that it chose). Rows are in ascending order of their experts, and of their tokens for
// each expert.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"
#include "kernels/matmul.h"

namespace slipstream {

/// The function from the router's logits to scores.
enum class ExpertScore : std::uint8_t {
    Softmax,  // over all experts of the layer
    Sigmoid,  // of each expert alone
};

/// How the weights of the chosen experts follow from scores.
struct ExpertWeighting {
    ExpertScore score = ExpertScore::Softmax;
    bool normalized = true;   // scores are divided by their sum over the chosen experts
    float sum_offset = 0.0F;  // added to that sum
    float scale = 1.0F;       // at the end, multiplies the weights of the chosen
    friend bool operator==(const ExpertWeighting&, const ExpertWeighting&) = default;
};

/// Chooses n_chosen experts for each token: those with the largest score plus bias; of equal ones, those with the lower
/// number. Weights follow from the scores without bias. All arithmetic is in float, in the written order, without fused
/// operations, so every kernel variant gives the same bits:
///   Softmax: e[i] = exp(logit[i] - largest logit). Not normalized: e[i] / (sum of all e, ascending). Normalized:
///   e[i] / (sum of e over the chosen, ascending, + sum_offset).
///   Sigmoid: s[i] = 1 / (1 + exp(-logit[i])). Normalized: s[i] / (sum of s over the chosen, ascending, + sum_offset).
///   Then the weight is multiplied by `scale`.
///   With `scales`, it is then multiplied by scales[i].
/// A token with a logit, or a sum of score and bias, that is infinite or NaN gets id -1 at each of its places.
///
/// The results are in host memory when the call returns, because they decide what the host enqueues next: on a GPU the
/// call waits for all work of the stream, so it must not be captured into a graph.
struct ChooseExpertsArgs {
    ConstTensorView logits;     // [n_tokens, n_experts], F32
    ConstTensorView bias{};     // [n_experts], F32, or empty; only with ExpertScore::Sigmoid
    ConstTensorView scales{};   // [n_experts], F32, or empty
    std::int64_t n_chosen = 0;  // 1 to n_experts
    ExpertWeighting weighting{};
    std::int32_t* ids = nullptr;  // [n_tokens, n_chosen]: the chosen experts, ascending. Memory of the host
    float* weights = nullptr;     // [n_tokens, n_chosen]. Memory of the host
};
void choose_experts(ExecRef exec, const ChooseExpertsArgs& args);

/// Most rows that a grouped product processes at once, unless one product has more. The workspace of a device must be
/// reserved for so many tokens (WorkspaceShapes::n_tokens), or for those of the largest product if they are more.
inline constexpr std::int64_t kGroupedRows = 512;

/// Computes matmul() of each product, each with its own x, by all threads together. An output has the bits of matmul(),
/// except with quantised weights in the scalar CPU variant: there, as in all others, those of cpu/matmul/code_chain.h.
/// CPUs throw NonFiniteRow (nonfinite_row.h) if a row of x is not finite. No y may overlap another product's operand.
void grouped_matmul(ExecRef exec, std::span<const MatmulArgs> products);

/// For each row r in ascending order: sums[tokens[r]] = fma(weights[r], rows[r], sums[tokens[r]]), element by element.
struct CombineExpertsArgs {
    ConstTensorView rows;                  // [n_rows, d], F32
    const std::int32_t* tokens = nullptr;  // [n_rows], each in [0, n_tokens). Memory of the host
    const float* weights = nullptr;        // [n_rows]. Memory of the host
    TensorView sums;                       // [n_tokens, d], F32; must not overlap `rows`
    bool from_zero = false;                // `sums` are not read: every one of them begins at 0
};
void combine_experts(ExecRef exec, const CombineExpertsArgs& args);

}  // namespace slipstream
