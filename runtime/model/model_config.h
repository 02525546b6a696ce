// The description of a model: sizes, and what each layer computes. Read from config.json or GGUF keys
// (runtime/formats), and checked here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/dtype.h"
#include "kernels/delta_net.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "runtime/text/token_id.h"

namespace slipstream {

enum class RopeScalingKind : std::uint8_t { None, Linear, Dynamic, Llama3, Yarn, LongRope };
[[nodiscard]] std::string_view rope_scaling_name(RopeScalingKind kind);

/// Parameters of a RoPE scaling as files give them; rope.h computes frequencies for a context length from them.
struct RopeScaling {
    RopeScalingKind kind = RopeScalingKind::None;
    double factor = 1.0;
    std::int64_t original_context = 0;       // 0: not given
    double low_freq_factor = 1.0;            // llama3
    double high_freq_factor = 4.0;           // llama3
    double beta_fast = 32.0;                 // yarn
    double beta_slow = 1.0;                  // yarn
    bool rounds_bounds = true;               // yarn: the two pairs between which it blends are whole numbers
    std::optional<double> attention_factor;  // yarn, longrope: overrides the formula
    double mscale = 0.0;                     // parameter of yarn; 0: not given
    double mscale_all_dim = 0.0;
    std::vector<double> short_factors;  // longrope, [n_rotated / 2]
    std::vector<double> long_factors;
    // GGUF files with llama3 scaling have the computed divisors instead of the parameters ("rope_freqs.weight").
    std::vector<double> frequency_divisors;  // [n_rotated / 2] or empty
};

/// Rotary embedding of some layers.
struct RopeConfig {
    double theta = 10000.0;
    std::int64_t n_rotated = 0;      // elements of a head that rotate, <= head_dim
    std::int64_t n_fixed_pairs = 0;  // last ones of the n_rotated / 2 pairs, whose angle is always 0
    RopeScaling scaling{};
    // Growth of queries: after its rotation, a query at position p is multiplied by
    // 1 + query_growth * ln(1 + floor(p / query_growth_period)).
    double query_growth = 0.0;             // 0: none; else all elements of a head rotate
    std::int64_t query_growth_period = 0;  // positions

    /// Returns the factor by which a query at `position` is multiplied after its rotation; 1 if queries do not grow.
    [[nodiscard]] double query_factor(std::int64_t position) const {
        if (query_growth == 0.0) return 1.0;
        return 1.0 + query_growth * std::log1p(static_cast<double>(position / query_growth_period));
    }
};

inline constexpr std::size_t kNoRope = SIZE_MAX;  // AttentionConfig::rope of layers that do not encode positions

/// First half of a layer: grouped-query attention.
struct AttentionConfig {
    std::int64_t n_q_heads = 0;
    std::int64_t n_kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t window = 0;    // sliding window: a query sees the last `window` positions, its own included; 0: all
    std::size_t rope = 0;       // index in ModelConfig::ropes, or kNoRope
    double scale_dim = 0.0;     // products of queries and keys are multiplied by scale_dim^-0.5; 0: head_dim
    float softcap = 0.0F;       // above 0: a scaled product s becomes softcap * tanh(s / softcap)
    bool norms_values = false;  // each head of V is normed, without weights
    bool values_from_keys = false;  // V is K before K's norm and rotation: there is no V matrix; only with norms_values
    bool norms_projections = false;  // the norms of queries and keys are over all heads together, not over each
    // The result is multiplied by the sigmoid of a gate before the output matrix. The gate has a matrix of its own
    // (AttnGate), or its rows are in the query matrix: of each head its query, then its gate.
    bool output_gate = false;
    bool gate_in_queries = false;

