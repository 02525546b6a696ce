#include "runtime/model/proposing_head.h"

#include <algorithm>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/pack_weights.h"
#include "runtime/model/weight_items.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlign = 64;

// The weights of a head without the LM head that it shares.
class WithoutLmHead final : public WeightSource {
public:
    explicit WithoutLmHead(const WeightSource& source) : source_(source) {}
    [[nodiscard]] const ModelConfig& config() const override { return source_.config(); }
    [[nodiscard]] ModelWeights weights() const override {
        ModelWeights weights = source_.weights();
        weights.lm_head = {};
        return weights;
    }
    void prefetch(std::span<const std::byte> part) const override { source_.prefetch(part); }
    void release(std::span<const std::byte> part) const override { source_.release(part); }

private:
    const WeightSource& source_;
};

std::size_t projection_bytes(const ConstTensorView& projection) {
    return round_up(packed_bytes(projection.dtype, projection.rows(), projection.cols()), kAlign);
}
std::size_t norm_bytes(const ConstTensorView& norm) {
    return round_up(row_bytes(DType::F32, norm.cols()), kAlign);
}
std::size_t tensor_bytes(const HeadTensors& tensors) {
    return projection_bytes(tensors.projection) + norm_bytes(tensors.hidden_norm) + norm_bytes(tensors.target_norm);
}

}  // namespace

ProposingHead::ProposingHead(const HeadSource& source, Device& device, const LoadOptions& options, const Model* target)
    : without_lm_head_(target != nullptr ? std::make_unique<WithoutLmHead>(source) : nullptr),
      model_(std::make_unique<Model>(without_lm_head_ ? *without_lm_head_ : static_cast<const WeightSource&>(source),
                                     device, options)),
      lm_head_(target != nullptr ? target : model_.get()),
      tensors_(source.head_tensors()) {
    CHECK(device.shares_host_memory(), "an MTP head on {}", device.name());
    std::int64_t rows = 0;
    for (const MatrixPart& part : lm_head()) {
        CHECK(!lm_head_->streams(part.item), "a head that uses an LM head that streams");
        rows += part.packed.shape[0];
    }
    CHECK(rows == source.config().vocab, "an LM head of {} rows, {} tokens", rows, source.config().vocab);
    memory_ = device.allocate(tensor_bytes(tensors_), options.tag, "the projection of the MTP head");
    const std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    std::byte* at = memory_.data();
    const ConstTensorView projection = tensors_.projection;
    const TensorView packed =
        packed_view(at, projection.dtype, projection.rows(), projection.cols(), packed_layout(device.kind()));
    const std::span<const std::byte> stored(projection.data,
                                            static_cast<std::size_t>(projection.rows()) * projection.row_stride_bytes);
    source.prefetch(stored);
    pack_weights({device, *stream}, {.weights = projection, .packed = packed});
    stream->synchronize();
    source.release(stored);
    tensors_.projection = packed;
    at += projection_bytes(projection);
    for (ConstTensorView* norm : {&tensors_.hidden_norm, &tensors_.target_norm}) {
        const std::span<float> weights(reinterpret_cast<float*>(at), static_cast<std::size_t>(norm->cols()));
        cpu::dequantize_row(norm->dtype, norm->data, weights.data(), norm->cols());
        for (float& weight : weights) weight += source.config().norm_offset;
        at += norm_bytes(*norm);
        *norm = vector_view<const std::byte>(reinterpret_cast<const std::byte*>(weights.data()), DType::F32,
                                             std::ssize(weights));
    }
}

std::size_t ProposingHead::device_bytes(const HeadSource& source, WeightRounding rounding, LmHead lm_head) {
    ModelWeights weights = source.weights();
    if (lm_head == LmHead::OfTarget) weights.lm_head = {};
    std::size_t bytes = Model::small_tensor_bytes(weights) + tensor_bytes(source.head_tensors());
    for (const WeightItem& item : cut_weight_items(weights, rounding, std::size_t{1} << 40)) bytes += item.bytes;
    return bytes;
}

}  // namespace slipstream
