#include "runtime/formats/ignored_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/formats/head_files.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Most parts that are listed by name, so that the line stays readable for any file.
constexpr std::size_t kMostParts = 8;

struct Part {
    std::string_view name;
    std::int64_t n_tensors = 0;
};

std::string_view part_of(std::string_view name) {
    constexpr std::string_view kPrefix = "model.";
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const std::size_t end = name.find('.');
    // The name of a layer includes its number, which shows that the file has layers that the model does not have.
    const bool is_layer = name.starts_with("layers.") || name.starts_with("blk.");
    return name.substr(0, is_layer ? name.find('.', end + 1) : end);
}

// Returns whether the tensor is an LM head that is not used, because the embeddings are tied.
bool is_unused_head(std::string_view name, const ModelConfig& config) {
    return config.tied_embeddings && (name.ends_with("lm_head.weight") || name == "output.weight");
}

bool is_of_rope(std::string_view name) {
    return name.starts_with("rope_f") || name.ends_with("rotary_emb.inv_freq");
}

// Appends where the tensors of `weights` begin.
void add_used(const ModelWeights& weights, std::vector<const std::byte*>& used) {
    for_each_tensor(weights, [&](const TensorInfo&, std::int64_t /*layer*/, const ConstTensorView& view) {
        used.push_back(view.data);
    });
    for (const LayerWeights& layer : weights.layers) {
        used.push_back(layer.stored_gate_bias.data);
        for (const ExpertWeights& expert : layer.experts)
            for (const StoredMatrix& stored : expert.stored) used.insert(used.end(), {stored.data, stored.scales});
    }
}

// The same for the MTP head; nothing if there is none, or one that is not served.
void add_used_by_head(const ModelFiles& files, std::vector<const std::byte*>& used) {
    try {
        const std::unique_ptr<HeadSource> head = open_head(files);
        if (!head) return;
        add_used(head->weights(), used);
        used.insert(used.end(), {head->head_tensors().projection.data, head->head_tensors().hidden_norm.data});
    } catch (const Error&) {
    }
}

}  // namespace

std::string describe_ignored_tensors(const ModelFiles& files) {
    std::vector<const std::byte*> used;  // sorted
    add_used(files.weights(), used);
    add_used_by_head(files, used);
    std::ranges::sort(used);
    std::vector<Part> parts;
    std::int64_t n_others = 0;
    for (const FileTensor& tensor : files.tensors()) {
        // The view of a weight may begin inside a tensor: one that holds several matrices.
        const std::byte* data = tensor.data;
        const auto first = std::ranges::lower_bound(used, data);
        if ((first != used.end() && *first < data + tensor.bytes) || is_of_rope(tensor.name) ||
            is_unused_head(tensor.name, files.config()))
            continue;
        const std::string_view name = part_of(tensor.name);
        const auto found = std::ranges::find(parts, name, &Part::name);
        if (found != parts.end())
            ++found->n_tensors;
        else if (parts.size() < kMostParts)
            parts.push_back({name, 1});
        else
            ++n_others;
    }
    std::vector<std::string> texts;
    const auto counted = [](std::int64_t n) { return fmt::format("{} tensor{}", n, n == 1 ? "" : "s"); };
    for (const Part& part : parts)
        texts.push_back(fmt::format("{} ({})", printable(part.name), counted(part.n_tensors)));
    if (n_others > 0) texts.push_back(counted(n_others) + " of other parts");
    return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace slipstream
