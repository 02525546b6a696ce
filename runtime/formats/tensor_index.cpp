#include "runtime/formats/tensor_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

TensorIndex::TensorIndex(const std::vector<FileTensor>& tensors) {
    by_name_.reserve(tensors.size());
    for (const FileTensor& tensor : tensors)
        if (!by_name_.emplace(tensor.name, &tensor).second)
            throw FormatError(fmt::format("tensor {} is in two of the model's files", printable(tensor.name)));
}

const FileTensor* TensorIndex::find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace slipstream