    [[nodiscard]] bool has_gate() const { return output_gate || gate_in_queries; }
    [[nodiscard]] std::int64_t q_cols() const { return n_q_heads * head_dim; }
    [[nodiscard]] std::int64_t kv_cols() const { return n_kv_heads * head_dim; }
    [[nodiscard]] std::int64_t queries_per_kv_head() const { return n_q_heads / n_kv_heads; }
    /// Returns the factor of the products of queries and keys before the softmax.
    [[nodiscard]] float scale() const {
        return static_cast<float>(1.0 / std::sqrt(scale_dim > 0.0 ? scale_dim : static_cast<double>(head_dim)));
    }
    friend bool operator==(const AttentionConfig&, const AttentionConfig&) = default;
};

/// First half of a layer: a gated delta net (kernels/delta_net.h).
struct DeltaNetConfig {
    DeltaNetShape shape{};
    /// The tensor of DeltaDecay has logarithms: the rates are -exp of them. GGUF files have the rates.
    bool log_decay = false;
    /// DeltaIn has the rows of DeltaGate, too: of each key head its query, its key, its values, their gates.
    bool gate_in_inputs = false;
    /// DeltaBeta has the rows of DeltaDecayIn, too: of each key head those for beta of its values, those for decay.
    bool decay_in_beta = false;
    friend bool operator==(const DeltaNetConfig&, const DeltaNetConfig&) = default;
};

/// Experts of a layer: gated feed-forwards of which a router chooses some for each token.
struct ExpertsConfig {
    std::int64_t n_experts = 0;  // 0: the layer has none
    std::int64_t n_chosen = 0;   // for each token
    std::int64_t d_ff = 0;       // of one expert
    ExpertWeighting weighting{};
    float router_norm_scale = 1.0F;  // multiplies the weights of the norm of the router's input when they are loaded
    [[nodiscard]] bool empty() const { return n_experts == 0; }
    friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

/// Second half of a layer: a gated feed-forward that all tokens pass, or experts, or both (a shared expert). Their
/// results are added.
struct FeedForwardConfig {
    std::int64_t d_ff = 0;  // of the part that all tokens pass; 0: there is none, the layer has experts alone
    GatedActivation activation = GatedActivation::Silu;
    float activation_limit = 0.0F;  // GatedActivationArgs::limit
    ExpertsConfig experts{};
    friend bool operator==(const FeedForwardConfig&, const FeedForwardConfig&) = default;
};

struct LayerConfig {
    std::variant<AttentionConfig, DeltaNetConfig> mixer;  // first half
    FeedForwardConfig feed_forward;                       // second half

    [[nodiscard]] bool has_attention() const { return std::holds_alternative<AttentionConfig>(mixer); }
    [[nodiscard]] const AttentionConfig& attention() const { return std::get<AttentionConfig>(mixer); }
    [[nodiscard]] AttentionConfig& attention() { return std::get<AttentionConfig>(mixer); }
    [[nodiscard]] const DeltaNetConfig& delta_net() const { return std::get<DeltaNetConfig>(mixer); }
    /// Returns the sliding window of the layer's attention; 0 if it has none, or no attention.
    [[nodiscard]] std::int64_t window() const { return has_attention() ? attention().window : 0; }
};

struct ModelConfig {
    std::string_view family;  // "llama", "qwen3": of static storage
    std::string name;         // name in the file; may be empty
    std::int64_t d_model = 0;
    std::int64_t vocab = 0;
    std::int64_t context_tokens = 0;  // context that the model was trained for
    float rms_eps = 1e-5F;
    float post_norm_eps = 0.0F;             // eps of the norms after attention and feed-forward; 0: rms_eps
    float norm_offset = 0.0F;               // added to the weights of all norms when they are loaded
    bool offsets_layer_norms_only = false;  // norm_offset is for norms of d_model elements in layers, not for others
    float embedding_scale = 1.0F;           // multiplies the rows of the token embedding
    float residual_scale = 1.0F;  // multiplies the result of half a layer before it is added to the residual stream
    float logit_scale = 1.0F;     // multiplies logits, before logit_softcap; the output norm's weights get it at load
    float logit_softcap = 0.0F;   // above 0: a logit z becomes logit_softcap * tanh(z / logit_softcap)
    RopeLayout rope_layout = RopeLayout::Half;
    std::vector<RopeConfig> ropes{RopeConfig{}};
    std::vector<LayerConfig> layers;
    bool tied_embeddings = false;
    DType kv_dtype = DType::F16;  // what `--kv-type auto` means: the model's own float type, f16 for quantised files

