#include "runtime/model.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/cpu/dequantize.h"
#include "kernels/cpu/quantize.h"
#include "kernels/pack_weights.h"

namespace slipstream {

namespace {

constexpr std::size_t kStepBytes = 32U << 20;  // packed between two reports of progress; their file pages held at once
constexpr std::size_t kPackAlignBytes = 64;
constexpr std::int64_t kRoundedBlock = 32;  // elements of a row that share a scale

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

// The matrices of a layer, by reference, in the order in which a pass reads them.
std::array<ConstTensorView*, 7> matrices(LayerWeights& layer) {
    return {&layer.q, &layer.k, &layer.v, &layer.attn_out, &layer.gate, &layer.up, &layer.down};
}

bool is_float(DType type) {
    return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

// The type that a matrix has once it is packed.
DType packed_type(const ConstTensorView& matrix, WeightRounding rounding) {
    const bool rounded =
        rounding == WeightRounding::Q8_0 && is_float(matrix.dtype) && matrix.shape[1] % kRoundedBlock == 0;
    return rounded ? DType::Q8_0 : matrix.dtype;
}

std::size_t pack_bytes(const ConstTensorView& matrix, WeightRounding rounding) {
    return round_up(packed_bytes(packed_type(matrix, rounding), matrix.shape[0], matrix.shape[1]), kPackAlignBytes);
}

std::size_t file_bytes(const ConstTensorView& matrix) {
    return static_cast<std::size_t>(matrix.shape[0]) * matrix.row_stride_bytes;
}

// Packs matrices one after the other, a step of rows at a time, and drops the file's pages behind it.
class Packer {
public:
    Packer(const ModelFiles& files, Device& device, const LoadOptions& options, std::size_t total_bytes)
        : files_(files),
          options_(options),
          stream_(device.make_stream(StreamKind::Compute)),
          exec_{device, *stream_},
          total_bytes_(total_bytes) {
        report();
    }

    // The matrix to pack_bytes() bytes at `data`; `matrix` becomes the view of them.
    void pack(ConstTensorView& matrix, std::byte* data) {
        const TensorView packed =
            packed_view(data, packed_type(matrix, options_.rounding), matrix.shape[0], matrix.shape[1]);
        const auto fitting = static_cast<std::int64_t>(kStepBytes / std::max<std::size_t>(matrix.row_stride_bytes, 1));
        const std::int64_t step = std::max(fitting / kInterleavedRows * kInterleavedRows, kInterleavedRows);
        for (std::int64_t row = 0; row < matrix.shape[0]; row += step) {
            const std::int64_t count = std::min(step, matrix.shape[0] - row);
            const ConstTensorView rows = matrix.slice_rows(row, count);
            const std::span<const std::byte> bytes(rows.data, file_bytes(rows));
            files_.prefetch(bytes);
            pack_weights(exec_, {.weights = rows.dtype == packed.dtype ? rows : rounded(rows),
                                 .packed = packed.slice_rows(row, count)});
            stream_->synchronize();
            files_.release(bytes);
            done_bytes_ += bytes.size();
            report();
        }
        matrix = packed;
    }

private:
    // Rows of floats as Q8_0, row-major; valid until the next call.
    [[nodiscard]] ConstTensorView rounded(const ConstTensorView& rows) {
        const std::size_t bytes_a_row = row_bytes(DType::Q8_0, rows.shape[1]);
        rounded_.resize(static_cast<std::size_t>(rows.shape[0]) * bytes_a_row);
        values_.resize(static_cast<std::size_t>(rows.shape[1]));
        for (std::int64_t row = 0; row < rows.shape[0]; ++row) {
            cpu::dequantize_row(rows.dtype, rows.row(row), values_.data(), rows.shape[1]);
            cpu::quantize_row_q8_0(values_, rounded_.data() + static_cast<std::size_t>(row) * bytes_a_row);
        }
        return {rounded_.data(), DType::Q8_0, 2, {rows.shape[0], rows.shape[1]}, bytes_a_row};
    }

    void report() const {
        if (options_.on_progress) options_.on_progress(done_bytes_, total_bytes_);
    }

    const ModelFiles& files_;
    const LoadOptions& options_;
    std::unique_ptr<Stream> stream_;
    ExecRef exec_;
    std::size_t total_bytes_;
    std::size_t done_bytes_ = 0;
    std::vector<std::byte> rounded_;  // of a step
    std::vector<float> values_;       // of a row
};

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
    make_packs(files, options);
}

void Model::make_packs(const ModelFiles& files, const LoadOptions& options) {
    std::size_t total = file_bytes(weights_.lm_head);
    for (LayerWeights& layer : weights_.layers)
        for (const ConstTensorView* matrix : matrices(layer)) total += file_bytes(*matrix);
    Packer packer(files, *device_, options, total);
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
        std::size_t bytes = 0;
        for (const ConstTensorView* matrix : matrices(weights_.layers[i]))
            bytes += pack_bytes(*matrix, options.rounding);
        Buffer& pack = packs_.emplace_back(
            device_->allocate(bytes, MemoryTag::Weights, fmt::format("the weights of layer {}", i)));
        std::byte* at = pack.data();
        for (ConstTensorView* matrix : matrices(weights_.layers[i])) {
            const std::size_t here = pack_bytes(*matrix, options.rounding);
            packer.pack(*matrix, at);
            at += here;
        }
    }
    Buffer& pack = packs_.emplace_back(
        device_->allocate(pack_bytes(weights_.lm_head, options.rounding), MemoryTag::Weights, "the LM head"));
    packer.pack(weights_.lm_head, pack.data());
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
