#include "runtime/formats/unused_tensors.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Returns whether a tensor was read with the configuration, or is computed from it.
bool is_of_rope(std::string_view name) {
    return name == "rope_freqs.weight" || name == "rope_factors_long.weight" || name == "rope_factors_short.weight" ||
           name.ends_with("rotary_emb.inv_freq");
}

std::string part_of(const std::string& name) {
    const std::size_t first = name.find('.');
    const bool has_second = name.starts_with("model.") && first != std::string::npos;
    return name.substr(0, has_second ? name.find('.', first + 1) : first);
}

}  // namespace

std::string unused_tensors(const ModelFiles& files) {
    const ModelWeights weights = files.weights();
    std::vector<const std::byte*> used;  // first bytes of the views
    for_each_tensor(weights,
                    [&](const TensorInfo&, std::int64_t, const ConstTensorView& view) { used.push_back(view.data); });
    std::ranges::sort(used, std::less<>());
    std::vector<std::pair<std::string, int>> parts;
    for (const FileTensor& tensor : files.tensors()) {
        const std::byte* begin = tensor.view.data;
        const auto found = std::ranges::lower_bound(used, begin, std::less<>());
        const bool is_used = begin != nullptr && found != used.end() && std::less<>()(*found, begin + tensor.bytes);
        if (is_used || is_of_rope(tensor.name)) continue;
        const std::string part = part_of(tensor.name);
        const auto known = std::ranges::find(parts, part, &std::pair<std::string, int>::first);
        if (known == parts.end()) {
            parts.emplace_back(part, 1);
        } else {
            ++known->second;
        }
    }
    std::string text;
    for (const auto& [part, n] : parts) {
        const std::string_view unit = text.empty() ? (n == 1 ? " tensor" : " tensors") : "";
        text += fmt::format("{}{}{} of {}", text.empty() ? "" : ", ", n, unit, printable(part));
    }
    return text;
}

}  // namespace slipstream
