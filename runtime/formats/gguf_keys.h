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
    /// `file` and `tensors`, those of all parts of the file, must outlive this.
    GgufKeys(const GgufFile& file, std::string_view prefix, const TensorIndex& tensors)
        : file_(file), prefix_(prefix), tensors_(tensors) {}

    [[nodiscard]] const GgufFile& file() const { return file_; }
    [[nodiscard]] const TensorIndex& tensors() const { return tensors_; }
    [[nodiscard]] std::string key(std::string_view suffix) const;
    /// Returns the value of a key; null or nothing if the file does not have it. number(), integer() and string() throw
    /// FormatError if it is of another type.
    [[nodiscard]] const GgufValue* find(std::string_view suffix) const { return file_.find(key(suffix)); }
    [[nodiscard]] std::optional<double> number(std::string_view suffix) const { return file_.number(key(suffix)); }
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view suffix) const {
        return file_.integer(key(suffix));
    }
    [[nodiscard]] std::optional<std::string_view> string(std::string_view suffix) const {
        return file_.string(key(suffix));
    }
    /// Returns an integer. Throws FormatError if it is missing.
    [[nodiscard]] std::int64_t required(std::string_view suffix) const;
    /// Returns a value that is one number for all layers, or an array with an equal number for each; nothing if it is
    /// missing. Throws Unsupported if the numbers differ.
    [[nodiscard]] std::optional<std::int64_t> uniform(std::string_view suffix, std::int64_t n_layers) const;

    /// Returns a value that is one number for all layers, or an array with a number for each: [n_layers]; nothing if it
    /// is missing.
    [[nodiscard]] std::optional<std::vector<std::int64_t>> by_layer(std::string_view suffix,
                                                                    std::int64_t n_layers) const;

    /// Returns which layers have the sliding window "attention.sliding_window" ([n_layers]), by
    /// "attention.sliding_window_pattern": an array of flags, or a period n, where every n-th layer has none. Without
    /// that key, the period is `period`; 0: all layers have the window.
    [[nodiscard]] std::vector<bool> windowed_layers(std::int64_t n_layers, std::int64_t period) const;

private:
    const GgufFile& file_;
    std::string_view prefix_;
    const TensorIndex& tensors_;
};

/// Gives the layers that GgufKeys::windowed_layers() returns for `period` the window "attention.sliding_window", or
/// `absent_window` (0: none) if the file does not have that key.
void read_gguf_windows(const GgufKeys& keys, std::int64_t period, ModelConfig& config, std::int64_t absent_window = 0);

}  // namespace slipstream
