// Reductions of logits rows that choosing tokens needs, computed on the device, so that whole rows need not cross its
// link. All ops use one order: the higher logit is better; of equal logits, the lower id. NaN and -inf are never
// chosen. All results but sums have the same bits on every backend.
//
// Outputs are device memory, which the host may be unable to read (Device::shares_host_memory); they are written in
// stream order.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Finds the greatest logit of each row and its token id.
struct LogitArgmaxArgs {
    ConstTensorView logits;       // [n, vocab], F32
    std::int32_t* ids = nullptr;  // [n]; -1 if no logit of the row is above -inf
    float* values = nullptr;      // [n]; -inf if no logit of the row is above -inf
};
void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args);

/// Most logits of a row that logit_top_k can return.
inline constexpr std::int64_t kMostTopLogits = 64;

/// Finds the k best logits of each row, best first. A logit of -0 is returned as 0.
struct LogitTopKArgs {
    ConstTensorView logits;       // [n, vocab], F32
    std::int64_t k = 0;           // 1 to kMostTopLogits
    std::int32_t* ids = nullptr;  // [n, k]; -1 in places for which the row has no logit above -inf
    float* values = nullptr;      // [n, k]; -inf where ids is -1
};
void logit_top_k(ExecRef exec, const LogitTopKArgs& args);

/// Draws a token per row as drafter-invariant sampling (E2) does without filters (runtime/loop/sampling): the best of
/// float((logit - greatest) / temperature) + gumbel_noise(seed, position, id), with the quotient in double.
struct LogitGumbelArgs {
    ConstTensorView logits;                   // [n, vocab], F32
    const std::int64_t* positions = nullptr;  // [n], host memory: absolute position of the token that is drawn
    std::uint64_t seed = 0;
    double temperature = 1.0;     // > 0, finite
    std::int32_t* ids = nullptr;  // [n]; -1 if no logit of the row is above -inf
    float* scores = nullptr;      // [n]: logit term plus noise of the drawn token
};
void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args);

/// Bound of the relative error of logit_sum. In float, five roundings change each exponent by 3e-7 of its value, whose
/// mean over the mass of the row is at most log(vocab); exp adds 2.4e-7, and the longest chain of sums 66 roundings:
/// below 1e-5 in total for vocabularies up to 4 million. The rest is reserve.
inline constexpr double kLogitSumError = 3e-5;

/// Computes the sum of exp((logit - greatest) / temperature) over each row; 0 if no logit of the row is above -inf. The
/// sum of a row depends on that row alone (batch invariance, E1).
struct LogitSumArgs {
    ConstTensorView logits;           // [n, vocab], F32
    const float* greatest = nullptr;  // [n], `greatest_stride` floats apart, device memory: greatest logit of each row
    std::int64_t greatest_stride = 1;
    double temperature = 1.0;  // > 0, finite
    float* sums = nullptr;     // [n]
};
void logit_sum(ExecRef exec, const LogitSumArgs& args);

}  // namespace slipstream
