// Experts of a layer from the fields of config.json and the keys of GGUF files.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

class GgufKeys;
class JsonFields;

/// Family::gguf_keys of a family whose GGUF files may count experts.
inline constexpr std::array<std::string_view, 1> kExpertKeys{"expert_count"};

/// Names of the fields of a config.json that count experts.
struct HfExpertFields {
    const char* count;                  // "num_experts"
    const char* other_count = nullptr;  // another name of it; null: none
    const char* chosen = "num_experts_per_tok";
    const char* d_ff;               // "moe_intermediate_size"
    std::int64_t absent_count = 0;  // defaults of the family; 0: the field is required
    std::int64_t absent_chosen = 0;
    std::int64_t absent_d_ff = 0;
};

/// Returns the experts of a layer; the weighting is the default one. Throws FormatError if a field is missing or there
/// are no experts.
[[nodiscard]] ExpertsConfig read_hf_experts(const JsonFields& fields, const HfExpertFields& names);

/// Returns which layers have no experts, [n_layers]: all but every decoder_sparse_step-th, and those of
/// mlp_only_layers. Throws FormatError if that leaves no layer with experts.
[[nodiscard]] std::vector<bool> read_dense_layers(const JsonFields& fields, std::int64_t n_layers);

/// "expert_gating_func": as GGUF numbers the functions of the router.
enum class GgufGating : std::uint8_t {
    Softmax = 1,
    Sigmoid = 2,
    SoftmaxOfChosen = 3,  // the normalized weights of Softmax
};

/// Returns the experts of a layer by "expert_count", "expert_used_count" and "expert_feed_forward_length"
/// (`absent_d_ff` without that key; nothing: it is required). The weighting is the default one. Throws FormatError if a
/// key is missing or there are no experts, Unsupported if experts are chosen by groups, or if "expert_gating_func"
/// names another function than `gating`, that of the family.
[[nodiscard]] ExpertsConfig read_gguf_experts(const GgufKeys& keys, GgufGating gating,
                                              std::optional<std::int64_t> absent_d_ff);

}  // namespace slipstream
