// The tensors of a model by role: views into mapped files, or into the packs of a loaded model; fused projections are
// cut into their parts. Views own nothing. A view into a file may start at any byte, since files align as they like.
//
// kLayerTensors lists the tensors of a layer once. Names in files (runtime/formats), weight items, shards, packing and
// everything else that goes over the tensors of a model uses this list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/tensor_view.h"
#include "runtime/model/model_config.h"
#include "runtime/model/stored_matrix.h"

namespace slipstream {

enum class TensorRole : std::uint8_t {
    // of a layer
    AttnNorm,
    Q,
    QBias,
    K,
    KBias,
    V,
    VBias,
    Sinks,     // of each query head: a logit in its softmax
    AttnGate,  // sigmoid of its product multiplies the attention's result before the output matrix
    QNorm,     // norm of each query head, or of all together, before RoPE
    KNorm,
    AttnOut,
    AttnOutBias,
    AttnPostNorm,    // norm of the attention's result, before this is added to the residual stream
    DeltaIn,         // of delta nets: its product with a token is the input of the convolution
    DeltaGate,       // silu of its product multiplies the delta net's normed result before the output matrix
    DeltaDecayIn,    // its products decide how much of the state each value head keeps
    DeltaBeta,       // its products decide how much of the state each value head replaces
    DeltaConv,       // weights of the convolution, oldest token first
    DeltaDecay,      // rates of decay, all below 0
    DeltaDecayBias,  // added to the products of DeltaDecayIn
    DeltaNorm,       // norm of each head of the delta net's result
    DeltaOut,
    FfnNorm,
    // Router and experts read what FfnNorm gives, unless they have norms of their own.
    RouterNorm,
    ExpertsNorm,
    Router,        // its products with a token are the logits of the layer's experts
    RouterBias,    // added to the router's products
    ChoiceBias,    // added to the scores for the choice of experts alone
    ExpertScales,  // of each expert: multiplies its weight
    GateBias,      // of all experts, a row each; so are UpBias and DownBias
    UpBias,
    DownBias,
    Gate,  // of the part that all tokens pass; with an expert's number, of that expert; so are Up and Down
    Up,
    Down,
    SharedGate,       // sigmoid of its product with a token multiplies the result of the shared expert
    SharedPostNorm,   // norm of the result of the part that all tokens pass, before that of the experts is added
    ExpertsPostNorm,  // norm of the sum of experts, before it is added
    FfnPostNorm,      // norm of the feed-forward's result, before this is added to the residual stream
    OutputScale,      // multiplies the residual stream after the layer
    // of the model
    TokenEmbedding,
    EmbeddingNorm,  // norm of the embedding's rows
    OutputNorm,
    LmHead,  // the token embedding if the two are tied
};
inline constexpr std::size_t kLayerRoles = static_cast<std::size_t>(TensorRole::TokenEmbedding);
inline constexpr std::size_t kTensorRoles = static_cast<std::size_t>(TensorRole::LmHead) + 1;

/// Returns whether a layer of this kind can have tensors of a role: those of attention, of delta nets and of mixtures
/// are only in layers with them, those whose rows another matrix has in none.
[[nodiscard]] bool can_have(const LayerConfig& layer, TensorRole role);

/// In the place of an expert's number: the tensor is the layer's, or the model's.
inline constexpr std::int32_t kNoExpert = -1;

/// What a number of rows or columns of a tensor is, by its name in the config; dim_size() returns the number.
enum class TensorDim : std::uint8_t {
    One,     // the number of rows of a vector
    Model,   // d_model
    Q,       // n_q_heads * head_dim
    QRows,   // rows of the query matrix: Q, or twice as many if it has the rows of the output gate, too
    Kv,      // n_kv_heads * head_dim
    QHeads,  // n_q_heads
    QNorm,   // head_dim, or Q if AttentionConfig::norms_projections
    KNorm,   // head_dim, or Kv
    FeedForward,
    Experts,            // n_experts
    ExpertFeedForward,  // d_ff of an expert
    DeltaIn,            // rows of a delta net's input matrix: DeltaConvolved, and those of its gate if it has them
    DeltaConvolved,     // columns of a delta net that are convolved: queries, keys and values
    DeltaTaps,          // tokens that its convolution sees
    DeltaValues,        // n_value_heads * value_dim
    DeltaHeads,         // n_value_heads
    DeltaBeta,          // rows of a delta net's beta matrix: DeltaHeads, or twice as many with those for decay
    DeltaHeadDim,       // value_dim
    Single,             // 1: rows of a matrix, not of a vector
    Vocab,
};
/// Returns the number of elements of a dimension; `layer` is ignored for dimensions of the model.
[[nodiscard]] std::int64_t dim_size(TensorDim dim, const ModelConfig& config, std::int64_t layer);

/// When a pass reads a matrix. The KV of a layer is read between BeforeKv and AfterKv.
enum class ReadStage : std::uint8_t { BeforeKv, AfterKv, LmHead };

/// Matrices are packed in their own type into items, all others are widened to float and always resident. Routers are
/// matrices that stay so: the product of a token with one is a few numbers. Taps are the rows of a convolution.
enum class TensorKind : std::uint8_t { Matrix, Norm, Bias, Scale, Router, Taps };

struct TensorInfo {
    TensorRole role;
    TensorKind kind;
    std::string_view name;                  // in messages
    TensorDim rows;                         // One: a vector
    TensorDim cols;                         //
    ReadStage stage = ReadStage::BeforeKv;  // only of matrices that passes multiply by: when in a layer they are read
    /// Belongs to the sum of the products of all shards, so only the shard of group 0 has it.
    bool added_once = false;

