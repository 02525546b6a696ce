#include "runtime/formats/hf_rope.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

RopeScalingKind scaling_kind(const JsonFields& scaling, const HfDefaults& defaults) {
    auto type = scaling.string("rope_type");
    if (!type) type = scaling.string("type");
    const std::string text = type.value_or("default");
    if (text == "default") return RopeScalingKind::None;
    // The first files of Phi-3 call longrope "su" or "yarn" (Phi3Config, for older files).
    if (text == "longrope" || text == "su") return RopeScalingKind::LongRope;
    if (text == "yarn") return defaults.yarn_is_longrope ? RopeScalingKind::LongRope : RopeScalingKind::Yarn;
    if (text == "linear") return RopeScalingKind::Linear;
    if (text == "dynamic") return RopeScalingKind::Dynamic;
    if (text == "llama3") return RopeScalingKind::Llama3;
    throw Unsupported(
        fmt::format("{}: rope scaling \"{}\" is not served (served: default, linear, dynamic, llama3, yarn, longrope, "
                    "proportional)",
                    scaling.name(), printable(text)));
}

double required_number(const JsonFields& scaling, const char* key) {
    const auto value = scaling.number(key);
    if (!value) scaling.fail(fmt::format("{} of the rope scaling", key), "is missing");
    return *value;
}

RopeScaling read_scaling(const JsonFields& fields, const JsonFields& scaling, const HfDefaults& defaults,
                         std::int64_t context_tokens) {
    RopeScaling rope;
    rope.kind = scaling_kind(scaling, defaults);
    if (rope.kind == RopeScalingKind::None) return rope;
    rope.original_context = scaling.integer("original_max_position_embeddings").value_or(0);
    if (rope.kind != RopeScalingKind::Linear && rope.kind != RopeScalingKind::Dynamic) {
        // The length beside the scaling object takes precedence over the one inside it (standardize_rope_params of
        // transformers).
        if (const auto outer = fields.integer("original_max_position_embeddings")) {
            rope.original_context = *outer;
        } else if (defaults.rope_original_context != 0) {
            rope.original_context = defaults.rope_original_context;
        }
        if (rope.original_context == 0) rope.original_context = context_tokens;
        if (rope.original_context < 1)
            fields.fail("original_max_position_embeddings", fmt::format("is {}", rope.original_context));
    }
    const double stretch =
        static_cast<double>(context_tokens) / static_cast<double>(std::max<std::int64_t>(rope.original_context, 1));
    switch (rope.kind) {
        case RopeScalingKind::None:
            break;
        case RopeScalingKind::Linear:
        case RopeScalingKind::Dynamic:
            rope.factor = required_number(scaling, "factor");
            break;
        case RopeScalingKind::Llama3:
            rope.factor = required_number(scaling, "factor");
            rope.low_freq_factor = required_number(scaling, "low_freq_factor");
            rope.high_freq_factor = required_number(scaling, "high_freq_factor");
            break;
        case RopeScalingKind::Yarn:
            rope.factor = scaling.number("factor").value_or(stretch);
            rope.attention_factor = scaling.number("attention_factor");
            // 0 means the default, as in transformers ("or 32").
            if (const double beta = scaling.number("beta_fast").value_or(0.0); beta != 0.0) rope.beta_fast = beta;
            if (const double beta = scaling.number("beta_slow").value_or(0.0); beta != 0.0) rope.beta_slow = beta;
            rope.mscale = scaling.number("mscale").value_or(0.0);
            rope.mscale_all_dim = scaling.number("mscale_all_dim").value_or(0.0);
            rope.rounds_bounds = scaling.boolean("truncate").value_or(true);
            break;
        case RopeScalingKind::LongRope:
            rope.factor = scaling.number("factor").value_or(stretch);
            rope.attention_factor = scaling.number("attention_factor");
            // A factor that does not extend the context leaves the attention unchanged.
            if (!rope.attention_factor && rope.factor <= 1.0) rope.attention_factor = 1.0;
            rope.short_factors = scaling.numbers("short_factor").value_or(std::vector<double>{});
            rope.long_factors = scaling.numbers("long_factor").value_or(std::vector<double>{});
            break;
    }
    return rope;
}

}  // namespace

RopeConfig read_hf_rope(const JsonFields& fields, const HfDefaults& defaults, std::int64_t context_tokens,
                        std::int64_t head_dim, const char* layer_type) {
    const auto* scaling = fields.object("rope_scaling");
    // If rope_scaling and rope_parameters are both given, transformers 5 uses rope_scaling.
    const auto* parameters = fields.object("rope_parameters");
    if (JsonFields(scaling, fields.name()).keys().empty()) {
        scaling = parameters;
    } else if (layer_type != nullptr && JsonFields(parameters, fields.name()).has(layer_type)) {
        fields.fail("rope_scaling", "and rope_parameters by type of layer are both given; only one can be served");
    }
    if (layer_type != nullptr) {
        const JsonFields types(scaling, fields.name());
        if (const auto* of_type = types.object(layer_type)) scaling = of_type;
    }
    const JsonFields inner(scaling, fields.name());
    for (const char* key : {"full_attention", "sliding_attention"})
        if (inner.find(key) != nullptr)
            throw Unsupported(
                fmt::format("{}: rope parameters that differ between layer types are not served", fields.name()));
    const auto either = [&](const char* key, double absent) {
        if (const auto value = inner.number(key)) return *value;
        return fields.number(key).value_or(absent);
    };
    const bool is_proportional =
        inner.string("rope_type").value_or(inner.string("type").value_or("")) == "proportional";
    const double part = either("partial_rotary_factor", defaults.rotated_share);
    if (!(part > 0.0 && part <= 1.0)) fields.fail("partial_rotary_factor", fmt::format("is {}", part));
    // head_dim is validated later; here it may be any number, and the product must not overflow.
    const std::int64_t elements = std::clamp<std::int64_t>(head_dim, 0, 1 << 20);
    const double theta = either("rope_theta", defaults.rope_theta);
    if (is_proportional) {
        // The frequencies are those of the whole head, but only the first pairs rotate.
        const auto n_free = static_cast<std::int64_t>(static_cast<double>(elements) * part / 2.0);
        RopeConfig rope{.theta = theta, .n_rotated = elements, .n_fixed_pairs = elements / 2 - n_free};
        rope.scaling.factor = inner.number("factor").value_or(1.0);
        if (rope.scaling.factor != 1.0) rope.scaling.kind = RopeScalingKind::Linear;
        return rope;
    }
    return {.theta = theta,
            .n_rotated = static_cast<std::int64_t>(static_cast<double>(elements) * part),
            .scaling = read_scaling(fields, inner, defaults, context_tokens)};
}

}  // namespace slipstream
