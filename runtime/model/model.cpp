#include "runtime/model/model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/pack_weights.h"
#include "runtime/model/weight_loader.h"

namespace slipstream {

namespace {

// Calls fn(info, layer, view) for every small tensor (norm, bias, scale or router).
template <typename Weights, typename Fn>
void for_each_small_tensor(Weights& weights, const Fn& fn) {
    for_each_tensor(weights, [&](const TensorInfo& info, std::int64_t layer, auto& view) {
        if (!info.is_matrix()) fn(info, layer, view);
    });
}

// Returns what is added to the weights of a tensor: only norms have an offset.
float norm_offset(const TensorInfo& info, const ModelConfig& config) {
    const bool is_of_model = info.role == TensorRole::EmbeddingNorm || info.role == TensorRole::OutputNorm;
    const bool is_layer_norm = info.cols == TensorDim::Model && !is_of_model;
    if (info.kind != TensorKind::Norm || (config.offsets_layer_norms_only && !is_layer_norm)) return 0.0F;
    return config.norm_offset;
}

// Returns by what the weights of a tensor are multiplied.
float norm_scale(const TensorInfo& info, const ModelConfig& config, std::int64_t layer) {
    if (info.role == TensorRole::OutputNorm) return config.logit_scale;
    return info.role == TensorRole::RouterNorm ? config.experts(layer).router_norm_scale : 1.0F;
}

// Returns the bytes of a small tensor, widened, and of the room before the next one, so that all are aligned.
std::size_t widened_bytes(const TensorInfo& info, const ConstTensorView& view) {
    constexpr std::size_t kAlign = 64;
    return round_up(info.kind == TensorKind::Router
                        ? packed_bytes(DType::F32, view.rows(), view.cols())
                        : static_cast<std::size_t>(view.rows()) * row_bytes(DType::F32, view.cols()),
                    kAlign);
}

// Returns the items of the model: cut anew, or those of the model with which it shares, in which own items get the
// rounding of `options`.
std::vector<WeightItem> items_of(const ModelWeights& weights, const LoadOptions& options) {
    const SharedModel& shared = options.shared;
    if (shared.model == nullptr) return cut_weight_items(weights, options.rounding, options.placement.max_item_bytes);
    std::vector<WeightItem> items = shared.model->items();
    CHECK(shared.own.size() == items.size(), "{} items own or not, {} are there", shared.own.size(), items.size());
    for (std::size_t i = 0; i < items.size(); ++i)
        if (shared.own[i]) items[i] = with_rounding(weights, items[i], options.rounding);
    return items;
}

}  // namespace

Model::Model(const WeightSource& source, Device& device, const LoadOptions& options)
    : device_(&device),
      config_(options.shard ? shard_config(source.config(), *options.shard) : source.config()),
      weights_(options.shard ? shard_weights(source.weights(), source.config(), *options.shard) : source.weights()),
      context_tokens_(options.context_tokens > 0 ? options.context_tokens : config_.context_tokens),
      ropes_(rope_frequencies(config_, context_tokens_)),
      kv_dtype_(options.kv_dtype.value_or(config_.kv_dtype)),
      items_(items_of(weights_, options)),
      memory_(device, items_, options.placement, options.tag,
              options.shared.model != nullptr ? &options.shared.model->memory_ : nullptr, options.shared.own) {
    check_kernels(weights_, device.kind());
    if (options.shared.model != nullptr) {
        shard_small_tensors(*options.shared.model);
    } else {
        widen_small_tensors(options.tag);
    }
    load_own_items(source, options);
    index_parts();
}

void Model::load_own_items(const WeightSource& source, const LoadOptions& options) {
    std::vector<WeightItem> items;
    std::vector<std::byte*> destinations;
    std::vector<bool> in_host_memory;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i) {
        if (!memory_.is_own(i)) continue;
        items.push_back(items_[i]);
        destinations.push_back(memory_.data(i));
        in_host_memory.push_back(memory_.streams(i));
    }
    load_weight_items(*device_, {.source = &source,
                                 .weights = &weights_,
                                 .items = items,
                                 .destinations = destinations,
                                 .in_host_memory = &in_host_memory,
                                 .n_readers = options.n_readers,
                                 .on_progress = options.on_progress});
}

