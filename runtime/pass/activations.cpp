#include "runtime/pass/activations.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "runtime/pass/delta_steps.h"
#include "runtime/pass/device_logits.h"

namespace slipstream {

namespace {

// Returns the columns of CosSin that a rotary embedding has: one table, or one for keys and one for queries.
std::int64_t rope_columns(const RopeConfig& rope) {
    return rope.query_growth == 0.0 ? rope.n_rotated : 2 * rope.n_rotated;
}

std::int64_t dense_d_ff(const ModelConfig& config) {
    return config.largest([](const LayerConfig& layer) { return layer.feed_forward.d_ff; });
}

std::int64_t expert_d_ff(const ModelConfig& config) {
    return config.largest([](const LayerConfig& layer) { return layer.feed_forward.experts.d_ff; });
}

// Returns the most columns of a kind that a delta net has; 0 if no layer is one.
std::int64_t delta_cols(const ModelConfig& config, std::int64_t (DeltaNetShape::*cols)() const) {
    return config.largest(
        [&](const LayerConfig& layer) { return layer.has_attention() ? 0 : (layer.delta_net().shape.*cols)(); });
}

// Returns the most columns of a product of a layer that are taken apart.
std::int64_t grouped_cols(const LayerConfig& layer) {
    if (layer.has_attention()) return layer.attention().gate_in_queries ? 2 * layer.attention().q_cols() : 0;
    const DeltaNetConfig& net = layer.delta_net();
    return (net.gate_in_inputs ? net.shape.convolved_cols() + net.shape.value_cols() : 0) +
           (net.decay_in_beta ? 2 * net.shape.n_value_heads : 0);
}

bool has_shared_expert(const ModelConfig& config) {
    return std::ranges::any_of(config.layers, [](const LayerConfig& layer) {
        return !layer.feed_forward.experts.empty() && layer.feed_forward.d_ff > 0;
    });
}

std::size_t bytes_of(Activation which, const ModelConfig& config, const ActivationLimits& limits) {
    const auto matrix = [](std::int64_t n_rows, std::int64_t cols) -> std::size_t {
        return n_rows * row_bytes(DType::F32, cols);
    };
    const std::int64_t n = limits.n_tokens;
    const std::int64_t n_streaming = limits.streams ? n : 0;
    switch (which) {
        case Activation::Hidden:
            return matrix(n, config.d_model);
        case Activation::NextHidden:
            return matrix(n_streaming, config.d_model);
        case Activation::Fold: {
            const std::int64_t n_folded = limits.streams || limits.pages ? n : 0;
            const std::int64_t floats = config.largest([&](const LayerConfig& layer) -> std::int64_t {
                if (!layer.has_attention()) return std::int64_t{0};
                const AttentionConfig& attention = layer.attention();
                return attention_state_floats(n_folded, attention.n_q_heads, attention.head_dim);
            });
            return static_cast<std::size_t>(floats) * sizeof(float);
        }
        case Activation::Normed:
            return matrix(n, config.d_model);
        case Activation::Q:
            return matrix(n, config.max_q_cols());
        case Activation::K:
            return matrix(n, config.max_kv_cols());
        case Activation::V:
            return matrix(n, config.max_kv_cols());
        case Activation::Attended:
            return matrix(n, std::max(config.max_q_cols(), delta_cols(config, &DeltaNetShape::value_cols)));
        case Activation::AttnGate:
            return matrix(n, config.largest([](const LayerConfig& layer) {
                if (!layer.has_attention()) return layer.delta_net().shape.value_cols();
                return layer.attention().has_gate() ? layer.attention().q_cols() : 0;
            }));
        case Activation::Grouped:
            return matrix(n, config.largest(grouped_cols));
        case Activation::DeltaRows:
            return matrix(n, delta_cols(config, &DeltaNetShape::row_cols));
        case Activation::DeltaConvolved:
            return matrix(DeltaSteps::most(n, limits.max_drafts), delta_cols(config, &DeltaNetShape::row_cols));
        case Activation::Gate:
            return matrix(n, dense_d_ff(config));
        case Activation::Up:
            return matrix(n, dense_d_ff(config));
        case Activation::Router:
            return matrix(
                n, config.largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_experts; }));
        case Activation::ExpertRows:
            return matrix(expert_rows(config, n), config.d_model);
        case Activation::ExpertGate:
            return matrix(expert_rows(config, n), expert_d_ff(config));
        case Activation::ExpertUp:
            return matrix(expert_rows(config, n), expert_d_ff(config));
        case Activation::Experts:
            return matrix(config.has_experts() ? n : 0, config.d_model);
        case Activation::Shared:
            return matrix(has_shared_expert(config) ? n : 0, config.d_model);
        case Activation::CosSin: {
            std::int64_t cols = 0;
            for (const RopeConfig& rope : config.ropes) cols += rope_columns(rope);
            return matrix(n, cols);
        }
        case Activation::Selected:
            return std::max(matrix(limits.n_logit_rows, config.d_model), DeviceLogits::top_bytes(limits.n_logit_rows));
        case Activation::Logits:
            return matrix(limits.n_logit_rows, config.vocab);
    }
    return 0;
}

