// Frequencies of a rotary embedding: plain, linear, dynamic, llama3, yarn and longrope scaling, and the computed
// divisors of GGUF files. kernels/elementwise.h rotates. Invariant: the frequencies follow from the context length
// chosen at load and never from the length of the text, so a cached key stays valid.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

/// Pair i at position p is rotated by p * inverse_frequency[i] radians; its cosine and sine are multiplied by
/// magnitude.
struct RopeFrequencies {
    std::vector<double> inverse_frequency;  // [n_rotated / 2], radians per position
    float magnitude = 1.0F;
    friend bool operator==(const RopeFrequencies&, const RopeFrequencies&) = default;
};

/// Returns the frequencies of `rope` for a context of `context_tokens` (>= 1, CHECKed), in a model that was trained for
/// `trained_context` tokens. With d = n_rotated, b = theta, s = scaling.factor, L = scaling.original_context
/// (trained_context if not given) and f_i = b^(-2i/d):
///
/// - none: f_i.
/// - linear: f_i / s (Chen et al. 2023, arXiv 2306.15595, section 2.3).
/// - dynamic: b' = b * (s * C / L - (s - 1))^(d / (d - 2)) in the place of b, C = max(context_tokens, L). This is the
///   "dynamic NTK" of YaRN (arXiv 2309.00071, section 3.3); the paper lets C follow the text, here it is fixed at load.
/// - llama3: with wavelength w = 2 pi / f_i: f_i where w < L / high_freq_factor, f_i / s where w > L / low_freq_factor,
///   between them (1 - m) f_i / s + m f_i, m = (L / w - low) / (high - low) (apply_scaling in the Llama 3.1 release).
/// - yarn: (1 - r) f_i + r f_i / s, r = clamp((i - lo) / (hi - lo), 0, 1), lo and hi the pairs that turn beta_fast and
///   beta_slow times within L, rounded down and up unless rounds_bounds is false (arXiv 2309.00071, section 3.2).
///   Magnitude: attention_factor if given, else g(mscale) / g(mscale_all_dim) where both are, else g(1), g(k) = 0.1 k
///   ln s + 1 (section 3.4).
/// - longrope: f_i / short_factors[i], or long_factors where context_tokens > L (LongRoPE, arXiv 2402.13753, section
///   3.3). Magnitude, after Phi-3's published code: attention_factor if given, else sqrt(1 + ln S / ln L), S = s, or
///   trained_context / L if s is not above 1; 1 if S <= 1.
///
/// The last n_fixed_pairs pairs have frequency 0. frequency_divisors divide the result; with them llama3 means the
/// plain f_i, since they are its finished form. The formulas agree with transformers' modeling_rope_utils.py (5.23)
/// except that dynamic uses original_context where a file gives one. Computed in double. Throws FormatError where the
/// parameters make no finite frequencies.
[[nodiscard]] RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t trained_context,
                                               std::int64_t context_tokens);

/// Returns the frequencies of each rotary embedding of a model, [config.ropes].
[[nodiscard]] std::vector<RopeFrequencies> rope_frequencies(const ModelConfig& config, std::int64_t context_tokens);

/// Returns a line for `inspect`: "none", "linear x4", "yarn x4 from 32768, fixed at 131072", "longrope, long factors
/// above 4096, fixed at 131072".
[[nodiscard]] std::string describe_rope(const RopeConfig& rope, std::int64_t trained_context,
                                        std::int64_t context_tokens);

}  // namespace slipstream
