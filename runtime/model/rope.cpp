#include "runtime/model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

/// A rotary embedding in a model that was trained for a context.
struct Rope {
    const RopeConfig& config;
    std::int64_t trained_context;

    /// Returns the context length before scaling: L in rope.h.
    [[nodiscard]] std::int64_t original_context() const {
        return config.scaling.original_context > 0 ? config.scaling.original_context : trained_context;
    }
};

/// Returns base^(-2i/d), [n_rotated / 2].
std::vector<double> plain_frequencies(std::int64_t n_rotated, double base) {
    std::vector<double> frequencies(n_rotated / 2);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(n_rotated));
    return frequencies;
}

double dynamic_base(const Rope& rope, std::int64_t context_tokens) {
    // A single pair has frequency 1 for any base, and the exponent d / (d - 2) has no value.
    if (rope.config.n_rotated == 2) return rope.config.theta;
    const auto original = static_cast<double>(rope.original_context());
    const double factor = rope.config.scaling.factor;
    const double context = std::max(static_cast<double>(context_tokens), original);
    const auto d = static_cast<double>(rope.config.n_rotated);
    return rope.config.theta * std::pow(factor * context / original - (factor - 1.0), d / (d - 2.0));
}

void scale_llama3(const Rope& rope, std::vector<double>& frequencies) {
    const RopeScaling& scaling = rope.config.scaling;
    if (!(scaling.low_freq_factor > 0.0 && scaling.high_freq_factor > scaling.low_freq_factor))
        throw FormatError(
            fmt::format("llama3 rope scaling with low_freq_factor {} and high_freq_factor {}; 0 < low < high "
                        "is needed",
                        scaling.low_freq_factor, scaling.high_freq_factor));
    const auto original = static_cast<double>(rope.original_context());
    for (double& frequency : frequencies) {
        const double turns = original * frequency / (2.0 * std::numbers::pi);  // L / w
        const double keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        const double m = std::clamp(keep, 0.0, 1.0);
        frequency *= (1.0 - m) / scaling.factor + m;
    }
}

/// Returns the (fractional) index of the pair that turns `n_turns` times within the original context.
double yarn_pair(const Rope& rope, double n_turns) {
    const auto original = static_cast<double>(rope.original_context());
    return static_cast<double>(rope.config.n_rotated) * std::log(original / (n_turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.config.theta));
}

void scale_yarn(const Rope& rope, std::vector<double>& frequencies) {
    const RopeScaling& scaling = rope.config.scaling;
    if (!(scaling.beta_fast > 0.0 && scaling.beta_slow > 0.0 && rope.config.theta > 1.0))
        throw FormatError(
            fmt::format("yarn rope scaling with beta_fast {}, beta_slow {}, theta {}; betas above 0 and "
                        "theta above 1 are needed",
                        scaling.beta_fast, scaling.beta_slow, rope.config.theta));
    const double first = yarn_pair(rope, scaling.beta_fast);
    const double last = yarn_pair(rope, scaling.beta_slow);
    const double low = std::max(scaling.rounds_bounds ? std::floor(first) : first, 0.0);
    double high =
        std::min(scaling.rounds_bounds ? std::ceil(last) : last, static_cast<double>(rope.config.n_rotated - 1));
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

/// Returns by how much longrope stretches the context: the factor if it is above 1, else the ratio of the trained
/// context to the original one.
double longrope_stretch(const Rope& rope) {
    if (rope.config.scaling.factor > 1.0) return rope.config.scaling.factor;
    return static_cast<double>(rope.trained_context) / static_cast<double>(rope.original_context());
}

double longrope_magnitude(const Rope& rope) {
    if (rope.config.scaling.attention_factor) return *rope.config.scaling.attention_factor;
    const double stretch = longrope_stretch(rope);
    if (stretch <= 1.0) return 1.0;
    return std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(rope.original_context())));
}

void divide(std::vector<double>& frequencies, const std::vector<double>& divisors) {
    if (divisors.size() != frequencies.size())
        throw FormatError(fmt::format("{} rope factors for {} frequencies", divisors.size(), frequencies.size()));
    for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors[i];
}

