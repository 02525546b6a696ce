#include "runtime/model/weights.h"

#include "kernels/base/check.h"

namespace slipstream {

std::int64_t dim_size(TensorDim dim, const ModelConfig& config, std::int64_t layer) {
    switch (dim) {
        case TensorDim::One:
            return 1;
        case TensorDim::Model:
            return config.d_model;
        case TensorDim::Q:
            return config.attention(layer).q_cols();
        case TensorDim::Kv:
            return config.attention(layer).kv_cols();
        case TensorDim::QHeads:
            return config.attention(layer).n_q_heads;
        case TensorDim::QNorm:
            return config.attention(layer).norms_projections ? config.attention(layer).q_cols()
                                                             : config.attention(layer).head_dim;
        case TensorDim::KNorm:
            return config.attention(layer).norms_projections ? config.attention(layer).kv_cols()
                                                             : config.attention(layer).head_dim;
        case TensorDim::FeedForward:
            return config.layers[layer].feed_forward.d_ff;
        case TensorDim::Experts:
            return config.experts(layer).n_experts;
        case TensorDim::ExpertFeedForward:
            return config.experts(layer).d_ff;
        case TensorDim::Vocab:
            return config.vocab;
    }
    check_failed(__FILE__, __LINE__, "dim", "no such dimension");
}

const ConstTensorView& ModelWeights::tensor(std::int64_t layer, TensorRole role, std::int32_t expert) const {
    switch (role) {
        case TensorRole::TokenEmbedding:
            return token_embedding;
        case TensorRole::EmbeddingNorm:
            return embedding_norm;
        case TensorRole::OutputNorm:
            return output_norm;
        case TensorRole::LmHead:
            return lm_head;
        default:
            CHECK(layer >= 0 && layer < static_cast<std::int64_t>(layers.size()), "layer {} of {}", layer,
                  layers.size());
            return expert == kNoExpert ? layers[layer][role] : layers[layer].experts.at(expert)[role];
    }
}

StoredMatrix ModelWeights::stored(std::int64_t layer, TensorRole role, std::int32_t expert) const {
    if (expert != kNoExpert) return layers.at(layer).experts.at(expert).stored.at(expert_tensor(role));
    if (role == TensorRole::GateBias) return layers.at(layer).stored_gate_bias;
    if (role == TensorRole::UpBias) return layers.at(layer).stored_up_bias;
    return {};
}

}  // namespace slipstream