    [[nodiscard]] constexpr bool is_matrix() const { return kind == TensorKind::Matrix; }
    [[nodiscard]] constexpr bool is_vector() const { return rows == TensorDim::One; }
    /// Whether the tensor belongs to experts: a matrix of one, or a bias of all experts of a layer.
    [[nodiscard]] constexpr bool is_of_experts() const {
        return rows == TensorDim::ExpertFeedForward || cols == TensorDim::ExpertFeedForward ||
               (kind == TensorKind::Bias && rows == TensorDim::Experts);
    }
};

/// The tensors of a layer; matrices in reading order. Which of them a layer has follows from its family.
inline constexpr std::array kLayerTensors{
    TensorInfo{TensorRole::AttnNorm, TensorKind::Norm, "the attention norm", TensorDim::One, TensorDim::Model},
    TensorInfo{TensorRole::Q, TensorKind::Matrix, "the query matrix", TensorDim::QRows, TensorDim::Model,
               ReadStage::BeforeKv},
    TensorInfo{TensorRole::QBias, TensorKind::Bias, "the query bias", TensorDim::One, TensorDim::Q},
    TensorInfo{TensorRole::K, TensorKind::Matrix, "the key matrix", TensorDim::Kv, TensorDim::Model,
               ReadStage::BeforeKv},
    TensorInfo{TensorRole::KBias, TensorKind::Bias, "the key bias", TensorDim::One, TensorDim::Kv},
    TensorInfo{TensorRole::V, TensorKind::Matrix, "the value matrix", TensorDim::Kv, TensorDim::Model,
               ReadStage::BeforeKv},
    TensorInfo{TensorRole::VBias, TensorKind::Bias, "the value bias", TensorDim::One, TensorDim::Kv},
    TensorInfo{TensorRole::Sinks, TensorKind::Bias, "the attention sinks", TensorDim::One, TensorDim::QHeads},
    TensorInfo{TensorRole::AttnGate, TensorKind::Matrix, "the attention gate", TensorDim::Q, TensorDim::Model,
               ReadStage::BeforeKv},
    TensorInfo{TensorRole::QNorm, TensorKind::Norm, "the query norm", TensorDim::One, TensorDim::QNorm},
    TensorInfo{TensorRole::KNorm, TensorKind::Norm, "the key norm", TensorDim::One, TensorDim::KNorm},
    TensorInfo{TensorRole::AttnOut, TensorKind::Matrix, "the attention output", TensorDim::Model, TensorDim::Q,
               ReadStage::AfterKv},
    TensorInfo{.role = TensorRole::AttnOutBias,
               .kind = TensorKind::Bias,
               .name = "the attention output's bias",
               .rows = TensorDim::One,
               .cols = TensorDim::Model,
               .added_once = true},
    TensorInfo{TensorRole::AttnPostNorm, TensorKind::Norm, "the norm after attention", TensorDim::One,
               TensorDim::Model},
    TensorInfo{TensorRole::DeltaIn, TensorKind::Matrix, "the delta net's input matrix", TensorDim::DeltaIn,
               TensorDim::Model, ReadStage::BeforeKv},
    TensorInfo{TensorRole::DeltaGate, TensorKind::Matrix, "the delta net's gate", TensorDim::DeltaValues,
               TensorDim::Model, ReadStage::BeforeKv},
    TensorInfo{TensorRole::DeltaDecayIn, TensorKind::Matrix, "the delta net's decay matrix", TensorDim::DeltaHeads,
               TensorDim::Model, ReadStage::BeforeKv},
    TensorInfo{TensorRole::DeltaBeta, TensorKind::Matrix, "the delta net's beta matrix", TensorDim::DeltaBeta,
               TensorDim::Model, ReadStage::BeforeKv},
    TensorInfo{TensorRole::DeltaConv, TensorKind::Taps, "the delta net's convolution", TensorDim::DeltaConvolved,
               TensorDim::DeltaTaps},
    TensorInfo{TensorRole::DeltaDecay, TensorKind::Bias, "the delta net's rates of decay", TensorDim::One,
               TensorDim::DeltaHeads},
    TensorInfo{TensorRole::DeltaDecayBias, TensorKind::Bias, "the delta net's decay bias", TensorDim::One,
               TensorDim::DeltaHeads},
    TensorInfo{TensorRole::DeltaNorm, TensorKind::Bias, "the delta net's norm", TensorDim::One,
               TensorDim::DeltaHeadDim},
    TensorInfo{TensorRole::DeltaOut, TensorKind::Matrix, "the delta net's output", TensorDim::Model,
               TensorDim::DeltaValues, ReadStage::AfterKv},
    TensorInfo{TensorRole::FfnNorm, TensorKind::Norm, "the feed-forward norm", TensorDim::One, TensorDim::Model},
    TensorInfo{TensorRole::RouterNorm, TensorKind::Norm, "the router's norm", TensorDim::One, TensorDim::Model},
    TensorInfo{TensorRole::ExpertsNorm, TensorKind::Norm, "the experts' norm", TensorDim::One, TensorDim::Model},
    TensorInfo{TensorRole::Router, TensorKind::Router, "the router", TensorDim::Experts, TensorDim::Model},
    TensorInfo{TensorRole::RouterBias, TensorKind::Bias, "the router's bias", TensorDim::One, TensorDim::Experts},
    TensorInfo{TensorRole::ChoiceBias, TensorKind::Bias, "the bias of the choice of experts", TensorDim::One,
               TensorDim::Experts},
    TensorInfo{TensorRole::ExpertScales, TensorKind::Bias, "the scales of the experts' weights", TensorDim::One,
               TensorDim::Experts},
    TensorInfo{TensorRole::GateBias, TensorKind::Bias, "the experts' gate biases", TensorDim::Experts,
               TensorDim::ExpertFeedForward},
    TensorInfo{TensorRole::UpBias, TensorKind::Bias, "the experts' up biases", TensorDim::Experts,
               TensorDim::ExpertFeedForward},
    TensorInfo{TensorRole::DownBias, TensorKind::Bias, "the experts' down biases", TensorDim::Experts,
               TensorDim::Model},
    TensorInfo{TensorRole::Gate, TensorKind::Matrix, "the gate matrix", TensorDim::FeedForward, TensorDim::Model,
               ReadStage::AfterKv},
    TensorInfo{TensorRole::Up, TensorKind::Matrix, "the up matrix", TensorDim::FeedForward, TensorDim::Model,
               ReadStage::AfterKv},
    TensorInfo{TensorRole::Down, TensorKind::Matrix, "the feed-forward's down matrix", TensorDim::Model,
               TensorDim::FeedForward, ReadStage::AfterKv},
    TensorInfo{TensorRole::SharedGate, TensorKind::Router, "the shared expert's gate", TensorDim::Single,
               TensorDim::Model},
    TensorInfo{TensorRole::SharedPostNorm, TensorKind::Norm, "the norm after the shared expert", TensorDim::One,
               TensorDim::Model},
    TensorInfo{TensorRole::ExpertsPostNorm, TensorKind::Norm, "the norm after the experts", TensorDim::One,
               TensorDim::Model},
    TensorInfo{TensorRole::FfnPostNorm, TensorKind::Norm, "the norm after the feed-forward", TensorDim::One,
               TensorDim::Model},
    TensorInfo{TensorRole::OutputScale, TensorKind::Scale, "the layer's scale", TensorDim::One, TensorDim::One},
};
/// The tensors of an expert, in reading order.
inline constexpr std::array kExpertTensors{
    TensorInfo{TensorRole::Gate, TensorKind::Matrix, "an expert's gate matrix", TensorDim::ExpertFeedForward,
               TensorDim::Model, ReadStage::AfterKv},
    TensorInfo{TensorRole::Up, TensorKind::Matrix, "an expert's up matrix", TensorDim::ExpertFeedForward,
               TensorDim::Model, ReadStage::AfterKv},
    TensorInfo{TensorRole::Down, TensorKind::Matrix, "an expert's down matrix", TensorDim::Model,
               TensorDim::ExpertFeedForward, ReadStage::AfterKv},
};
/// Returns the index of a role in kExpertTensors.
[[nodiscard]] constexpr std::size_t expert_tensor(TensorRole role) {
    return static_cast<std::size_t>(role) - static_cast<std::size_t>(TensorRole::Gate);
}
inline constexpr std::array kModelTensors{
    TensorInfo{TensorRole::TokenEmbedding, TensorKind::Matrix, "the token embedding", TensorDim::Vocab,
               TensorDim::Model},
    TensorInfo{TensorRole::EmbeddingNorm, TensorKind::Norm, "the embedding norm", TensorDim::One, TensorDim::Model},
    TensorInfo{TensorRole::OutputNorm, TensorKind::Norm, "the output norm", TensorDim::One, TensorDim::Model},
    TensorInfo{TensorRole::LmHead, TensorKind::Matrix, "the LM head", TensorDim::Vocab, TensorDim::Model,
               ReadStage::LmHead},
};

/// Views of the tensors of an expert.
class ExpertWeights {
public:
    // [kExpertTensors]: of matrices that their file does not store row by row.
    std::array<StoredMatrix, kExpertTensors.size()> stored;

