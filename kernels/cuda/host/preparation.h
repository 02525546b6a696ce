// Activations that an op leaves in scratch for the matmuls behind it, beside its own output.
#pragma once

#include <cstddef>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/matmul/activation_destination.h"
#include "kernels/elementwise.h"

namespace slipstream::cuda {

class Preparation {
public:
    /// For `y` [n_tokens, k], which the op writes, as weights of the types `next` read it: nothing is prepared where
    /// they read it in ways that do not go together, or that an op cannot make on its way. `more_bytes` of scratch are
    /// the op's own, behind it.
    Preparation(Op& op, const NextWeights& next, const TensorView& y, std::size_t more_bytes = 0);

    /// Null fragments: nothing is prepared.
    [[nodiscard]] const ActivationDestination& target() const { return target_; }
    /// The op's own scratch.
    [[nodiscard]] std::byte* more() const { return more_; }
    /// The op is enqueued: matmuls that follow find what was prepared.
    void keep();

private:
    CudaDevice& device_;
    ActivationDestination target_;
    std::byte* more_ = nullptr;
    PreparedActivations prepared_;
};

/// What Preparation takes of scratch for `n_tokens` of `k`, at most.
[[nodiscard]] std::size_t preparation_bytes(std::int64_t k, std::int64_t n_tokens);

}  // namespace slipstream::cuda