    [[nodiscard]] std::int64_t n_layers() const { return std::ssize(layers); }
    /// Returns into how many equal groups of whole kv heads every layer can be divided: the number of kv heads if it is
    /// the same in all layers.
    [[nodiscard]] std::int64_t n_kv_groups() const;
    [[nodiscard]] const AttentionConfig& attention(std::int64_t layer) const { return layers[layer].attention(); }
    [[nodiscard]] const DeltaNetConfig& delta_net(std::int64_t layer) const { return layers[layer].delta_net(); }
    /// Returns whether layers have a recurrent state instead of KV.
    [[nodiscard]] bool is_recurrent() const {
        return std::ranges::any_of(layers, [](const LayerConfig& layer) { return !layer.has_attention(); });
    }
    /// Returns the first layer that has attention; CHECKs that there is one.
    [[nodiscard]] std::int64_t first_attention_layer() const;
    [[nodiscard]] const AttentionConfig& first_attention() const { return attention(first_attention_layer()); }
    [[nodiscard]] const ExpertsConfig& experts(std::int64_t layer) const { return layers[layer].feed_forward.experts; }
    [[nodiscard]] bool has_experts() const {
        return std::ranges::any_of(layers, [](const LayerConfig& l) { return !l.feed_forward.experts.empty(); });
    }
    [[nodiscard]] std::int64_t window(std::int64_t layer) const { return layers[layer].window(); }
    /// Returns what a layer keeps of a text: KV, or the sizes of a recurrent state.
    [[nodiscard]] KvLayout kv_layout(std::int64_t layer, DType dtype) const;
    /// Returns [n_layers()]: the layout of each layer's KV.
    [[nodiscard]] std::vector<KvLayout> kv_layouts(DType dtype) const;
    /// Returns the largest size(layer) of all layers; 0 if there are none.
    template <typename Size>
    [[nodiscard]] std::int64_t largest(const Size& size) const {
        std::int64_t most = 0;
        for (const LayerConfig& layer : layers) most = std::max<std::int64_t>(most, size(layer));
        return most;
    }
    [[nodiscard]] std::int64_t max_q_cols() const {
        return largest([](const LayerConfig& layer) { return layer.has_attention() ? layer.attention().q_cols() : 0; });
    }
    [[nodiscard]] std::int64_t max_kv_cols() const {
        return largest(
            [](const LayerConfig& layer) { return layer.has_attention() ? layer.attention().kv_cols() : 0; });
    }
    /// Returns the most rows of a query matrix.
    [[nodiscard]] std::int64_t max_q_rows() const {
        return largest([](const LayerConfig& layer) {
            if (!layer.has_attention()) return std::int64_t{0};
            return layer.attention().q_cols() * (layer.attention().gate_in_queries ? 2 : 1);
        });
    }
    /// Return the most convolved columns, and columns of values, of a delta net; 0 if no layer is one.
    [[nodiscard]] std::int64_t max_delta_cols() const {
        return largest([](const LayerConfig& layer) {
            return layer.has_attention() ? 0 : layer.delta_net().shape.convolved_cols();
        });
    }
    [[nodiscard]] std::int64_t max_delta_values() const {
        return largest(
            [](const LayerConfig& layer) { return layer.has_attention() ? 0 : layer.delta_net().shape.value_cols(); });
    }
    /// Returns the width of the widest feed-forward: of the part that all tokens pass, or of one expert.
    [[nodiscard]] std::int64_t max_d_ff() const {
        return largest([](const LayerConfig& layer) {
            return std::max(layer.feed_forward.d_ff, layer.feed_forward.experts.d_ff);
        });
    }
};

/// Returns the sliding window of each layer, [n_layers]; empty if no layer has one.
[[nodiscard]] std::vector<std::int64_t> layer_windows(const ModelConfig& config);

/// Throws FormatError unless `softcap` is 0 (none) or a number that kernels can divide by in float.
void check_softcap(std::string_view what, double softcap);
/// Throws FormatError unless `scale` is a number that values can be multiplied by in float.
void check_scale(std::string_view what, double scale);
/// Throws FormatError unless `n_layers` is a possible number of layers. Call it before ModelConfig::layers gets that
/// many.
void check_layer_count(std::int64_t n_layers);

/// Throws FormatError with the name of a field that is absent, absurd (not positive or too large, alone or together
/// with others), or contradicts others (query heads no multiple of kv heads, odd n_rotated, ...). Afterwards every
/// number of elements or bytes that follows from the sizes is below 2^60: weights, and KV of up to 2^28 positions.
void validate(const ModelConfig& config);

/// Defaults that the model's files give for generation (generation_config.json, GGUF end tokens).
struct GenerationDefaults {
    std::vector<TokenId> end_tokens;  // any of these ends a text
    std::optional<double> temperature;
    std::optional<std::int64_t> top_k;
    std::optional<double> top_p;
    std::optional<double> min_p;
    std::optional<double> repeat_penalty;
    std::optional<bool> do_sample;           // false = greedy
    std::vector<TokenId> suppressed_tokens;  // never generated
};

}  // namespace slipstream
