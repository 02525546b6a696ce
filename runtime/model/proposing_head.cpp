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

ProposingHead::ProposingHead(const HeadSource& source, Device& device, const LoadOptions& options, LmHead lm_head)
    : without_lm_head_(lm_head == LmHead::OfTarget ? std::make_unique<WithoutLmHead>(source) : nullptr),
      model_(std::make_unique<Model>(without_lm_head_ ? *without_lm_head_ : static_cast<const WeightSource&>(source),
                                     device, options)),
      tensors_(source.head_tensors()) {
    CHECK(lm_head == LmHead::Own || !source.has_own_lm_head(), "a head with an LM head of its own and the target's");
    if (lm_head == LmHead::Own) use_lm_head_of(*model_);
    const std::size_t bytes = tensor_bytes(tensors_);
    memory_ = device.allocate(bytes, options.tag, "the projection of the MTP head");
    // They are packed where the host can write, and sent in one copy to a device whose memory it does not share.
    Buffer sent;
    if (!device.shares_host_memory())
        sent = device.allocate_host(bytes, MemoryTag::Workspace, "the projection of the MTP head");
    std::byte* const here = device.shares_host_memory() ? memory_.data() : sent.data();
    const std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    const ConstTensorView projection = tensors_.projection;
    const auto packed_at = [&](std::byte* data) {
        return packed_view(data, projection.dtype, projection.rows(), projection.cols(), packed_layout(device.kind()));
    };
    const std::span<const std::byte> stored(projection.data,
                                            static_cast<std::size_t>(projection.rows()) * projection.row_stride_bytes);
    source.prefetch(stored);
    pack_weights({device, *stream}, {.weights = projection, .packed = packed_at(here)});
    stream->synchronize();
    source.release(stored);
    tensors_.projection = packed_at(memory_.data());
    std::size_t at = projection_bytes(projection);
    for (ConstTensorView* norm : {&tensors_.hidden_norm, &tensors_.target_norm}) {
        const std::span<float> weights(reinterpret_cast<float*>(here + at), static_cast<std::size_t>(norm->cols()));
        cpu::dequantize_row(norm->dtype, norm->data, weights.data(), norm->cols());
        for (float& weight : weights) weight += source.config().norm_offset;
        const std::byte* const place = memory_.data() + at;
        at += norm_bytes(*norm);
        *norm = vector_view(place, DType::F32, std::ssize(weights));
    }
    if (here == memory_.data()) return;
    stream->copy(memory_.data(), here, bytes);
    stream->synchronize();
}

void ProposingHead::use_lm_head_of(const Model& target) {
    CHECK(can_use_lm_head_of(target), "an LM head that streams, is split, or is on another device than {}",
          model_->device().name());
    lm_head_ = &target;
}

bool ProposingHead::can_use_lm_head_of(const Model& target) const {
    std::int64_t rows = 0;
    for (const MatrixPart& part : target.parts(0, TensorRole::LmHead)) {
        if (target.streams(part.item)) return false;
        rows += part.packed.shape[0];
    }
    return &target.device() == &model_->device() && rows == model_->config().vocab;
}

void ProposingHead::check_kernels(const HeadSource& source, DeviceKind kind) {
    ModelWeights weights = source.weights();
    slipstream::check_kernels(weights, kind);
    weights.lm_head = source.head_tensors().projection;
    slipstream::check_kernels(weights, kind);
}

std::size_t ProposingHead::device_bytes(const HeadSource& source, WeightRounding rounding, LmHead lm_head) {
    ModelWeights weights = source.weights();
    if (lm_head == LmHead::OfTarget) weights.lm_head = {};
    std::size_t bytes = Model::small_tensor_bytes(weights) + tensor_bytes(source.head_tensors());
    for (const WeightItem& item : cut_weight_items(weights, rounding, std::size_t{1} << 40)) bytes += item.bytes;
    return bytes;
}

}  // namespace slipstream
