// The matrices of a model as items: the unit in which weights are placed and copied. Items are cut so that each fits a
// copy, and an item never spans the KV of a layer: the matrices that a pass reads before the layer's KV and those that
// it reads after it (TensorInfo::stage) are in different items.
//
// A matrix larger than an item is cut by rows, at multiples of the 16 that are interleaved. A product is then computed
// part by part; each output element has the same sum, so its bits stay the same (batch invariance, E1).
//
// An expert is one item {gate, up, down} of any size: it is one copy, and its matrices are on the device together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// What becomes of matrices of a float type when they are packed.
enum class WeightRounding : std::uint8_t {
    None,
    Q8_0,  // half of bfloat16's bytes: for a model whose draft tokens are verified, never for a target
};

/// Returns the type that a matrix has after packing.
[[nodiscard]] DType packed_type(const ConstTensorView& matrix, WeightRounding rounding);

/// Rows [first_row, first_row + n_rows) of a matrix, packed at `offset` (64-byte aligned) of its item.
struct WeightPart {
    std::int64_t layer = 0;
    TensorRole role = TensorRole::Q;
    std::int64_t first_row = 0;  // a multiple of kInterleavedRows
    std::int64_t n_rows = 0;     // a multiple of kInterleavedRows, unless it ends the matrix
    std::size_t offset = 0;
    std::int32_t expert = kNoExpert;
};

struct WeightItem {
    std::int64_t layer = 0;  // n_layers for the LM head
    ReadStage stage = ReadStage::BeforeKv;
    std::vector<WeightPart> parts;  // in reading order
    std::size_t bytes = 0;          // bytes of all parts together, packed; a multiple of 64
    WeightRounding rounding = WeightRounding::None;
    std::int32_t expert = kNoExpert;  // whose matrices alone it has
};

inline constexpr std::size_t kUncutItems = std::numeric_limits<std::size_t>::max();

/// Returns all items in reading order, all with the rounding `rounding`, each of at most `max_item_bytes` (more only if
/// 16 rows of a matrix take more, or if it is an expert). The matrices of a stage of a layer share the least number of
/// items, of about equal size; the layer's experts follow, in ascending order. Reads shapes and types only, so the
/// weights may have no data. Throws FormatError if there are more bytes than can be counted.
[[nodiscard]] std::vector<WeightItem> cut_weight_items(const ModelWeights& weights, WeightRounding rounding,
                                                       std::size_t max_item_bytes);

/// Returns an item that has the rows of `item` and the rounding `rounding`.
[[nodiscard]] WeightItem with_rounding(const ModelWeights& weights, const WeightItem& item, WeightRounding rounding);

/// Throws Unsupported if devices of a kind have no kernels for experts, if there are any, or for the type of a matrix
/// that a pass multiplies by. Reads types only.
void check_kernels(const ModelWeights& weights, DeviceKind kind);

/// Returns the floating-point operations of an item for each token that is multiplied with it: 2 * elements. Those are
/// all tokens of a pass, but of an expert only the tokens that chose it.
[[nodiscard]] double item_flops_per_token(const ModelWeights& weights, const WeightItem& item);

/// Calls on_item(index) for every item and on_kv(layer) for the KV of every layer, in the order in which a pass reads
/// them. `items` must have items of all `n_layers` layers and an LM head, as cut_weight_items() returns them (CHECKed).
template <typename OnItem, typename OnKv>
void for_each_read(std::span<const WeightItem> items, std::int64_t n_layers, const OnItem& on_item, const OnKv& on_kv) {
    std::int64_t layer = 0;  // layer whose KV is next
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (items[i].stage == ReadStage::AfterKv && items[i].layer == layer) on_kv(layer++);
        on_item(i);
    }
    CHECK(layer == n_layers, "items of {} layers of {}", layer, n_layers);
}

}  // namespace slipstream