    [[nodiscard]] const ConstTensorView& operator[](TensorRole role) const { return views_.at(expert_tensor(role)); }
    [[nodiscard]] ConstTensorView& operator[](TensorRole role) { return views_.at(expert_tensor(role)); }

private:
    std::array<ConstTensorView, kExpertTensors.size()> views_;
};

/// Views of the tensors of a layer; those that the layer does not have are empty.
class LayerWeights {
public:
    std::vector<ExpertWeights> experts;  // [n_experts]
    // Of the experts' biases that their file does not store row by row.
    StoredMatrix stored_gate_bias, stored_up_bias;

    [[nodiscard]] const ConstTensorView& operator[](TensorRole role) const { return views_.at(index(role)); }
    [[nodiscard]] ConstTensorView& operator[](TensorRole role) { return views_.at(index(role)); }

private:
    static constexpr std::size_t index(TensorRole role) { return static_cast<std::size_t>(role); }
    std::array<ConstTensorView, kLayerRoles> views_;
};

/// Norms, biases and scales may come as F32, F16 or BF16; they are widened when the model is loaded onto a device. The
/// view of a tensor with a StoredMatrix has type and shape, but no data.
struct ModelWeights {
    ConstTensorView token_embedding;  // [vocab, d_model]
    ConstTensorView embedding_norm;   // [d_model]; empty: none
    std::vector<LayerWeights> layers;
    ConstTensorView output_norm;  // [d_model]
    ConstTensorView lm_head;      // [vocab, d_model]; equal to token_embedding if tied
    // The memory of norms that files do not have, because all their weights are one number; null: there are none.
    std::shared_ptr<const std::vector<std::vector<float>>> constants{};

