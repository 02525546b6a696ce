#include "runtime/formats/head_files.h"

#include <algorithm>
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
    HeadNames(const ModelFiles& files, HeadNaming naming) {
        const std::int64_t n_layers = files.config().n_layers();
        const bool gguf = files.format().starts_with("GGUF");
        if (!gguf && naming == HeadNaming::Apart) {
            layer_prefix = "mtp.layers.";
            first = "mtp.";
            second = "mtp.layers.1.";
            projection = "mtp.fc.weight";
            embedding_norm = "mtp.pre_fc_norm_embedding.weight";
            hidden_norm = "mtp.pre_fc_norm_hidden.weight";
            output_norm = "mtp.norm.weight";
            embedding = "mtp.embed_tokens.weight";
            lm_head = "mtp.lm_head.weight";
            return;
        }
        layer_prefix = gguf ? "blk." : "model.layers.";
        first_layer = n_layers;
        first = fmt::format("{}{}.", layer_prefix, n_layers);
        second = fmt::format("{}{}.", layer_prefix, n_layers + 1);
        const std::string own = gguf ? first + "nextn." : first;
        projection = own + "eh_proj.weight";
        embedding_norm = own + "enorm.weight";
        hidden_norm = own + "hnorm.weight";
        output_norm = own + (gguf ? "shared_head_norm.weight" : "shared_head.norm.weight");
        embedding = own + "embed_tokens.weight";
        lm_head = own + (gguf ? "shared_head_head.weight" : "shared_head.head.weight");
    }
    std::string_view layer_prefix;  // with first_layer: of the tensors that a layer of the model has, too
    std::int64_t first_layer = 0;
    std::string first, second;  // prefixes of all tensors of the head, and of those of a second layer
    std::string projection, embedding_norm, hidden_norm, output_norm;
    std::string embedding, lm_head;  // of the head alone; files may lack them, and the model's are used
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

// Returns the rule for biases of a role: the head has them if the last layer of the model with attention does.
BiasRule bias_rule(const ModelConfig& target, const TensorIndex& tensors, const TensorNames& names, TensorRole role) {
    std::int64_t layer = target.n_layers() - 1;
    while (!target.layers[layer].has_attention()) --layer;
    const bool has_bias = tensors.find(fmt::format("{}{}.{}", names.layer_prefix, layer, names[role])) != nullptr;
    return has_bias ? BiasRule::Required : BiasRule::Forbidden;
}

class HeadFiles final : public HeadSource {
public:
    explicit HeadFiles(const ModelFiles& files)
        : files_(files), names_(files, find_family(files.config().family).head), config_(head_config(files.config())) {
        const Family& family = find_family(config_.family);
        const TensorNames& of_target = files.format().starts_with("GGUF") ? family.gguf_names : family.hf_names;
        const TensorIndex tensors(files.tensors());
        if (has_prefix(files, names_.second))
            throw Unsupported(fmt::format("tensors {}*: a head of several layers is not served", names_.second));
        TensorNames names = of_target;
        names.layer_prefix = names_.layer_prefix;
        names.first_layer = names_.first_layer;
        names[TensorRole::EmbeddingNorm] = names_.embedding_norm;
        names[TensorRole::OutputNorm] = names_.output_norm;
        // A head may have an embedding of its own beside the model's LM head, so none is tied to another.
        if (config_.tied_embeddings) names[TensorRole::LmHead] = of_target[TensorRole::TokenEmbedding];
        config_.tied_embeddings = false;
        has_own_lm_head_ = tensors.find(names_.lm_head) != nullptr;
        if (has_own_lm_head_) names[TensorRole::LmHead] = names_.lm_head;
        const bool has_own_embedding = tensors.find(names_.embedding) != nullptr;
        if (has_own_embedding) names[TensorRole::TokenEmbedding] = names_.embedding;
        weights_ = bind_weights(config_, tensors, names,
                                {.qkv_bias = bias_rule(files.config(), tensors, of_target, TensorRole::QBias),
                                 .out_bias = bias_rule(files.config(), tensors, of_target, TensorRole::AttnOutBias)});
        const ConstTensorView& embedding = weights_.token_embedding;
        if (has_own_embedding) own_embedding_bytes_ = embedding.shape[0] * row_bytes(embedding.dtype, embedding.cols());
        const std::int64_t d = config_.d_model;
        tensors_ = {.projection = find(tensors, names_.projection, {d, 2 * d}),
                    .hidden_norm = find(tensors, names_.hidden_norm, {d}),
                    .target_norm = find(tensors, std::string(of_target[TensorRole::OutputNorm]), {d})};
    }

    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] ModelWeights weights() const override { return weights_; }
    [[nodiscard]] HeadTensors head_tensors() const override { return tensors_; }
    [[nodiscard]] bool has_own_lm_head() const override { return has_own_lm_head_; }
    [[nodiscard]] std::size_t own_embedding_bytes() const override { return own_embedding_bytes_; }
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
    bool has_own_lm_head_ = false;
    std::size_t own_embedding_bytes_ = 0;
};

}  // namespace

bool has_head(const ModelFiles& files) {
    const HeadNaming naming = find_family(files.config().family).head;
    return naming != HeadNaming::None && has_prefix(files, HeadNames(files, naming).first);
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
