#include "runtime/model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

/// Context length before scaling: L of the header.
std::int64_t original_context(const ModelConfig& config) {
    return config.rope_scaling.original_context > 0 ? config.rope_scaling.original_context : config.context_tokens;
}

/// base^(-2i/d), [n_rotated / 2].
std::vector<double> plain_frequencies(std::int64_t n_rotated, double base) {
    std::vector<double> frequencies(n_rotated / 2);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(n_rotated));
    return frequencies;
}

double dynamic_base(const ModelConfig& config, std::int64_t context_tokens) {
    // A single pair turns by 1 whatever the base is, and the exponent below has no value.
    if (config.n_rotated == 2) return config.rope_theta;
    const auto original = static_cast<double>(original_context(config));
    const double factor = config.rope_scaling.factor;
    const double context = std::max(static_cast<double>(context_tokens), original);
    const auto d = static_cast<double>(config.n_rotated);
    return config.rope_theta * std::pow(factor * context / original - (factor - 1.0), d / (d - 2.0));
}

void scale_llama3(const ModelConfig& config, std::vector<double>& frequencies) {
    const RopeScaling& scaling = config.rope_scaling;
    if (!(scaling.low_freq_factor > 0.0 && scaling.high_freq_factor > scaling.low_freq_factor))
        throw FormatError(
            fmt::format("llama3 rope scaling with low_freq_factor {} and high_freq_factor {}; 0 < low < high "
                        "is needed",
                        scaling.low_freq_factor, scaling.high_freq_factor));
    const auto original = static_cast<double>(original_context(config));
    for (double& frequency : frequencies) {
        const double turns = original * frequency / (2.0 * std::numbers::pi);  // L / w
        const double keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        const double m = std::clamp(keep, 0.0, 1.0);
        frequency *= (1.0 - m) / scaling.factor + m;
    }
}

/// The (fractional) pair that turns `n_turns` times within the original context.
double yarn_pair(const ModelConfig& config, double n_turns) {
    const auto original = static_cast<double>(original_context(config));
    return static_cast<double>(config.n_rotated) * std::log(original / (n_turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(config.rope_theta));
}

void scale_yarn(const ModelConfig& config, std::vector<double>& frequencies) {
    const RopeScaling& scaling = config.rope_scaling;
    if (!(scaling.beta_fast > 0.0 && scaling.beta_slow > 0.0 && config.rope_theta > 1.0))
        throw FormatError(
            fmt::format("yarn rope scaling with beta_fast {}, beta_slow {}, theta {}; betas above 0 and "
                        "theta above 1 are needed",
                        scaling.beta_fast, scaling.beta_slow, config.rope_theta));
    const double low = std::max(std::floor(yarn_pair(config, scaling.beta_fast)), 0.0);
    double high = std::min(std::ceil(yarn_pair(config, scaling.beta_slow)), static_cast<double>(config.n_rotated - 1));
    if (high == low) high += 0.001;  // a step, not a division by zero; the value is transformers' own
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double r = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequencies[i] *= (1.0 - r) + r / scaling.factor;
    }
}

double yarn_magnitude(const RopeScaling& scaling) {
    if (scaling.attention_factor) return *scaling.attention_factor;
    const auto grown = [&](double k) { return scaling.factor <= 1.0 ? 1.0 : 0.1 * k * std::log(scaling.factor) + 1.0; };
    if (scaling.mscale != 0.0 && scaling.mscale_all_dim != 0.0)
        return grown(scaling.mscale) / grown(scaling.mscale_all_dim);
    return grown(1.0);
}

/// How far longrope stretches: the factor, or where the file gives none the ratio of its two context lengths.
double longrope_stretch(const ModelConfig& config) {
    if (config.rope_scaling.factor > 1.0) return config.rope_scaling.factor;
    return static_cast<double>(config.context_tokens) / static_cast<double>(original_context(config));
}

