// Maps the tensors of files to weights by role: checks shapes against the configuration, and cuts fused projections.
// Invariant of the result: every view has the shape that weights.h states, and a supported type. It may start at any
// byte (safetensors does not align); the kernels read weights unaligned.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "runtime/formats/tensor_index.h"
#include "runtime/formats/tensor_names.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// Whether a bias must be absent, must be present, or may be either.
enum class BiasRule : std::uint8_t { Forbidden, Required, IfPresent };

/// Norms that files do not store because all weights of such a norm are one number: that number, by role.
class ConstantNorms {
public:
    constexpr std::optional<float>& operator[](TensorRole role) { return values_[static_cast<std::size_t>(role)]; }
    [[nodiscard]] constexpr const std::optional<float>& operator[](TensorRole role) const {
        return values_[static_cast<std::size_t>(role)];
    }

private:
    std::array<std::optional<float>, kTensorRoles> values_{};
};

/// Rules for the biases of the attention, and norms that are not in the files.
struct BindingRules {
    BiasRule qkv_bias = BiasRule::IfPresent;
    BiasRule out_bias = BiasRule::IfPresent;
    ConstantNorms constants{};
};

/// Returns the weights, views into the memory of the tensors and of ModelWeights::constants. Throws FormatError with
/// the tensor that is missing, unexpected, or of the wrong shape; Unsupported for a type that cannot be computed with,
/// or a tensor of TensorNames::foreign_in_layer, or a bias that the family does not have.
[[nodiscard]] ModelWeights bind_weights(const ModelConfig& config, const TensorIndex& tensors, const TensorNames& names,
                                        const BindingRules& rules);

}  // namespace slipstream
