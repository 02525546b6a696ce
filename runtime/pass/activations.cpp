#include "runtime/pass/activations.h"

#include <algorithm>
#include <string_view>

#include "kernels/attention.h"
#include "runtime/pass/device_logits.h"

namespace slipstream {

namespace {

struct Size {
    std::string_view what;
    std::int64_t cols = 0;  // of a row of floats
    std::size_t bytes = 0;
};

Size size_of(Activation which, const ModelConfig& config, const ActivationLimits& limits) {
    const auto matrix = [](std::string_view what, std::int64_t n_rows, std::int64_t cols) {
        return Size{what, cols, n_rows * row_bytes(DType::F32, cols)};
    };
    const std::int64_t n = limits.n_tokens;
    const std::int64_t n_streaming = limits.streams ? n : 0;
    const std::int64_t q_cols = config.n_q_heads * config.head_dim;
    const std::int64_t kv_cols = config.n_kv_heads * config.head_dim;
    switch (which) {
        case Activation::Hidden:
            return matrix("the residual stream", n, config.d_model);
        case Activation::NextHidden:
            return matrix("the residual stream of the next piece", n_streaming, config.d_model);
        case Activation::Fold:
            return {"attention over KV that streams", 0,
                    attention_state_floats(n_streaming, config.n_q_heads, config.head_dim) * sizeof(float)};
        case Activation::Normed:
            return matrix("normed activations", n, config.d_model);
        case Activation::Q:
            return matrix("queries", n, q_cols);
        case Activation::K:
            return matrix("keys", n, kv_cols);
        case Activation::V:
            return matrix("values", n, kv_cols);
        case Activation::Attended:
            return matrix("attention output", n, q_cols);
        case Activation::Gate:
            return matrix("feed-forward gate", n, config.d_ff);
        case Activation::Up:
            return matrix("feed-forward activations", n, config.d_ff);
        case Activation::CosSin:
            return matrix("rope angles", n, config.n_rotated);
        case Activation::Selected: {
            Size size = matrix("selected activations", limits.n_logit_rows, config.d_model);
            size.bytes = std::max(size.bytes, DeviceLogits::top_bytes(limits.n_logit_rows));
            return size;
        }
        case Activation::Logits:
            return matrix("logits", limits.n_logit_rows, config.vocab);
    }
    return {};
}

}  // namespace

Activations::Activations(Device& device, const ModelConfig& config, const ActivationLimits& limits) {
    for (std::size_t i = 0; i < kActivations; ++i) {
        const Size size = size_of(static_cast<Activation>(i), config, limits);
        cols_[i] = size.cols;
        if (size.bytes > 0) buffers_[i] = device.allocate(size.bytes, MemoryTag::Activations, size.what);
    }
    use_hidden(buffer(Activation::Hidden).data());
}

std::size_t Activations::bytes(const ModelConfig& config, const ActivationLimits& limits) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < kActivations; ++i) bytes += size_of(static_cast<Activation>(i), config, limits).bytes;
    return bytes;
}

TensorView Activations::rows(Activation which, std::int64_t n_rows) const {
    return matrix_view(reinterpret_cast<float*>(buffer(which).data()), n_rows, cols_[static_cast<std::size_t>(which)]);
}

TensorView Activations::heads(Activation which, std::int64_t n_rows, std::int64_t head_dim) const {
    return matrix_view(reinterpret_cast<float*>(buffer(which).data()),
                       n_rows * cols_[static_cast<std::size_t>(which)] / head_dim, head_dim);
}

TensorView Activations::hidden(std::int64_t n_rows) const {
    return matrix_view(reinterpret_cast<float*>(hidden_), n_rows, cols_[static_cast<std::size_t>(Activation::Hidden)]);
}

}  // namespace slipstream
