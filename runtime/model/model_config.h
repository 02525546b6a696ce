// What a model is, in numbers: read out of config.json or GGUF keys, checked, and nothing of where its bytes lie.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/elementwise.h"
#include "runtime/text/token_id.h"

namespace slipstream {

enum class Architecture : std::uint8_t { Llama, Mistral, Qwen2, Qwen3, Phi3 };
[[nodiscard]] std::string_view architecture_name(Architecture architecture);

enum class RopeScalingKind : std::uint8_t { None, Linear, Dynamic, Llama3, Yarn, LongRope };
[[nodiscard]] std::string_view rope_scaling_name(RopeScalingKind kind);

/// Parameters of a rope scaling as the files give them; rope.h turns them into frequencies for a context length.
struct RopeScaling {
    RopeScalingKind kind = RopeScalingKind::None;
    double factor = 1.0;
    std::int64_t original_context = 0;       // 0: not given
    double low_freq_factor = 1.0;            // llama3
    double high_freq_factor = 4.0;           // llama3
    double beta_fast = 32.0;                 // yarn
    double beta_slow = 1.0;                  // yarn
    std::optional<double> attention_factor;  // yarn, longrope: overrides the formula
    double mscale = 0.0;                     // yarn: 0 = not given
    double mscale_all_dim = 0.0;
    std::vector<double> short_factors;  // longrope, [n_rotated / 2]
    std::vector<double> long_factors;
    // GGUF files of llama3 scaling carry the finished divisors instead of the parameters ("rope_freqs.weight").
    std::vector<double> frequency_divisors;  // [n_rotated / 2] or empty
};

struct ModelConfig {
    Architecture architecture = Architecture::Llama;
    std::string name;  // the file's own name for itself, as it stands there; may be empty
    std::int64_t d_model = 0;
    std::int64_t d_ff = 0;
    std::int64_t n_layers = 0;
    std::int64_t n_q_heads = 0;
    std::int64_t n_kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t vocab = 0;
    std::int64_t context_tokens = 0;  // what the model says it was made for
    float rms_eps = 1e-5F;
    double rope_theta = 10000.0;
    std::int64_t n_rotated = 0;  // elements of a head that rotate, <= head_dim
    RopeLayout rope_layout = RopeLayout::Half;
    RopeScaling rope_scaling;
    // Sliding windows: [n_layers], 0 = the layer sees everything. Empty = no layer has one.
    std::vector<std::int64_t> layer_window;
    bool tied_embeddings = false;
    DType kv_dtype = DType::F16;  // what `--kv-type auto` means: the model's own float type, f16 for quantised files

    [[nodiscard]] std::int64_t window(std::int64_t layer) const {
        return layer_window.empty() ? 0 : layer_window[layer];
    }
    /// What a query's products with keys are multiplied by before the softmax.
    [[nodiscard]] float attention_scale() const {
        return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    }
};

/// Throws FormatError naming the field where a size is absent, absurd (non-positive or too large, alone or together
/// with others), or does not fit the others (query heads no multiple of kv heads, odd n_rotated, ...). Every number of
/// elements or bytes that follows from the sizes is then below 2^60: weights, and KV of up to 2^28 positions.
void validate(const ModelConfig& config);

/// Defaults that the model's files give for generation (generation_config.json, GGUF end tokens).
struct GenerationDefaults {
    std::vector<TokenId> end_tokens;  // any of these ends a text
    std::optional<double> temperature;
    std::optional<std::int64_t> top_k;
    std::optional<double> top_p;
    std::optional<double> min_p;
    std::optional<double> repeat_penalty;
    std::optional<bool> do_sample;  // false = greedy
};

}  // namespace slipstream