// Alignment of an activation in the memory that it shares.
constexpr std::size_t kAlign = 256;

// The names of the activations that have memory of their own, in messages.
constexpr std::array<std::string_view, kPassActivations> kNames = {
    "the residual stream", "the residual stream of the next prefill chunk", "normed activations", "rope angles"};

// Where an activation is: in memory of its own (is_shared is false), or in the shared memory, from `begin` on.
struct Place {
    std::size_t bytes = 0;
    bool is_shared = false;
    std::size_t begin = 0;
};

struct Places {
    std::array<Place, kActivations> of{};
    std::size_t shared_bytes = 0;
};

Places places_of(const ModelConfig& config, const ActivationLimits& limits) {
    // The first activation of each half of a layer, and of what follows the layers: each begins the shared memory anew.
    constexpr Activation kBegins[] = {Activation::Fold, Activation::Gate, Activation::Selected};
    static_assert(static_cast<std::size_t>(Activation::Fold) == kPassActivations &&
                  static_cast<std::size_t>(Activation::Logits) + 1 == kActivations);
    Places places;
    std::size_t end = 0;
    for (std::size_t i = 0; i < kActivations; ++i) {
        const auto which = static_cast<Activation>(i);
        if (std::ranges::find(kBegins, which) != std::end(kBegins)) end = 0;
        Place& place = places.of[i];
        place = {.bytes = bytes_of(which, config, limits), .is_shared = i >= kPassActivations, .begin = end};
        if (!place.is_shared) continue;
        end += round_up(place.bytes, kAlign);
        places.shared_bytes = std::max(places.shared_bytes, end);
    }
    return places;
}

}  // namespace

std::int64_t expert_rows(const ModelConfig& config, std::int64_t n_tokens) {
    const std::int64_t n_chosen =
        config.largest([](const LayerConfig& layer) { return layer.feed_forward.experts.n_chosen; });
    return n_chosen == 0 ? 0 : std::max(n_tokens, std::min(n_tokens * n_chosen, kGroupedRows));
}

Activations::Activations(Device& device, const ModelConfig& config, const ActivationLimits& limits)
    : d_model_(config.d_model), n_tokens_(limits.n_tokens) {
    const Places places = places_of(config, limits);
    if (places.shared_bytes > 0)
        shared_ = device.allocate(places.shared_bytes, MemoryTag::Activations, "activations of a layer, and logits");
    for (std::size_t i = 0; i < kActivations; ++i) {
        const Place& place = places.of[i];
        if (place.bytes == 0) continue;
        if (place.is_shared) {
            memory_[i] = {shared_.data() + place.begin, place.bytes};
        } else {
            buffers_[i] = device.allocate(place.bytes, MemoryTag::Activations, kNames[i]);
            memory_[i] = {buffers_[i].data(), place.bytes};
        }
    }
    std::int64_t begin = 0;
    for (const RopeConfig& rope : config.ropes) {
        const std::int64_t end = begin + rope_columns(rope);
        ropes_.push_back({.n_rotated = rope.n_rotated, .begin = begin, .query_begin = end - rope.n_rotated});
        begin = end;
    }
    use_hidden(memory(Activation::Hidden).data());
}

std::size_t Activations::bytes(const ModelConfig& config, const ActivationLimits& limits) {
    const Places places = places_of(config, limits);
    std::size_t bytes = places.shared_bytes;
    for (const Place& place : places.of) bytes += place.is_shared ? 0 : place.bytes;
    return bytes;
}

TensorView Activations::rows(Activation which, std::int64_t n_rows, std::int64_t cols) const {
    return matrix_view(reinterpret_cast<float*>(memory(which).data()), n_rows, cols);
}

TensorView Activations::table(std::int64_t begin, std::int64_t n_rotated, std::int64_t n_rows) const {
    return matrix_view(reinterpret_cast<float*>(memory(Activation::CosSin).data()) + n_tokens_ * begin, n_rows,
                       n_rotated);
}

TensorView Activations::angles(std::size_t rope, std::int64_t n_rows) const {
    return rope == kNoRope ? table(0, 0, n_rows) : table(ropes_[rope].begin, ropes_[rope].n_rotated, n_rows);
}

TensorView Activations::query_angles(std::size_t rope, std::int64_t n_rows) const {
    return rope == kNoRope ? table(0, 0, n_rows) : table(ropes_[rope].query_begin, ropes_[rope].n_rotated, n_rows);
}

TensorView Activations::hidden(std::int64_t n_rows) const {
    return matrix_view(reinterpret_cast<float*>(hidden_), n_rows, d_model_);
}

}  // namespace slipstream
