#include "runtime/model/model.h"

#include <algorithm>
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

constexpr std::int64_t kMatricesPerLayer = std::size(kLayerMatrices);

// Every small tensor of the model, so that it can be replaced by its widened copy.
template <typename Weights, typename Fn>
void for_each_small_tensor(Weights& weights, const Fn& fn) {
    const auto call = [&](auto& view) {
        if (!view.empty()) fn(view);
    };
    call(weights.output_norm);
    for (auto& layer : weights.layers)
        for (auto* view : {&layer.attn_norm, &layer.q_bias, &layer.k_bias, &layer.v_bias, &layer.q_norm, &layer.k_norm,
                           &layer.attn_out_bias, &layer.ffn_norm})
            call(*view);
}

// Place of a matrix among all, in reading order.
std::size_t matrix_index(std::int64_t n_layers, std::int64_t layer, MatrixRole role) {
    if (role == MatrixRole::LmHead) return n_layers * kMatricesPerLayer;
    return layer * kMatricesPerLayer + static_cast<std::int64_t>(role);
}

// As another model has them, but for the rounding of those that are brought in anew.
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

std::size_t kv_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t context_tokens) {
    CHECK(context_tokens >= 0 && config.n_layers >= 0 && config.n_kv_heads >= 0 && config.head_dim >= 0,
          "KV of {} tokens", context_tokens);
    const std::int64_t n_chunks = context_tokens / kChunkTokens + (context_tokens % kChunkTokens > 0 ? 1 : 0);
    std::optional<std::size_t> bytes = 2 * row_bytes(kv_dtype, kChunkTokens);  // K and V of one element a token
    for (const std::int64_t factor : {n_chunks, config.n_layers, config.n_kv_heads, config.head_dim})
        if (bytes) bytes = checked_mul(*bytes, static_cast<std::size_t>(factor));
    return std::min(bytes.value_or(kMaxKvBytes), kMaxKvBytes);
}

Model::Model(const WeightSource& source, Device& device, const LoadOptions& options)
    : device_(&device),
      config_(options.shard ? shard_config(source.config(), *options.shard) : source.config()),
      weights_(options.shard ? shard_weights(source.weights(), source.config(), *options.shard) : source.weights()),
      rope_(rope_frequencies(config_, options.context_tokens > 0 ? options.context_tokens : config_.context_tokens)),
      context_tokens_(options.context_tokens > 0 ? options.context_tokens : config_.context_tokens),
      kv_dtype_(options.kv_dtype.value_or(config_.kv_dtype)),
      items_(items_of(weights_, options)),
      memory_(device, items_, options.placement, options.tag,
              options.shared.model != nullptr ? &options.shared.model->memory_ : nullptr, options.shared.own) {
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

// Where the rows of each matrix lie; weights_ gets the packed view of what is resident in one piece.
void Model::index_parts() {
    const auto n_layers = static_cast<std::int64_t>(weights_.layers.size());
    std::size_t n_matrices = 0;  // begun so far
    for (std::size_t i = 0; i < items_.size(); ++i) {
        for (const WeightPart& part : items_[i].parts) {
            const ConstTensorView& matrix = matrix_of(weights_, part.layer, part.role);
            if (part.first_row == 0) {
                CHECK(matrix_index(n_layers, part.layer, part.role) == n_matrices, "items out of reading order");
                part_begin_.push_back(parts_.size());
                ++n_matrices;
            }
            parts_.push_back({.item = static_cast<std::int32_t>(i),
                              .first_row = part.first_row,
                              .offset = part.offset,
                              .ends_item = &part == &items_[i].parts.back(),
                              .packed = packed_view(item_data(static_cast<std::int32_t>(i)) + part.offset,
                                                    packed_type(matrix, items_[i].rounding), part.n_rows,
                                                    matrix.shape[1], packed_layout(device_->kind()))});
        }
    }
    part_begin_.push_back(parts_.size());
    CHECK(n_matrices == static_cast<std::size_t>(n_layers * kMatricesPerLayer + 1), "{} matrices", n_matrices);
    for (std::size_t m = 0; m < n_matrices; ++m) {
        if (part_begin_[m + 1] - part_begin_[m] != 1) continue;
        const MatrixPart& part = parts_[part_begin_[m]];
        if (streams(part.item)) continue;
        const auto layer = static_cast<std::int64_t>(m) / kMatricesPerLayer;
        const MatrixRole role = layer == n_layers
                                    ? MatrixRole::LmHead
                                    : static_cast<MatrixRole>(static_cast<std::int64_t>(m) % kMatricesPerLayer);
        matrix_of(weights_, layer, role) = part.packed;
    }
}

std::span<const MatrixPart> Model::parts(std::int64_t layer, MatrixRole role) const {
    const std::size_t m = matrix_index(static_cast<std::int64_t>(weights_.layers.size()), layer, role);
    return std::span(parts_).subspan(part_begin_[m], part_begin_[m + 1] - part_begin_[m]);
}

std::size_t Model::small_tensor_bytes(const ModelWeights& weights) {
    std::size_t bytes = 0;
    for_each_small_tensor(weights, [&](const ConstTensorView& view) { bytes += row_bytes(DType::F32, view.cols()); });
    return bytes;
}

void Model::shard_small_tensors(const Model& other) {
    CHECK(other.device_ == device_, "a model shared from another device");
    std::vector<ConstTensorView> views;
    for_each_small_tensor(other.weights_, [&](const ConstTensorView& view) { views.push_back(view); });
    std::size_t at = 0;
    for_each_small_tensor(weights_, [&](ConstTensorView& view) {
        CHECK(at < views.size() && views[at].cols() == view.cols(), "a model shared from another one's files");
        view = views[at++];
    });
}

void Model::widen_small_tensors(MemoryTag tag) {
    const std::size_t bytes = small_tensor_bytes(weights_);
    small_tensors_ = device_->allocate(bytes, tag, "norms and biases");
    std::vector<float> widened(bytes / sizeof(float));
    float* row = widened.data();
    std::byte* at = small_tensors_.data();
    for_each_small_tensor(weights_, [&](ConstTensorView& view) {
        cpu::dequantize_row(view.dtype, view.data, row, view.cols());
        row += view.cols();
        view = vector_view(static_cast<const std::byte*>(at), DType::F32, view.cols());
        at += row_bytes(DType::F32, view.cols());
    });
    const std::unique_ptr<Stream> stream = device_->make_stream(StreamKind::Compute);
    stream->copy(small_tensors_.data(), widened.data(), bytes);
    stream->synchronize();
}

}  // namespace slipstream