double longrope_magnitude(const ModelConfig& config) {
    if (config.rope_scaling.attention_factor) return *config.rope_scaling.attention_factor;
    const double stretch = longrope_stretch(config);
    if (stretch <= 1.0) return 1.0;
    return std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(original_context(config))));
}

void divide(std::vector<double>& frequencies, const std::vector<double>& divisors) {
    if (divisors.size() != frequencies.size())
        throw FormatError(fmt::format("{} rope factors for {} frequencies", divisors.size(), frequencies.size()));
    for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors[i];
}

bool uses_long_factors(const ModelConfig& config, std::int64_t context_tokens) {
    return context_tokens > original_context(config);
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t context_tokens) {
    CHECK(context_tokens >= 1, "rope for a context of {} tokens", context_tokens);
    const RopeScaling& scaling = config.rope_scaling;
    RopeFrequencies result;
    double magnitude = 1.0;
    std::vector<double>& frequencies = result.inverse_frequency;
    const double base =
        scaling.kind == RopeScalingKind::Dynamic ? dynamic_base(config, context_tokens) : config.rope_theta;
    frequencies = plain_frequencies(config.n_rotated, base);
    switch (scaling.kind) {
        case RopeScalingKind::None:
        case RopeScalingKind::Dynamic:
            break;
        case RopeScalingKind::Linear:
            for (double& frequency : frequencies) frequency /= scaling.factor;
            break;
        case RopeScalingKind::Llama3:
            if (scaling.frequency_divisors.empty()) scale_llama3(config, frequencies);
            break;
        case RopeScalingKind::Yarn:
            scale_yarn(config, frequencies);
            magnitude = yarn_magnitude(scaling);
            break;
        case RopeScalingKind::LongRope:
            divide(frequencies,
                   uses_long_factors(config, context_tokens) ? scaling.long_factors : scaling.short_factors);
            magnitude = longrope_magnitude(config);
            break;
    }
    if (!scaling.frequency_divisors.empty()) divide(frequencies, scaling.frequency_divisors);
    result.magnitude = static_cast<float>(magnitude);
    const bool finite = std::ranges::all_of(frequencies, [](double f) { return std::isfinite(f) && f >= 0.0; });
    if (!finite || !std::isfinite(result.magnitude) || result.magnitude <= 0.0F)
        throw FormatError(
            fmt::format("{} rope scaling (factor {}, original context {}, magnitude {}) gives no usable "
                        "frequencies; check the model's rope_scaling",
                        rope_scaling_name(scaling.kind), scaling.factor, original_context(config), magnitude));
    return result;
}

std::string describe_rope(const ModelConfig& config, std::int64_t context_tokens) {
    const RopeScaling& scaling = config.rope_scaling;
    const std::int64_t original = original_context(config);
    std::string text(rope_scaling_name(scaling.kind));
    switch (scaling.kind) {
        case RopeScalingKind::None:
            break;
        case RopeScalingKind::Linear:
            text += fmt::format(" x{:g}", scaling.factor);
            break;
        case RopeScalingKind::Dynamic:
            text += fmt::format(" x{:g} from {}, fixed at {} (theta {:g} -> {:g})", scaling.factor, original,
                                context_tokens, config.rope_theta, dynamic_base(config, context_tokens));
            break;
        case RopeScalingKind::Llama3:
            if (scaling.frequency_divisors.empty()) text += fmt::format(" x{:g} from {}", scaling.factor, original);
            break;
        case RopeScalingKind::Yarn:
            text += fmt::format(" x{:g} from {}, fixed at {}", scaling.factor, original, context_tokens);
            break;
        case RopeScalingKind::LongRope:
            text +=
                fmt::format(", {} {}, fixed at {}",
                            uses_long_factors(config, context_tokens) ? "long factors above" : "short factors up to",
                            original, context_tokens);
            break;
    }
    if (!scaling.frequency_divisors.empty())
        text += fmt::format(", {} divisors from the file", scaling.frequency_divisors.size());
    return text;
}

}  // namespace slipstream
