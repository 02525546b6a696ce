// A model's matrices as the pieces that travel: cut so that each fits a copy, never across the attention of a layer.
//
// A layer's matrices in reading order are q, k, v | attention output, gate, up, down; the KV cache of the layer is read
// where the bar stands, so no item reaches across it. A matrix larger than an item is cut by rows, at multiples of the
// 16 that are interleaved; a product is then computed part by part, each output element by exactly the same sum (E1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

/// What becomes of matrices of a float type when they are packed.
enum class WeightRounding : std::uint8_t {
    None,
    Q8_0,  // half of bfloat16's bytes: for a model whose guesses are checked anyway, never for a target
};

enum class MatrixRole : std::uint8_t { Q, K, V, AttnOut, Gate, Up, Down, LmHead };
inline constexpr MatrixRole kLayerMatrices[] = {MatrixRole::Q,    MatrixRole::K,  MatrixRole::V,   MatrixRole::AttnOut,
                                                MatrixRole::Gate, MatrixRole::Up, MatrixRole::Down};
/// The matrix of that role, `layer` in [0, n_layers); any layer for the LM head.
[[nodiscard]] const ConstTensorView& matrix_of(const ModelWeights& weights, std::int64_t layer, MatrixRole role);
[[nodiscard]] ConstTensorView& matrix_of(ModelWeights& weights, std::int64_t layer, MatrixRole role);

/// The type that a matrix has once it is packed.
[[nodiscard]] DType packed_type(const ConstTensorView& matrix, WeightRounding rounding);

/// Rows [first_row, first_row + n_rows) of a matrix, packed at `offset` (64-byte aligned) of its item.
struct WeightPart {
    std::int64_t layer = 0;
    MatrixRole role = MatrixRole::Q;
    std::int64_t first_row = 0;  // a multiple of kInterleavedRows
    std::int64_t n_rows = 0;     // the same, but for the matrix's end
    std::size_t offset = 0;
};

struct WeightItem {
    std::int64_t layer = 0;         // n_layers for the LM head
    std::vector<WeightPart> parts;  // in reading order
    std::size_t bytes = 0;          // of all parts, packed, a multiple of 64
    WeightRounding rounding = WeightRounding::None;
};

/// All items in reading order, all of one rounding, each of at most `max_item_bytes` (more only where 16 rows of a
/// matrix take more). The matrices of one side of a layer's attention share as few items as hold them, all about equal.
/// Only shapes and types are looked at, so the weights may be without data. Throws FormatError where bytes are more
/// than can be counted.
[[nodiscard]] std::vector<WeightItem> cut_weight_items(const ModelWeights& weights, WeightRounding rounding,
                                                       std::size_t max_item_bytes);

/// The same rows with another rounding.
[[nodiscard]] WeightItem with_rounding(const ModelWeights& weights, const WeightItem& item, WeightRounding rounding);

/// Floating-point operations of an item for each token of a pass: 2 * elements.
[[nodiscard]] double item_flops_per_token(const ModelWeights& weights, const WeightItem& item);

}  // namespace slipstream
