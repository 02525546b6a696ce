// Metadata of a GGUF file under the prefix of its architecture: "llama.block_count". Errors name the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/tensor_index.h"
#include "runtime/model/model_config.h"

namespace slipstream {

class GgufKeys {
public:
    /// `file` and `tensors` must outlive this object; `tensors` are those of all parts of a split model.
    GgufKeys(const GgufFile& file, std::string_view prefix, const TensorIndex& tensors)
        : file_(file), prefix_(prefix), tensors_(tensors) {}

    [[nodiscard]] const GgufFile& file() const { return file_; }
    [[nodiscard]] const TensorIndex& tensors() const { return tensors_; }
    [[nodiscard]] std::string key(std::string_view suffix) const;
    /// Returns the value of the key; null or nullopt if the file does not have it. number(), integer() and string()
    /// throw FormatError if it has another type.
    [[nodiscard]] const GgufValue* find(std::string_view suffix) const { return file_.find(key(suffix)); }
    [[nodiscard]] std::optional<double> number(std::string_view suffix) const { return file_.number(key(suffix)); }
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view suffix) const {
        return file_.integer(key(suffix));
    }
    [[nodiscard]] std::optional<std::string_view> string(std::string_view suffix) const {
        return file_.string(key(suffix));
    }
    /// Returns the value of a key that must be an integer. Throws FormatError if it is missing or has another type.
    [[nodiscard]] std::int64_t required(std::string_view suffix) const;
    /// Returns the value of a key that is one integer for all layers, or an array with an integer for each, all equal;
    /// nullopt if the key is missing. Throws FormatError (not one integer per layer) or Unsupported (they differ).
    [[nodiscard]] std::optional<std::int64_t> uniform(std::string_view suffix, std::int64_t n_layers) const;

    /// Returns the values [n_layers] of a key that is one integer for all layers, or an array with an integer for each;
    /// nullopt if the key is missing. Throws FormatError if there is not one integer per layer.
    [[nodiscard]] std::optional<std::vector<std::int64_t>> by_layer(std::string_view suffix,
                                                                    std::int64_t n_layers) const;

    /// Returns which layers have the sliding window "attention.sliding_window" ([n_layers]), as the key
    /// "attention.sliding_window_pattern" says: an array of flags, or a period n of which every n-th layer has no
    /// window. Without that key, the period is `period`; 0: all layers have the window.
    [[nodiscard]] std::vector<bool> windowed_layers(std::int64_t n_layers, std::int64_t period) const;

private:
    const GgufFile& file_;
    std::string_view prefix_;
    const TensorIndex& tensors_;
};

/// Removes the last "nextn_predict_layers" layers: they propose further tokens and are no part of the model. Throws
/// FormatError if that leaves none.
void drop_proposing_layers(const GgufKeys& keys, ModelConfig& config);

/// Gives the layers that GgufKeys::windowed_layers() returns for `period` the window "attention.sliding_window", or
/// `absent_window` (0: none) if the file does not have that key. 0 in the file is no window, as converters of Phi-3
/// write it; families whose layers alternate (`period` above 0) always have one. Throws FormatError for sizes that
/// cannot be.
void read_gguf_windows(const GgufKeys& keys, std::int64_t period, ModelConfig& config, std::int64_t absent_window = 0);

}  // namespace slipstream
