#include "runtime/model.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/cpu/dequantize.h"

namespace slipstream {

namespace {

constexpr std::size_t kPrefetchBytes = 64U << 20;  // between two reports of progress

// Every small tensor of the model, by reference, so that it can be replaced by its widened copy.
std::vector<ConstTensorView*> small_tensors(ModelWeights& weights) {
    std::vector<ConstTensorView*> small{&weights.output_norm};
    for (LayerWeights& layer : weights.layers)
        for (ConstTensorView* view : {&layer.attn_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm,
                                      &layer.k_norm, &layer.attn_out_bias, &layer.ffn_norm})
            small.push_back(view);
    std::erase_if(small, [](const ConstTensorView* view) { return view->empty(); });
    return small;
}

}  // namespace

std::size_t kv_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t context_tokens) {
    CHECK(context_tokens >= 0 && config.n_layers >= 0 && config.n_kv_heads >= 0 && config.head_dim >= 0,
          "KV of {} tokens", context_tokens);
    const std::int64_t n_chunks = context_tokens / kChunkTokens + (context_tokens % kChunkTokens > 0 ? 1 : 0);
    std::optional<std::size_t> bytes = 2 * row_bytes(kv_dtype, kChunkTokens);  // K and V of one element a token
    for (const std::int64_t factor : {n_chunks, config.n_layers, config.n_kv_heads, config.head_dim})
        if (bytes) bytes = checked_mul(*bytes, static_cast<std::size_t>(factor));
    return std::min(bytes.value_or(kMaxKvBytes), kMaxKvBytes);
}

Model::Model(const ModelFiles& files, Device& device, const LoadOptions& options)
    : device_(&device),
      config_(files.config()),
      weights_(files.weights()),
      context_tokens_(options.context_tokens > 0 ? options.context_tokens : config_.context_tokens),
      kv_dtype_(options.kv_dtype.value_or(config_.kv_dtype)) {
    // Other devices get copies of the weights in their own layout; that comes with the transfers of offload/.
    if (device.kind() != DeviceKind::Cpu)
        throw Unsupported(fmt::format("{}: weights are served on the CPU only", device.name()));
    rope_ = rope_frequencies(config_, context_tokens_);
    widen_small_tensors();
    const std::size_t total = files.total_bytes();
    for (std::size_t done = 0; done < total;) {
        if (options.on_progress) options.on_progress(done, total);
        const std::size_t bytes = std::min(kPrefetchBytes, total - done);
        files.prefetch(done, bytes);
        done += bytes;
    }
    if (options.on_progress) options.on_progress(total, total);
}

void Model::widen_small_tensors() {
    const std::vector<ConstTensorView*> small = small_tensors(weights_);
    std::size_t bytes = 0;
    for (const ConstTensorView* view : small) bytes += row_bytes(DType::F32, view->cols());
    small_tensors_ = device_->allocate(bytes, MemoryTag::Weights, "norms and biases");
    std::byte* at = small_tensors_.data();
    for (ConstTensorView* view : small) {
        cpu::dequantize_row(view->dtype, view->data, reinterpret_cast<float*>(at), view->cols());
        *view = vector_view(static_cast<const std::byte*>(at), DType::F32, view->cols());
        at += row_bytes(DType::F32, view->cols());
    }
}

}  // namespace slipstream