// Fills parts_, their ranges, and experts_stream_; weights_ gets the packed view of each matrix that is resident in one
// part.
void Model::index_parts() {
    part_ranges_.resize(weights_.layers.size() + 1);
    for (const LayerWeights& layer : weights_.layers) expert_ranges_.emplace_back(layer.experts.size());
    for (std::size_t i = 0; i < items_.size(); ++i) {
        experts_stream_ = experts_stream_ || is_on_demand(static_cast<std::int32_t>(i));
        for (const WeightPart& part : items_[i].parts) {
            const ConstTensorView& matrix = weights_.tensor(part.layer, part.role, part.expert);
            PartRange& range = part.expert == kNoExpert
                                   ? part_ranges_[items_[i].layer][static_cast<std::size_t>(part.role)]
                                   : expert_ranges_[items_[i].layer].at(part.expert)[expert_tensor(part.role)];
            if (part.first_row == 0) range.first = parts_.size();
            CHECK(range.first + range.n == parts_.size(), "the parts of a matrix do not follow one another");
            ++range.n;
            parts_.push_back({.item = static_cast<std::int32_t>(i),
                              .first_row = part.first_row,
                              .offset = part.offset,
                              .ends_item = &part == &items_[i].parts.back(),
                              .packed = packed_view(item_data(static_cast<std::int32_t>(i)) + part.offset,
                                                    packed_type(matrix, items_[i].rounding), part.n_rows,
                                                    matrix.shape[1], packed_layout(device_->kind()))});
        }
    }
    const auto use_packed = [&](const TensorInfo& info, std::int64_t layer) {
        const std::span<const MatrixPart> parts = this->parts(layer, info.role);
        if (parts.size() == 1 && !streams(parts[0].item)) weights_.tensor(layer, info.role) = parts[0].packed;
    };
    for (std::int64_t layer = 0; layer < config_.n_layers(); ++layer)
        for (const TensorInfo& info : kLayerTensors) use_packed(info, layer);
    for (const TensorInfo& info : kModelTensors) use_packed(info, config_.n_layers());
}

std::span<const MatrixPart> Model::parts(std::int64_t layer, TensorRole role, std::int32_t expert) const {
    if (expert != kNoExpert) {
        const PartRange& range = expert_ranges_.at(layer).at(expert)[expert_tensor(role)];
        return std::span(parts_).subspan(range.first, range.n);
    }
    const std::size_t at = role == TensorRole::LmHead ? weights_.layers.size() : static_cast<std::size_t>(layer);
    const PartRange& range = part_ranges_.at(at)[static_cast<std::size_t>(role)];
    return std::span(parts_).subspan(range.first, range.n);
}

std::size_t Model::small_tensor_bytes(const ModelWeights& weights) {
    std::size_t bytes = 0;
    for_each_small_tensor(weights, [&](const TensorInfo& info, std::int64_t, const ConstTensorView& view) {
        bytes += widened_bytes(info, view);
    });
    return bytes;
}

void Model::shard_small_tensors(const Model& other) {
    CHECK(other.device_ == device_, "a model shared from another device");
    std::vector<ConstTensorView> views;
    for_each_small_tensor(other.weights_,
                          [&](const TensorInfo&, std::int64_t, const ConstTensorView& view) { views.push_back(view); });
    std::size_t at = 0;
    for_each_small_tensor(weights_, [&](const TensorInfo&, std::int64_t, ConstTensorView& view) {
        CHECK(at < views.size() && views[at].rows() * views[at].cols() == view.rows() * view.cols(),
              "a model shared from another one's files");
        view = views[at++];
    });
}

