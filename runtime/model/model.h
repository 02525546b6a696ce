// A model loaded for one device and one context length: weights ready for the kernels, rope frequencies fixed.
//
// Matrices lie in items (runtime/model/weight_items.h). An item is resident, in memory of the device, or it streams:
// then it lies in a pinned arena of the host, and a PassStream brings it over once a pass.
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

/// What a model has in common with another one: norms and biases, and items.
struct SharedModel {
    const Model* model = nullptr;  // of the same files and shard, on the same device; outlives the one that is loaded
    std::vector<bool> own{};       // [its items]: brought in anew, the others are shared
};

struct LoadOptions {
    std::int64_t context_tokens = 0;                 // > 0: the context to serve; rope is fixed for it
    std::optional<DType> kv_dtype;                   // F16, BF16, F32; not given: the model's own
    WeightRounding rounding = WeightRounding::None;  // of the items that are brought in
    WeightPlacement placement{};
    std::optional<ModelShard> shard{};  // nothing: all of the model
    SharedModel shared{};               // no model: nothing is shared
    int n_readers = 2;                  // threads that read the files ahead
    MemoryTag tag = MemoryTag::Weights;
    /// Called with bytes done and bytes in all while the weights are brought into memory; may throw to give up.
    std::function<void(std::size_t, std::size_t)> on_progress;
};

/// Rows of a matrix, packed, in one item.
struct MatrixPart {
    std::int32_t item = 0;  // among Model::items()
    std::int64_t first_row = 0;
    std::size_t offset = 0;  // in the item
    bool ends_item = false;  // no part behind it in reading order lies in the same item
    ConstTensorView packed;  // where it lies now; in host memory where the item streams
};

class Model {
public:
    /// Brings the weights of `source` into memory: items where `options.placement` says, matrices in the layout of the
    /// device's matmul (kernels/pack_weights.h), norms, biases and scales widened to float, always resident. Pages of
    /// the source are released once they are copied; only the embedding table is used in place. `source` and `device`
    /// must outlive the model. Throws FormatError, Unsupported (a share that cuts through blocks), OutOfBudget,
    /// IoError.
    Model(const WeightSource& source, Device& device, const LoadOptions& options);

    [[nodiscard]] const ModelConfig& config() const { return config_; }
    /// Norms, biases and routers as they are computed with (a router packed, F32). Matrices: the packed view where one
    /// is resident in one piece, else the view of it in its file, which tells type and shape; so for those of experts,
    /// always.
    [[nodiscard]] const ModelWeights& weights() const { return weights_; }
    /// In reading order.
    [[nodiscard]] const std::vector<WeightItem>& items() const { return items_; }
    [[nodiscard]] bool streams(std::int32_t item) const { return memory_.streams(item); }
    [[nodiscard]] bool streams_weights() const { return streamed_bytes() > 0; }
    /// Bytes of items that stream: what a pass brings over the link.
    [[nodiscard]] std::size_t streamed_bytes() const { return memory_.streamed_bytes(); }
    [[nodiscard]] const std::byte* item_data(std::int32_t item) const { return memory_.data(item); }
    /// Returns the parts of a matrix in ascending rows. `layer` is ignored for the LM head.
    [[nodiscard]] std::span<const MatrixPart> parts(std::int64_t layer, TensorRole role,
                                                    std::int32_t expert = kNoExpert) const;
    /// Returns whether an item with matrices of the expert streams.
    [[nodiscard]] bool expert_streams(std::int64_t layer, std::int32_t expert) const;
    /// [config().ropes]: the frequencies of each rotary embedding.
    [[nodiscard]] const std::vector<RopeFrequencies>& ropes() const { return ropes_; }
    [[nodiscard]] Device& device() const { return *device_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }
    /// Returns [config().n_layers()]: the layout of each layer's KV.
    [[nodiscard]] std::vector<KvLayout> kv_layouts() const { return config_.kv_layouts(kv_dtype_); }

    /// Bytes of the small tensors (norms, biases, routers), which every placement keeps on the device.
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
    Buffer small_tensors_;  // norms, biases and routers as float, where they are not shared
    std::vector<WeightItem> items_;
    ItemMemory memory_;              // of the items
    std::vector<MatrixPart> parts_;  // by matrix, in reading order
    struct PartRange {
        std::size_t first = 0;  // index in parts_
        std::size_t n = 0;
    };
    std::vector<std::array<PartRange, kTensorRoles>> part_ranges_;  // [n_layers + 1]; the last: of the LM head
    using ExpertRanges = std::array<PartRange, kExpertTensors.size()>;
    std::vector<std::vector<ExpertRanges>> expert_ranges_;  // [n_layers][n_experts]
};

}  // namespace slipstream
