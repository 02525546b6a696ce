// Models by name that need not be there: their shapes, and what a quantisation makes of their matrices. For planning.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream::tools {

/// What a whole model is written in: one type, or a mixture of types that gives some matrices more bits.
enum class Quantisation : std::uint8_t {
    F32,
    BF16,
    F16,
    Q8_0,
    Q6_K,
    Q5_K_M,
    Q5_K_S,
    Q5_1,
    Q5_0,
    Q4_K_M,
    Q4_K_S,
    Q4_1,
    Q4_0,
    Q3_K_L,
    Q3_K_M,
    Q3_K_S,
};
/// As files are named after it: "Q4_K_M".
[[nodiscard]] std::string_view quantisation_name(Quantisation quantisation);
/// All names, largest first.
[[nodiscard]] std::vector<std::string_view> quantisation_names();
/// Case does not matter; nothing for a name that is none.
[[nodiscard]] std::optional<Quantisation> find_quantisation(std::string_view name);

/// Names that find_shape() knows, in families.
[[nodiscard]] std::vector<std::string_view> shape_names();
/// Returns the model called "llama-70b", "qwen2.5-7b", ... (in any case), with `n_layers` layers if that is not 0;
/// nothing if the name is unknown.
[[nodiscard]] std::optional<ModelConfig> find_shape(std::string_view name, std::int64_t n_layers = 0);

/// The matrices and small tensors of a model as views that tell type and shape; there is nothing to read behind them.
[[nodiscard]] ModelWeights shape_weights(const ModelConfig& config, Quantisation quantisation);

/// Bytes of all tensors as they lie in a file, headers not counted.
[[nodiscard]] std::size_t file_bytes(const ModelWeights& weights, const ModelConfig& config);

}  // namespace slipstream::tools
