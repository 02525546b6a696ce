// Reads sliding windows from a config.json. Those of GGUF files: read_gguf_windows() (gguf_keys.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

/// Returns the elements of the field "layer_types"; "?" in place of an element that is not a text. Throws FormatError
/// if the field is not a list of one element per layer.
[[nodiscard]] std::vector<std::string> read_layer_types(const JsonFields& fields, std::int64_t n_layers);
/// Gives all layers the sliding window `window`, the value of the field "sliding_window" or its default; nullopt
/// changes nothing. Throws FormatError if it is below 1.
void set_windows(const JsonFields& fields, std::optional<std::int64_t> window, ModelConfig& config);
/// Gives the sliding window `window` to the layers that are "sliding_attention" in the field "layer_types", and no
/// window to all others; nullopt changes nothing. Throws FormatError if the window is below 1, or if the field is not a
/// list of one type per layer; Unsupported for types other than "sliding_attention" and "full_attention".
void set_windows_by_type(const JsonFields& fields, std::optional<std::int64_t> window, ModelConfig& config);
/// Gives all layers but every `period`-th the sliding window `window`; both must be positive.
void set_periodic_windows(ModelConfig& config, std::int64_t window, std::int64_t period);

}  // namespace slipstream
