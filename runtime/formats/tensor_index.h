// Finds tensors of a model by name.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/formats/model_files.h"

namespace slipstream {

/// Index of a list of tensors, which the caller keeps.
class TensorIndex {
public:
    /// Indexes `tensors` by name. They must outlive the index, unchanged. Throws FormatError if a name occurs twice (in
    /// two files of the model).
    explicit TensorIndex(const std::vector<FileTensor>& tensors);

    /// Returns the tensor with this name; null if there is none.
    [[nodiscard]] const FileTensor* find(std::string_view name) const;

private:
    std::unordered_map<std::string_view, const FileTensor*> by_name_;
};

/// Returns a shape as text, "[32, 64]".
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace slipstream
