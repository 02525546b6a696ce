// A side of a layer's attention is a run of groups of 16 rows, one matrix behind the other. Items are filled with them
// in turn as full as a limit allows, which gives the least number of items; the limit is then lowered as far as that
// number stays, so that the items of a side are about equal and none is a short rest. A part starts at the next 64
// bytes, which is why the room of an item is counted in multiples of 64.
#include "runtime/model/weight_items.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/pack_weights.h"

namespace slipstream {

namespace {

constexpr std::size_t kPartAlignBytes = 64;
// Elements of a row that share a scale in Q8_0.
constexpr std::int64_t kRoundedBlock = 32;
// Limits the packed bytes of a matrix: far beyond any model, but the matrices of a side, their parts each rounded up to
// 64 bytes, still add up without overflow.
constexpr std::size_t kMaxMatrixBytes = std::size_t{1} << 56;

/// A matrix as groups of 16 rows; it can be cut between two groups.
struct GroupedMatrix {
    TensorRole role = TensorRole::Q;
    std::int32_t expert = kNoExpert;
    std::int64_t n_rows = 0;
    std::int64_t n_groups = 0;
    std::size_t group_bytes = 0;  // packed
};

bool is_float(DType type) {
    return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

GroupedMatrix grouped(const ModelWeights& weights, std::int64_t layer, TensorRole role, std::int32_t expert,
                      WeightRounding rounding) {
    const ConstTensorView& matrix = weights.tensor(layer, role, expert);
    const std::int64_t rows = matrix.shape[0];
    const std::int64_t cols = matrix.shape[1];
    CHECK(matrix.rank == 2 && rows > 0 && cols > 0, "a matrix of {} dimensions, [{}, {}]", matrix.rank, rows, cols);
    const DType type = packed_type(matrix, rounding);
    const std::int64_t n_groups = rows / kInterleavedRows + (rows % kInterleavedRows != 0 ? 1 : 0);
    const DTypeInfo& info = dtype_info(type);
    std::optional<std::size_t> bytes = info.block_bytes;
    for (const std::int64_t factor : {cols / info.block_elements, kInterleavedRows, n_groups})
        if (bytes) bytes = checked_mul(*bytes, static_cast<std::size_t>(factor));
    if (!bytes || *bytes > kMaxMatrixBytes)
        throw FormatError(fmt::format("layer {}: a matrix [{}, {}] of {} takes more bytes than can be counted", layer,
                                      rows, cols, dtype_name(type)));
    return {role, expert, rows, n_groups, packed_bytes(type, kInterleavedRows, cols)};
}

void append_part(WeightItem& item, const GroupedMatrix& matrix, std::int64_t first_group, std::int64_t n_groups) {
    const std::int64_t first_row = first_group * kInterleavedRows;
    const std::int64_t n_rows =
        first_group + n_groups == matrix.n_groups ? matrix.n_rows - first_row : n_groups * kInterleavedRows;
    item.parts.push_back({item.layer, matrix.role, first_row, n_rows, item.bytes, matrix.expert});
    item.bytes += round_up(n_groups * matrix.group_bytes, kPartAlignBytes);
}

/// Returns items of at most `limit` bytes (a multiple of 64), each as full as the limit allows; a group that is larger
/// alone is an item of its own.
std::vector<WeightItem> fill_items(std::span<const GroupedMatrix> matrices, std::int64_t layer, std::size_t limit) {
    std::vector<WeightItem> items(1);
    items.back().layer = layer;
    for (const GroupedMatrix& matrix : matrices) {
        for (std::int64_t group = 0; group < matrix.n_groups;) {
            const std::size_t room = limit - std::min(limit, items.back().bytes);
            auto n = static_cast<std::int64_t>(
                std::min(room / matrix.group_bytes, static_cast<std::size_t>(matrix.n_groups - group)));
            if (n == 0 && items.back().bytes > 0) {
                items.emplace_back().layer = layer;
                continue;
            }
            n = std::max<std::int64_t>(n, 1);
            append_part(items.back(), matrix, group, n);
            group += n;
        }
    }
    return items;
}

std::vector<WeightItem> balanced_items(std::span<const GroupedMatrix> matrices, std::int64_t layer,
                                       std::size_t max_item_bytes) {
    const std::size_t max_steps = std::max<std::size_t>(max_item_bytes / kPartAlignBytes, 1);
    std::vector<WeightItem> items = fill_items(matrices, layer, max_steps * kPartAlignBytes);
    if (items.size() == 1) return items;
    // Searches the least limit of an item's bytes, in steps of 64 bytes, with which there are no more items than these.
    // A greater limit never makes more items, since each item then ends no earlier.
    std::size_t low = 1;
    std::size_t high = max_steps;
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        std::vector<WeightItem> tried = fill_items(matrices, layer, middle * kPartAlignBytes);
        if (tried.size() > items.size()) {
            low = middle + 1;
        } else {
            high = middle;
            items = std::move(tried);
        }
    }
    return items;
}

}  // namespace

DType packed_type(const ConstTensorView& matrix, WeightRounding rounding) {
    const bool rounded =
        rounding == WeightRounding::Q8_0 && is_float(matrix.dtype) && matrix.cols() % kRoundedBlock == 0;
    return rounded ? DType::Q8_0 : matrix.dtype;
}

std::vector<WeightItem> cut_weight_items(const ModelWeights& weights, WeightRounding rounding,
                                         std::size_t max_item_bytes) {
    std::vector<WeightItem> items;
    const auto cut = [&](std::int64_t layer, ReadStage stage, std::span<const TensorInfo> tensors, std::size_t limit,
                         std::int32_t expert = kNoExpert) {
        std::vector<GroupedMatrix> matrices;
        for (const TensorInfo& info : tensors)
            if (info.is_matrix() && info.stage == stage && weights.tensor(layer, info.role, expert).rank > 0)
                matrices.push_back(grouped(weights, layer, info.role, expert, rounding));
        for (WeightItem& item : balanced_items(matrices, layer, limit)) {
            item.stage = stage;
            item.rounding = rounding;
            item.expert = expert;
            items.push_back(std::move(item));
        }
    };
    const auto n_layers = static_cast<std::int64_t>(weights.layers.size());
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        for (const ReadStage stage : {ReadStage::BeforeKv, ReadStage::AfterKv})
            cut(layer, stage, kLayerTensors, max_item_bytes);
        for (std::int32_t expert = 0; expert < std::ssize(weights.layers[layer].experts); ++expert)
            cut(layer, ReadStage::AfterKv, kExpertTensors, kUncutItems, expert);
    }
    cut(n_layers, ReadStage::LmHead, kModelTensors, max_item_bytes);
    return items;
}

