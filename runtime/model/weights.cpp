#include "runtime/model/weights.h"

#include "kernels/base/check.h"

namespace slipstream {

namespace {

/// What of a layer a tensor belongs to: a layer without it has no such tensor. EveryLayer: each layer can have it.
enum class Owner : std::uint8_t { EveryLayer, Attention, DeltaNet, Experts };

Owner owner_of(TensorRole role) {
    using enum TensorRole;
    switch (role) {
        case Q:
        case QBias:
        case K:
        case KBias:
        case V:
        case VBias:
        case Sinks:
        case AttnGate:
        case QNorm:
        case KNorm:
        case AttnOut:
        case AttnOutBias:
            return Owner::Attention;
        case DeltaIn:
        case DeltaGate:
        case DeltaDecayIn:
        case DeltaBeta:
        case DeltaConv:
        case DeltaDecay:
        case DeltaDecayBias:
        case DeltaNorm:
        case DeltaOut:
            return Owner::DeltaNet;
        case RouterNorm:
        case ExpertsNorm:
        case Router:
        case RouterBias:
        case ChoiceBias:
        case ExpertScales:
        case GateBias:
        case UpBias:
        case DownBias:
        case SharedGate:
        case SharedPostNorm:
        case ExpertsPostNorm:
            return Owner::Experts;
        default:
            return Owner::EveryLayer;
    }
}

}  // namespace

bool can_have(const LayerConfig& layer, TensorRole role) {
    switch (owner_of(role)) {
        case Owner::Experts:
            return !layer.feed_forward.experts.empty();
        case Owner::Attention:
            return layer.has_attention();
        case Owner::DeltaNet:
            if (layer.has_attention()) return false;
            if (role == TensorRole::DeltaGate) return !layer.delta_net().gate_in_inputs;
            if (role == TensorRole::DeltaDecayIn) return !layer.delta_net().decay_in_beta;
            return true;
        case Owner::EveryLayer:
            break;
    }
    return true;
}

std::int64_t dim_size(TensorDim dim, const ModelConfig& config, std::int64_t layer) {
    switch (dim) {
        case TensorDim::One:
            return 1;
        case TensorDim::Model:
            return config.d_model;
        case TensorDim::Q:
            return config.attention(layer).q_cols();
        case TensorDim::QRows:
            return config.attention(layer).q_cols() * (config.attention(layer).gate_in_queries ? 2 : 1);
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
        case TensorDim::Single:
            return 1;
        case TensorDim::DeltaIn: {
            const DeltaNetConfig& net = config.delta_net(layer);
            return net.shape.convolved_cols() + (net.gate_in_inputs ? net.shape.value_cols() : 0);
        }
        case TensorDim::DeltaBeta:
            return config.delta_net(layer).shape.n_value_heads * (config.delta_net(layer).decay_in_beta ? 2 : 1);
        case TensorDim::DeltaConvolved:
            return config.delta_net(layer).shape.convolved_cols();
        case TensorDim::DeltaTaps:
            return config.delta_net(layer).shape.conv_width;
        case TensorDim::DeltaValues:
            return config.delta_net(layer).shape.value_cols();
        case TensorDim::DeltaHeads:
            return config.delta_net(layer).shape.n_value_heads;
        case TensorDim::DeltaHeadDim:
            return config.delta_net(layer).shape.value_dim;
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
