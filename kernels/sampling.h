// What choosing tokens takes of rows of logits, on the device, so that whole rows need not cross its link. One order
// throughout: the higher logit is better, of equals the lower id; what is NaN or -inf is never chosen. The same bits on
// every backend, but for sums.
//
// Outputs are device memory that the host may not reach (Device::shares_host_memory), filled in stream order.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// The greatest logit of each row and whose it is.
struct LogitArgmaxArgs {
    ConstTensorView logits;       // [n, vocab], F32
    std::int32_t* ids = nullptr;  // [n]; -1 where no logit is above -inf
    float* values = nullptr;      // [n]; -inf there
};
void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args);

/// Most that logit_top_k gives of a row.
inline constexpr std::int64_t kMostTopLogits = 64;

/// The k best of each row, best first. -0 comes as 0.
struct LogitTopKArgs {
    ConstTensorView logits;       // [n, vocab], F32
    std::int64_t k = 0;           // 1 to kMostTopLogits
    std::int32_t* ids = nullptr;  // [n, k]; -1 where a row has fewer
    float* values = nullptr;      // [n, k]; -inf there
};
void logit_top_k(ExecRef exec, const LogitTopKArgs& args);

/// The draw of E2 without filters (runtime/loop/sampling): the best of float((logit - greatest) / temperature) +
/// gumbel_noise(seed, position, id), the quotient in double.
struct LogitGumbelArgs {
    ConstTensorView logits;                   // [n, vocab], F32
    const std::int64_t* positions = nullptr;  // [n], host memory: absolute, of the token that is drawn
    std::uint64_t seed = 0;
    double temperature = 1.0;     // > 0, finite
    std::int32_t* ids = nullptr;  // [n]; -1 where no logit is above -inf
    float* scores = nullptr;      // [n]: what the best is best by
};
void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args);

/// Bound of logit_sum's relative error. In floats each exponent is off by five roundings, 3e-7 of it, and its mean over
/// the row's mass is at most log(vocab); exp adds 2.4e-7, the longest chain of sums 66 roundings: below 1e-5 for
/// vocabularies up to 4 million. The rest is reserve.
inline constexpr double kLogitSumError = 3e-5;

/// Sum of exp((logit - greatest) / temperature) over each row; 0 where no logit is above -inf. A row's sum depends on
/// that row alone (E1).
struct LogitSumArgs {
    ConstTensorView logits;           // [n, vocab], F32
    const float* greatest = nullptr;  // [n], `greatest_stride` floats apart, on the device: each row's greatest logit
    std::int64_t greatest_stride = 1;
    double temperature = 1.0;  // > 0, finite
    float* sums = nullptr;     // [n]
};
void logit_sum(ExecRef exec, const LogitSumArgs& args);

}  // namespace slipstream
