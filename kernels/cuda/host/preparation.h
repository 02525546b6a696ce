// Prepared activations: what an op writes to scratch for the matmuls that follow it, beside its own output.
#pragma once

#include <cstddef>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/matmul/activation_destination.h"
#include "kernels/elementwise.h"

namespace slipstream::cuda {

/// A second copy of an op's output, in the form that the following matmuls read: rounded to bfloat16 and laid out as
/// fragments. Chooses the format and takes scratch of the device, which owns it. The op's kernel must write the copy to
/// target() beside its own output if anything is prepared, and the op must call keep() at its end.
class Preparation {
public:
    /// `y`, [n_tokens, k], is the output of `op`; `next` are the types of the weights that will be multiplied with it.
    /// Nothing is prepared if no format serves all these types, or if it is one that an op cannot write while it
    /// computes. `more_bytes`: scratch for the op itself, after the prepared activations.
    Preparation(Op& op, const NextWeights& next, const TensorView& y, std::size_t more_bytes = 0);

    /// Returns where the op must write the prepared activations; fragments is null if nothing is prepared.
    [[nodiscard]] const ActivationDestination& target() const { return target_; }
    /// Returns scratch for the op to use as it likes, more_bytes bytes of device memory, 256-byte aligned. The device
    /// owns it, and the next op may overwrite it. Null if more_bytes is 0 and nothing is prepared.
    [[nodiscard]] std::byte* more() const { return more_; }
    /// Makes the prepared activations known to the matmuls that follow. Call it after the op was enqueued.
    void keep();

private:
    CudaDevice& device_;
    ActivationDestination target_;
    std::byte* more_ = nullptr;
    PreparedActivations prepared_;
};

/// Activations in scratch that a matmul reads: those that the op before left there, or those that the matmul writes
/// there first.
class ScratchActivations {
public:
    /// `wanted` has all fields but `change`. Until keep() nothing is prepared, also if the op's launch throws.
    ScratchActivations(Op& op, const PreparedActivations& wanted);

    /// Whether the activations are in scratch already.
    [[nodiscard]] bool found() const { return found_; }
    /// Makes the activations known to the matmuls that follow. Call it after the op was enqueued.
    void keep() { device_.keep_prepared(activations_); }

private:
    CudaDevice& device_;
    PreparedActivations activations_;
    bool found_ = false;
};

/// Returns the most bytes of scratch that Preparation takes for `n_tokens` rows of `k` floats, without more_bytes.
[[nodiscard]] std::size_t preparation_bytes(std::int64_t k, std::int64_t n_tokens);

}  // namespace slipstream::cuda
