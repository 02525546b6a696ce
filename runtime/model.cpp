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
    const KvShape shape{config.n_kv_heads, config.head_dim, kv_dtype};
    return static_cast<std::size_t>(ceil_div(context_tokens, kChunkTokens)) * shape.chunk_bytes() *
           static_cast<std::size_t>(config.n_layers);
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