    /// Returns the tensor of a role; `layer` in [0, n_layers), ignored for roles of the model.
    [[nodiscard]] const ConstTensorView& tensor(std::int64_t layer, TensorRole role,
                                                std::int32_t expert = kNoExpert) const;
    [[nodiscard]] ConstTensorView& tensor(std::int64_t layer, TensorRole role, std::int32_t expert = kNoExpert) {
        return const_cast<ConstTensorView&>(static_cast<const ModelWeights&>(*this).tensor(layer, role, expert));
    }
    /// Returns how the tensor is stored if its file does not have its rows; empty if tensor() is a view of them.
    [[nodiscard]] StoredMatrix stored(std::int64_t layer, TensorRole role, std::int32_t expert = kNoExpert) const;
};

/// Calls fn(info, layer, view) for every tensor that the model has: the token embedding, those of layer 0 and of its
/// experts, of layer 1, ..., the other ones of the model in the order of kModelTensors. `layer` is n_layers for tensors
/// of the model. The info of an expert's tensor is that of kExpertTensors. `Weights`: ModelWeights or const.
template <typename Weights, typename Fn>
void for_each_tensor(Weights& weights, const Fn& fn) {
    const auto n_layers = static_cast<std::int64_t>(weights.layers.size());
    const auto visit = [&](const TensorInfo& info, std::int64_t layer, std::int32_t expert = kNoExpert) {
        auto& view = weights.tensor(layer, info.role, expert);
        if (view.rank > 0) fn(info, layer, view);
    };
    visit(kModelTensors.front(), n_layers);
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        for (const TensorInfo& info : kLayerTensors) visit(info, layer);
        for (std::int32_t expert = 0; expert < std::ssize(weights.layers[layer].experts); ++expert)
            for (const TensorInfo& info : kExpertTensors) visit(info, layer, expert);
    }
    for (std::size_t i = 1; i < kModelTensors.size(); ++i) visit(kModelTensors[i], n_layers);
}

/// Calls fn(view) for every matrix that a pass multiplies by, in reading order: those of the layers and their experts,
/// the LM head. Routers are not among them.
template <typename Weights, typename Fn>
void for_each_pass_matrix(Weights& weights, const Fn& fn) {
    for_each_tensor(weights, [&](const TensorInfo& info, std::int64_t /*layer*/, auto& view) {
        if (info.is_matrix() && info.role != TensorRole::TokenEmbedding) fn(view);
    });
}

}  // namespace slipstream
