// An MTP head for a tiny model in memory: with random weights, or made so that it is always right, or
// always wrong, about a target whose next token follows from the last one alone (EchoFiles).
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "runtime/model/proposing_head.h"
#include "tests/support/tiny_model.h"

namespace slipstream {

/// `files`, but no layer adds to the residual stream: the logits after a token are those of its embedding.
class EchoFiles final : public ModelFiles {
public:
    explicit EchoFiles(std::unique_ptr<ModelFiles> files) : files_(std::move(files)), config_(files_->config()) {
        config_.residual_scale = 0.0F;
    }
    std::string_view format() const override { return files_->format(); }
    const std::vector<std::filesystem::path>& paths() const override { return files_->paths(); }
    std::size_t total_bytes() const override { return files_->total_bytes(); }
    const ModelConfig& config() const override { return config_; }
    const GenerationDefaults& generation_defaults() const override { return files_->generation_defaults(); }
    const TokenizerSource& tokenizer_source() const override { return files_->tokenizer_source(); }
    const std::optional<std::string>& chat_template() const override { return files_->chat_template(); }
    const std::vector<FileTensor>& tensors() const override { return files_->tensors(); }
    std::vector<std::pair<std::string, std::string>> metadata() const override { return files_->metadata(); }
    ModelWeights weights() const override { return files_->weights(); }
    void prefetch(std::span<const std::byte> part) const override { files_->prefetch(part); }
    void release(std::span<const std::byte> part) const override { files_->release(part); }

private:
    std::unique_ptr<ModelFiles> files_;
    ModelConfig config_;
};

enum class TinyHeadKind : std::uint8_t {
    Random,
    Right,  // of EchoFiles: the logits are the target's but for rounding
    Wrong,  // of EchoFiles: the logits are the target's with the other sign
};

class TinyHead final : public HeadSource {
public:
    /// `target` must outlive this object; a layer of it has attention.
    explicit TinyHead(const ModelFiles& target, TinyHeadKind kind = TinyHeadKind::Random, std::uint32_t seed = 5)
        : target_(target), config_(target.config()), weights_(target.weights()) {
        // A layer of the target serves as the head's: random weights are as good as others.
        for (std::size_t i = 0; i < config_.layers.size(); ++i) {
            if (!config_.layers[i].has_attention()) continue;
            layer_ = config_.layers[i];
            layer_weights_ = weights_.layers[i];
        }
        config_.layers = {layer_};
        weights_.layers = {layer_weights_};
        const std::int64_t d = config_.d_model;
        projection_.resize(static_cast<std::size_t>(2 * d * d));
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0.0F, 1.0F / std::sqrt(static_cast<float>(2 * d)));
        if (kind == TinyHeadKind::Random) {
            for (float& value : projection_) value = normal(random);
            ones_.assign(static_cast<std::size_t>(d), 1.1F);
        } else {
            ones_.assign(static_cast<std::size_t>(d), 1.0F);
            for (std::int64_t i = 0; i < d; ++i)
                projection_[i * 2 * d + i] = kind == TinyHeadKind::Right ? 1.0F : -1.0F;
        }
        weights_.embedding_norm = ones();
    }

    const ModelConfig& config() const override { return config_; }
    ModelWeights weights() const override { return weights_; }
    std::size_t own_embedding_bytes() const override { return 0; }
    HeadTensors head_tensors() const override {
        const auto* data = reinterpret_cast<const std::byte*>(projection_.data());
        return {.projection = matrix_view(data, DType::F32, config_.d_model, 2 * config_.d_model),
                .hidden_norm = ones(),
                .target_norm = target_.weights().output_norm};
    }
    bool has_own_lm_head() const override { return false; }
    void prefetch(std::span<const std::byte> part) const override {
        if (part.data() != reinterpret_cast<const std::byte*>(projection_.data())) target_.prefetch(part);
    }
    void release(std::span<const std::byte> part) const override {
        if (part.data() != reinterpret_cast<const std::byte*>(projection_.data())) target_.release(part);
    }

private:
    ConstTensorView ones() const {
        return vector_view(reinterpret_cast<const std::byte*>(ones_.data()), DType::F32, config_.d_model);
    }

    const ModelFiles& target_;
    ModelConfig config_;
    ModelWeights weights_;
    LayerConfig layer_;
    LayerWeights layer_weights_;
    std::vector<float> projection_, ones_;
};

}  // namespace slipstream
