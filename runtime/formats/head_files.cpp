#include "runtime/formats/head_files.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "runtime/formats/tensor_index.h"
#include "runtime/formats/weight_binding.h"

namespace slipstream {

namespace {

/// Full names of the tensors of a head.
struct HeadNames {
    explicit HeadNames(const ModelFiles& files) {
        const std::int64_t layer = files.config().n_layers();
        if (files.format().starts_with("GGUF")) {
            const std::string prefix = fmt::format("blk.{}.", layer);
            first = prefix;
            second = fmt::format("blk.{}.", layer + 1);
            projection = prefix + "nextn.eh_proj.weight";
            embedding_norm = prefix + "nextn.enorm.weight";
            hidden_norm = prefix + "nextn.hnorm.weight";
            output_norm = prefix + "nextn.shared_head_norm.weight";
            foreign = {prefix + "nextn.embed_tokens.weight", prefix + "nextn.shared_head_head.weight"};
        } else {
            first = "mtp.";
            second = "mtp.layers.1.";
            projection = "mtp.fc.weight";
            embedding_norm = "mtp.pre_fc_norm_embedding.weight";
            hidden_norm = "mtp.pre_fc_norm_hidden.weight";
            output_norm = "mtp.norm.weight";
            foreign = {"mtp.embed_tokens.weight", "mtp.lm_head.weight"};
        }
    }
    std::string first, second;  // prefixes of all tensors of the head, and of those of a second layer
    std::string projection, embedding_norm, hidden_norm, output_norm;
    std::array<std::string, 2> foreign;  // an embedding and an LM head of its own
};

bool has_prefix(const ModelFiles& files, std::string_view prefix) {
    return std::ranges::any_of(files.tensors(),
                               [&](const FileTensor& tensor) { return tensor.name.starts_with(prefix); });
}

// Returns the configuration of the head as a model of one layer: the last layer of the target that has attention, with
// experts if any layer has them.
ModelConfig head_config(const ModelConfig& target) {
    ModelConfig config = target;
    LayerConfig layer;
    for (const LayerConfig& each : target.layers) {
        if (each.has_attention()) layer.mixer = each.mixer;
        if (each.feed_forward.experts.empty() && !layer.feed_forward.experts.empty()) continue;
        layer.feed_forward = each.feed_forward;
    }
    CHECK(layer.has_attention() && layer.attention().n_q_heads > 0, "a target without attention");
    config.layers = {layer};
    return config;
}

class HeadFiles final : public HeadSource {
public:
    explicit HeadFiles(const ModelFiles& files) : files_(files), names_(files), config_(head_config(files.config())) {
        const Family& family = find_family(config_.family);
        const bool gguf = files.format().starts_with("GGUF");
        const TensorNames& of_target = gguf ? family.gguf_names : family.hf_names;
        const TensorIndex tensors(files.tensors());
        if (has_prefix(files, names_.second))
            throw Unsupported(fmt::format("tensors {}*: a head of several layers is not served", names_.second));
        for (const std::string& name : names_.foreign)
            if (tensors.find(name) != nullptr)
                throw Unsupported(
                    fmt::format("tensor {}: a head with an embedding or LM head of its own is not served", name));
        TensorNames names = of_target;
        if (gguf)
            names.first_layer = files.config().n_layers();
        else
            names.layer_prefix = "mtp.layers.";
        names[TensorRole::EmbeddingNorm] = names_.embedding_norm;
        names[TensorRole::OutputNorm] = names_.output_norm;
        weights_ = bind_weights(config_, tensors, names, gguf ? family.gguf_biases : BindingRules{});
        const std::int64_t d = config_.d_model;
        tensors_ = {.projection = find(tensors, names_.projection, {d, 2 * d}),
                    .hidden_norm = find(tensors, names_.hidden_norm, {d}),
                    .target_norm = find(tensors, std::string(of_target[TensorRole::OutputNorm]), {d})};
    }

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] ModelWeights weights() const override { return weights_; }
    [[nodiscard]] HeadTensors head_tensors() const override { return tensors_; }
    void prefetch(std::span<const std::byte> part) const override { files_.prefetch(part); }
    void release(std::span<const std::byte> part) const override { files_.release(part); }

private:
    [[nodiscard]] static ConstTensorView find(const TensorIndex& tensors, const std::string& name,
                                              const std::vector<std::int64_t>& shape) {
        const FileTensor* tensor = tensors.find(name);
        if (tensor == nullptr) throw FormatError(fmt::format("tensor {} {} is missing", name, shape_text(shape)));
        if (tensor->shape != shape)
            throw FormatError(fmt::format("tensor {} has shape {}, the configuration asks for {}", name,
                                          shape_text(tensor->shape), shape_text(shape)));
        if (tensor->view.empty() || (shape.size() == 1 && is_quantized(tensor->view.dtype)))
            throw Unsupported(fmt::format("tensor {} has type {}, which is not served", name, tensor->type_name));
        return tensor->view;
    }

    const ModelFiles& files_;
    HeadNames names_;
    ModelConfig config_;
    ModelWeights weights_;
    HeadTensors tensors_;
};

}  // namespace

bool has_head(const ModelFiles& files) {
    return find_family(files.config().family).has_head && has_prefix(files, HeadNames(files).first);
}

std::unique_ptr<HeadSource> open_head(const ModelFiles& files) {
    if (!has_head(files)) return nullptr;
    const std::string label = files.paths().front().string();
    try {
        return std::make_unique<HeadFiles>(files);
    } catch (const FormatError& error) {
        throw FormatError(fmt::format("{}: the MTP head: {}", label, error.what()));
    } catch (const Unsupported& error) {
        throw Unsupported(fmt::format("{}: the MTP head: {}", label, error.what()));
    }
}

}  // namespace slipstream
