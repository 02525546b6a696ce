// Named model shapes for planning without a file, and the types that a quantisation gives to the matrices of a model.
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

/// Quantisation of a whole model: one type, or a mixture of types in which some matrices get more bits.
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
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
};
/// Returns the name that is usual in file names: "Q4_K_M".
[[nodiscard]] std::string_view quantisation_name(Quantisation quantisation);
/// Returns all names, in the order of the enumeration.
[[nodiscard]] std::vector<std::string_view> quantisation_names();
/// Returns the quantisation of that name, in any case, or nullopt if there is none.
[[nodiscard]] std::optional<Quantisation> find_quantisation(std::string_view name);

/// Returns the names that find_shape() knows, one family after the other.
[[nodiscard]] std::vector<std::string_view> shape_names();
/// Returns the model called "llama-70b", "qwen2.5-7b", ... (in any case), with `n_layers` layers if that is not 0;
/// nullopt if the name is unknown.
[[nodiscard]] std::optional<ModelConfig> find_shape(std::string_view name, std::int64_t n_layers = 0);

/// Returns the tensors of a model as views that have only a type and a shape; their data pointers are null.
[[nodiscard]] ModelWeights shape_weights(const ModelConfig& config, Quantisation quantisation);

/// Returns the bytes of all tensors in a file, without its headers. Tied embeddings are counted once.
[[nodiscard]] std::size_t file_bytes(const ModelWeights& weights, const ModelConfig& config);

}  // namespace slipstream::tools
