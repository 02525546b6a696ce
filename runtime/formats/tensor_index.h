// Tensors of a model by name. Points into a list that somebody else keeps.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/formats/model_files.h"

namespace slipstream {

class TensorIndex {
public:
    /// `tensors` must outlive the index, unchanged. Throws FormatError where a name stands twice (in two parts or
    /// shards).
    explicit TensorIndex(const std::vector<FileTensor>& tensors);

    /// The tensor of this name, or nullptr.
    [[nodiscard]] const FileTensor* find(std::string_view name) const;

private:
    std::unordered_map<std::string_view, const FileTensor*> by_name_;
};

/// "[32, 64]".
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace slipstream
