// A model loaded for one device and one context length: weights ready for the kernels, rope frequencies fixed.
//
// Matrices are in items (runtime/model/weight_items.h). An item is resident, in device memory, or it streams: then it
// is in a pinned arena of the host, and a PassStream copies it to the device in each pass that reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "runtime/model/item_memory.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/rope.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weight_source.h"

namespace slipstream {

class Model;

/// What a model shares with another one that is loaded already: norms, biases and scales, and items.
struct SharedModel {
    const Model* model = nullptr;  // a model of the same files, shard and device; must outlive the model that is loaded
    std::vector<bool> own{};       // [items of `model`]: true: loaded anew; false: shared
};

struct LoadOptions {
    std::int64_t context_tokens = 0;                 // context to serve, for which rope is fixed; 0: that of the model
    std::optional<DType> kv_dtype;                   // F16, BF16 or F32; nullopt: the model's own
    WeightRounding rounding = WeightRounding::None;  // rounding of the items that are loaded anew
    WeightPlacement placement{};
    std::optional<ModelShard> shard{};  // nullopt: the whole model
    SharedModel shared{};               // model null: nothing is shared
    int n_readers = 2;                  // threads that read the files ahead
    MemoryTag tag = MemoryTag::Weights;
    /// Called with the bytes done and in total while the weights are loaded; may throw, which ends the loading.
    std::function<void(std::size_t, std::size_t)> on_progress;
};

/// Rows of a matrix, packed, in one item.
struct MatrixPart {
    std::int32_t item = 0;  // among Model::items()
    std::int64_t first_row = 0;
    std::size_t offset = 0;  // in the item
    bool ends_item = false;  // no later part in reading order is in the same item
    ConstTensorView packed;  // where the part is now; in host memory if the item streams
};

class Model {
public:
    /// Loads the weights of `source`: items to the memory that `options.placement` says, matrices in the layout of the
    /// device's matmul (kernels/pack_weights.h); norms, biases and scales widened to float and always resident. Pages
    /// of the source are released once they are copied; only the embedding table is used in place. `source` and
    /// `device` must outlive the model. Throws FormatError, Unsupported (a shard that cuts through quantisation
    /// blocks), OutOfBudget, IoError.
    Model(const WeightSource& source, Device& device, const LoadOptions& options);

    [[nodiscard]] const ModelConfig& config() const { return config_; }
    /// Returns the tensors. Norms, biases, scales and routers are those with which passes compute (a router is packed,
    /// F32). A matrix that is resident in one part is the packed view; any other one, and every matrix of an expert, is
    /// the view of it in its file, of which only type and shape may be used.
    [[nodiscard]] const ModelWeights& weights() const { return weights_; }
    /// Returns the items in reading order.
    [[nodiscard]] const std::vector<WeightItem>& items() const { return items_; }
    [[nodiscard]] bool streams(std::int32_t item) const { return memory_.streams(item); }
    [[nodiscard]] bool streams_weights() const { return streamed_bytes() > 0; }
    /// Returns the bytes of items that stream: the most that a pass copies over the link.
    [[nodiscard]] std::size_t streamed_bytes() const { return memory_.streamed_bytes(); }
    [[nodiscard]] const std::byte* item_data(std::int32_t item) const { return memory_.data(item); }
    /// Returns the parts of a matrix in ascending rows. `layer` is ignored for the LM head.
    [[nodiscard]] std::span<const MatrixPart> parts(std::int64_t layer, TensorRole role,
                                                    std::int32_t expert = kNoExpert) const;
    /// Returns the item of an expert.
    [[nodiscard]] std::int32_t expert_item(std::int64_t layer, std::int32_t expert) const {
        return parts(layer, kExpertTensors.front().role, expert).front().item;
    }
    /// Returns whether an item is copied only for passes that read it: it streams and is of an expert.
    [[nodiscard]] bool is_on_demand(std::int32_t item) const {
        return streams(item) && items_[item].expert != kNoExpert;
    }
    /// Returns whether any expert streams.
    [[nodiscard]] bool experts_stream() const { return experts_stream_; }
    /// Returns the frequencies of each rotary embedding, [config().ropes].
    [[nodiscard]] const std::vector<RopeFrequencies>& ropes() const { return ropes_; }
    [[nodiscard]] Device& device() const { return *device_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }
    /// Returns [config().n_layers()]: the layout of each layer's KV.
    [[nodiscard]] std::vector<KvLayout> kv_layouts() const { return config_.kv_layouts(kv_dtype_); }

    /// Returns the bytes of the small tensors (norms, biases, scales, routers) as float, which every placement keeps on
    /// the device.
    [[nodiscard]] static std::size_t small_tensor_bytes(const ModelWeights& weights);

private:
    void widen_small_tensors(MemoryTag tag);
    void shard_small_tensors(const Model& other);
    void load_own_items(const WeightSource& source, const LoadOptions& options);
    void index_parts();

    Device* device_;
    ModelConfig config_;
    ModelWeights weights_;
    std::int64_t context_tokens_;
    std::vector<RopeFrequencies> ropes_;
    DType kv_dtype_;
    Buffer small_tensors_;  // norms, biases, scales and routers as float; empty if they are shared
    std::vector<WeightItem> items_;
    ItemMemory memory_;              // of the items
    std::vector<MatrixPart> parts_;  // the parts of one matrix are adjacent; in reading order
    struct PartRange {
        std::size_t first = 0;  // index in parts_
        std::size_t n = 0;
    };
    // [n_layers + 1]: parts of each layer; last, of the LM head.
    std::vector<std::array<PartRange, kTensorRoles>> part_ranges_;
    using ExpertRanges = std::array<PartRange, kExpertTensors.size()>;
    // [n_layers][n_experts]: parts of each matrix of an expert; empty for a layer without experts.
    std::vector<std::vector<ExpertRanges>> expert_ranges_;
    bool experts_stream_ = false;
};

}  // namespace slipstream