void check_kernels(const ModelWeights& weights, DeviceKind kind) {
    for_each_pass_matrix(weights, [&](const ConstTensorView& matrix) {
        if (multiplies(kind, matrix.dtype)) return;
        std::vector<std::string_view> served;
        for (int i = 0; i < kDTypeCount; ++i)
            if (multiplies(kind, static_cast<DType>(i))) served.push_back(dtype_name(static_cast<DType>(i)));
        throw Unsupported(
            fmt::format("matrices of type {} are not served on GPUs; use --devices cpu, or a file of the same model in "
                        "other types (served on GPUs: {})",
                        dtype_name(matrix.dtype), fmt::join(served, ", ")));
    });
}

WeightItem with_rounding(const ModelWeights& weights, const WeightItem& item, WeightRounding rounding) {
    WeightItem rounded{
        .layer = item.layer, .stage = item.stage, .parts = {}, .bytes = 0, .rounding = rounding, .expert = item.expert};
    for (const WeightPart& part : item.parts)
        append_part(rounded, grouped(weights, part.layer, part.role, part.expert, rounding),
                    part.first_row / kInterleavedRows, ceil_div(part.n_rows, kInterleavedRows));
    return rounded;
}

double item_flops_per_token(const ModelWeights& weights, const WeightItem& item) {
    double elements = 0.0;
    for (const WeightPart& part : item.parts)
        elements += static_cast<double>(part.n_rows) *
                    static_cast<double>(weights.tensor(part.layer, part.role, part.expert).cols());
    return 2.0 * elements;
}

}  // namespace slipstream