void Model::widen_small_tensors(MemoryTag tag) {
    const std::size_t bytes = small_tensor_bytes(weights_);
    small_tensors_ = device_->allocate(bytes, tag, "norms, biases and scales");
    const std::unique_ptr<Stream> stream = device_->make_stream(StreamKind::Compute);
    constexpr std::size_t kAlignFloats = 16;  // packs begin at multiples of 64 bytes
    std::vector<float> memory(bytes / sizeof(float) + kAlignFloats);
    float* const widened =
        memory.data() + kAlignFloats - reinterpret_cast<std::uintptr_t>(memory.data()) / sizeof(float) % kAlignFloats;
    std::vector<float> rows;  // of a router, or one row
    float* to = widened;
    const std::byte* at = small_tensors_.data();
    for_each_small_tensor(weights_, [&](const TensorInfo& info, std::int64_t layer, ConstTensorView& view) {
        const std::size_t taken = widened_bytes(info, view);
        if (info.kind == TensorKind::Router) {
            rows.resize(static_cast<std::size_t>(view.rows() * view.cols()));
            for (std::int64_t row = 0; row < view.rows(); ++row)
                cpu::dequantize_row(view.dtype, view.row(row), rows.data() + row * view.cols(), view.cols());
            const Layout layout = packed_layout(device_->kind());
            pack_weights({*device_, *stream}, {.weights = matrix_view(rows.data(), view.rows(), view.cols()),
                                               .packed = packed_view(reinterpret_cast<std::byte*>(to), DType::F32,
                                                                     view.rows(), view.cols(), layout)});
            stream->synchronize();
            view = packed_view(at, DType::F32, view.rows(), view.cols(), layout);
        } else if (info.kind == TensorKind::Taps) {
            // [taps, columns], as delta_net() reads them; files have [columns, taps].
            rows.resize(static_cast<std::size_t>(view.cols()));
            for (std::int64_t row = 0; row < view.rows(); ++row) {
                cpu::dequantize_row(view.dtype, view.row(row), rows.data(), view.cols());
                for (std::int64_t tap = 0; tap < view.cols(); ++tap) to[tap * view.rows() + row] = rows[tap];
            }
            view = matrix_view(at, DType::F32, view.cols(), view.rows());
        } else if (!info.is_vector()) {
            std::vector<std::byte> joined;
            const StoredMatrix stored = weights_.stored(layer, info.role);
            ConstTensorView from = view;
            if (!stored.empty()) {
                joined.resize(static_cast<std::size_t>(view.rows()) * row_bytes(view.dtype, view.cols()));
                stored.read_rows(view.dtype, 0, view.rows(), view.cols(), joined.data());
                from = matrix_view<const std::byte>(joined.data(), view.dtype, view.rows(), view.cols());
            }
            for (std::int64_t row = 0; row < view.rows(); ++row)
                cpu::dequantize_row(view.dtype, from.row(row), to + row * view.cols(), view.cols());
            view = matrix_view(at, DType::F32, view.rows(), view.cols());
        } else {
            cpu::dequantize_row(view.dtype, view.data, to, view.cols());
            const float offset = norm_offset(info, config_);
            const float scale = norm_scale(info, config_, layer);
            for (float& weight : std::span(to, static_cast<std::size_t>(view.cols())))
                weight = (weight + offset) * scale;
            if (info.role == TensorRole::DeltaDecay && config_.delta_net(layer).log_decay)
                for (float& rate : std::span(to, static_cast<std::size_t>(view.cols()))) rate = -std::exp(rate);
            view = vector_view(at, DType::F32, view.cols());
        }
        to += taken / sizeof(float);
        at += taken;
    });
    stream->copy(small_tensors_.data(), widened, bytes);
    stream->synchronize();
}

}  // namespace slipstream