bool uses_long_factors(const Rope& rope, std::int64_t context_tokens) {
    return context_tokens > rope.original_context();
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t trained_context, std::int64_t context_tokens) {
    const Rope rope{config, trained_context};
    CHECK(context_tokens >= 1, "rope for a context of {} tokens", context_tokens);
    const RopeScaling& scaling = rope.config.scaling;
    RopeFrequencies result;
    double magnitude = 1.0;
    std::vector<double>& frequencies = result.inverse_frequency;
    const double base =
        scaling.kind == RopeScalingKind::Dynamic ? dynamic_base(rope, context_tokens) : rope.config.theta;
    frequencies = plain_frequencies(rope.config.n_rotated, base);
    switch (scaling.kind) {
        case RopeScalingKind::None:
        case RopeScalingKind::Dynamic:
            break;
        case RopeScalingKind::Linear:
            for (double& frequency : frequencies) frequency /= scaling.factor;
            break;
        case RopeScalingKind::Llama3:
            if (scaling.frequency_divisors.empty()) scale_llama3(rope, frequencies);
            break;
        case RopeScalingKind::Yarn:
            scale_yarn(rope, frequencies);
            magnitude = yarn_magnitude(scaling);
            break;
        case RopeScalingKind::LongRope:
            divide(frequencies, uses_long_factors(rope, context_tokens) ? scaling.long_factors : scaling.short_factors);
            magnitude = longrope_magnitude(rope);
            break;
    }
    if (!scaling.frequency_divisors.empty()) divide(frequencies, scaling.frequency_divisors);
    std::fill(frequencies.end() - rope.config.n_fixed_pairs, frequencies.end(), 0.0);
    result.magnitude = static_cast<float>(magnitude);
    const bool finite = std::ranges::all_of(frequencies, [](double f) { return std::isfinite(f) && f >= 0.0; });
    if (!finite || !std::isfinite(result.magnitude) || result.magnitude <= 0.0F)
        throw FormatError(
            fmt::format("{} rope scaling (factor {}, original context {}, magnitude {}) gives no usable "
                        "frequencies; check the model's rope_scaling",
                        rope_scaling_name(scaling.kind), scaling.factor, rope.original_context(), magnitude));
    return result;
}

std::vector<RopeFrequencies> rope_frequencies(const ModelConfig& config, std::int64_t context_tokens) {
    std::vector<RopeFrequencies> ropes;
    for (const RopeConfig& rope : config.ropes)
        ropes.push_back(rope_frequencies(rope, config.context_tokens, context_tokens));
    return ropes;
}

std::string describe_rope(const RopeConfig& config, std::int64_t trained_context, std::int64_t context_tokens) {
    const Rope rope{config, trained_context};
    const RopeScaling& scaling = rope.config.scaling;
    const std::int64_t original = rope.original_context();
    std::string text(rope_scaling_name(scaling.kind));
    switch (scaling.kind) {
        case RopeScalingKind::None:
            break;
        case RopeScalingKind::Linear:
            text += fmt::format(" x{:g}", scaling.factor);
            break;
        case RopeScalingKind::Dynamic:
            text += fmt::format(" x{:g} from {}, fixed at {} (theta {:g} -> {:g})", scaling.factor, original,
                                context_tokens, rope.config.theta, dynamic_base(rope, context_tokens));
            break;
        case RopeScalingKind::Llama3:
            if (scaling.frequency_divisors.empty()) text += fmt::format(" x{:g} from {}", scaling.factor, original);
            break;
        case RopeScalingKind::Yarn:
            text += fmt::format(" x{:g} from {}, fixed at {}", scaling.factor, original, context_tokens);
            break;
        case RopeScalingKind::LongRope:
            text += fmt::format(", {} {}, fixed at {}",
                                uses_long_factors(rope, context_tokens) ? "long factors above" : "short factors up to",
                                original, context_tokens);
            break;
    }
    if (!scaling.frequency_divisors.empty())
        text += fmt::format(", {} divisors from the file", scaling.frequency_divisors.size());
    if (config.n_fixed_pairs > 0)
        text +=
            fmt::format(", {} of {} pairs rotate", config.n_rotated / 2 - config.n_fixed_pairs, config.n_rotated / 2);
    return text;
}

}  // namespace slipstream
