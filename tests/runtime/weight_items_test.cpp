// Items of a model: every row once and in reading order, within the limit, never across the attention, few and even.
#include "runtime/model/weight_items.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/pack_weights.h"
#include "tests/support/error_text.h"
#include "tests/support/layers.h"

namespace slipstream {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

ConstTensorView shape_only(DType type, std::int64_t rows, std::int64_t cols) {
    return matrix_view(static_cast<const std::byte*>(nullptr), type, rows, cols);
}

/// A model of one type throughout.
ModelWeights uniform_model(DType type, std::int64_t n_layers, std::int64_t d_model, std::int64_t kv, std::int64_t d_ff,
                           std::int64_t vocab) {
    ModelWeights weights;
    weights.token_embedding = weights.lm_head = shape_only(type, vocab, d_model);
    weights.layers.resize(static_cast<std::size_t>(n_layers));
    for (LayerWeights& layer : weights.layers) {
        layer[TensorRole::Q] = layer[TensorRole::AttnOut] = shape_only(type, d_model, d_model);
        layer[TensorRole::K] = layer[TensorRole::V] = shape_only(type, kv, d_model);
        layer[TensorRole::Gate] = layer[TensorRole::Up] = shape_only(type, d_ff, d_model);
        layer[TensorRole::Down] = shape_only(type, d_model, d_ff);
    }
    return weights;
}

/// Matrices of any type and number of rows, no two alike.
ModelWeights random_model(std::mt19937& random) {
    const auto matrix = [&] {
        const auto type = static_cast<DType>(random() % kDTypeCount);
        const std::int64_t block = dtype_info(type).block_elements;
        std::uniform_int_distribution<std::int64_t> rows(1, 200), blocks(1, 1024 / block);
        return shape_only(type, rows(random), block * blocks(random));
    };
    ModelWeights weights;
    weights.layers.resize(1 + random() % 3);
    const auto n_layers = static_cast<std::int64_t>(weights.layers.size());
    for (std::int64_t layer = 0; layer < n_layers; ++layer)
        for (const TensorRole role : layer_matrices()) weights.tensor(layer, role) = matrix();
    weights.lm_head = matrix();
    return weights;
}

ReadStage stage_of(TensorRole role) {
    for (const TensorInfo& info : kLayerTensors)
        if (info.role == role) return info.stage;
    return ReadStage::LmHead;
}

std::size_t group_bytes(const ModelWeights& weights, const WeightPart& part, WeightRounding rounding) {
    const ConstTensorView& matrix = weights.tensor(part.layer, part.role);
    return packed_bytes(packed_type(matrix, rounding), kInterleavedRows, matrix.cols());
}

/// Every row of every matrix once, in the order of reading.
void expect_all_rows_in_order(const ModelWeights& weights, const std::vector<WeightItem>& items) {
    const auto n_layers = static_cast<std::int64_t>(weights.layers.size());
    std::vector<WeightPart> parts;
    for (const WeightItem& item : items) {
        EXPECT_FALSE(item.parts.empty());
        parts.insert(parts.end(), item.parts.begin(), item.parts.end());
    }
    std::size_t at = 0;
    const auto expect_matrix = [&](std::int64_t layer, TensorRole role) {
        const std::int64_t rows = weights.tensor(layer, role).shape[0];
        for (std::int64_t row = 0; row < rows; ++at) {
            ASSERT_LT(at, parts.size());
            ASSERT_EQ(parts[at].layer, layer);
            ASSERT_EQ(parts[at].role, role);
            ASSERT_EQ(parts[at].first_row, row);
            ASSERT_GT(parts[at].n_rows, 0);
            row += parts[at].n_rows;
            ASSERT_TRUE(row == rows || row % kInterleavedRows == 0) << row << " of " << rows;
        }
    };
    for (std::int64_t layer = 0; layer < n_layers; ++layer)
        for (const TensorRole role : layer_matrices()) ASSERT_NO_FATAL_FAILURE(expect_matrix(layer, role));
    ASSERT_NO_FATAL_FAILURE(expect_matrix(n_layers, TensorRole::LmHead));
    EXPECT_EQ(at, parts.size());
}

/// One side of the attention, parts that do not overlap at aligned offsets, no more than the limit.
void expect_sound(const ModelWeights& weights, const WeightItem& item, WeightRounding rounding, std::size_t limit) {
    std::size_t end = 0;
    std::int64_t rows = 0;
    for (const WeightPart& part : item.parts) {
        EXPECT_EQ(part.layer, item.layer);
        EXPECT_EQ(stage_of(part.role), stage_of(item.parts.front().role));
        EXPECT_EQ(part.offset, end) << "the first multiple of 64 behind the part before";
        end += round_up(
            static_cast<std::size_t>(ceil_div(part.n_rows, kInterleavedRows)) * group_bytes(weights, part, rounding),
            std::size_t{64});
        rows += part.n_rows;
    }
    EXPECT_EQ(item.bytes, end);
    if (item.bytes > limit) {
        EXPECT_EQ(item.parts.size(), 1U);
        EXPECT_LE(rows, kInterleavedRows);
    }
}

/// Items that filling one after the other to the brim, group by group, would take.
std::size_t brimful_items(const ModelWeights& weights, const std::vector<WeightPart>& parts, WeightRounding rounding,
                          std::size_t limit) {
    std::size_t n_items = 1;
    std::size_t closed = 0;  // bytes of the open item's parts before the one that is being filled
    std::size_t open = 0;    // of that one
    for (const WeightPart& part : parts) {
        closed += round_up(open, std::size_t{64});
        open = 0;
        for (std::int64_t row = 0; row < part.n_rows; row += kInterleavedRows) {
            const std::size_t more = group_bytes(weights, part, rounding);
            if (closed + open > 0 && closed + round_up(open + more, std::size_t{64}) > limit) {
                ++n_items;
                closed = open = 0;
            }
            open += more;
        }
    }
    return n_items;
}

/// As few items as there can be, and the largest as small as that allows, of each side.
void expect_few_and_even(const ModelWeights& weights, const std::vector<WeightItem>& items, WeightRounding rounding,
                         std::size_t limit) {
    for (auto begin = items.begin(); begin != items.end();) {
        const auto same = [&](const WeightItem& item) {
            return item.layer == begin->layer && stage_of(item.parts[0].role) == stage_of(begin->parts[0].role);
        };
        const auto end = std::find_if_not(begin, items.end(), same);
        std::vector<WeightPart> whole;  // matrices of the side
        std::size_t total = 0, largest = 0, largest_group = 0;
        for (auto item = begin; item != end; ++item) {
            total += item->bytes;
            largest = std::max(largest, item->bytes);
            for (const WeightPart& part : item->parts) {
                largest_group = std::max(largest_group, group_bytes(weights, part, rounding));
                if (part.first_row == 0) whole.push_back(part);
                whole.back().n_rows = part.first_row + part.n_rows;
            }
        }
        const auto n = static_cast<std::size_t>(end - begin);
        EXPECT_EQ(n, brimful_items(weights, whole, rounding, limit));
        // An item that is filled to this lacks less than a group and the rounding of five parts, so n of them do.
        EXPECT_LE(largest, std::max(ceil_div(total, n) + largest_group + 5 * 64, largest_group + 64));
        begin = end;
    }
}

TEST(WeightItems, HoldEveryRowOnceWithinTheLimit) {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        std::mt19937 random(seed);
        const ModelWeights weights = random_model(random);
        const WeightRounding rounding = seed % 2 == 0 ? WeightRounding::Q8_0 : WeightRounding::None;
        const std::size_t limit = std::size_t{1} << (6 + random() % 16);
        const std::size_t odd_limit = limit + random() % 64;
        const std::vector<WeightItem> items = cut_weight_items(weights, rounding, odd_limit);
        expect_all_rows_in_order(weights, items);
        for (const WeightItem& item : items) expect_sound(weights, item, rounding, odd_limit);
        expect_few_and_even(weights, items, rounding, limit);
        if (HasFailure()) return;
    }
}

TEST(WeightItems, AreASideEachWithoutALimit) {
    const ModelWeights weights = uniform_model(DType::Q4_K, 3, 256, 64, 512, 1000);
    const std::vector<WeightItem> items = cut_weight_items(weights, WeightRounding::None, SIZE_MAX);
    ASSERT_EQ(items.size(), 7U);
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(items[i].layer, static_cast<std::int64_t>(i / 2));
        EXPECT_EQ(items[i].parts.size(), i % 2 == 0 ? 3U : 4U);
    }
    EXPECT_EQ(items[6].layer, 3);
    EXPECT_EQ(items[6].bytes, packed_bytes(DType::Q4_K, 1000, 256));
}

TEST(WeightItems, OfOneMatrixAreAboutEqual) {
    ModelWeights weights = uniform_model(DType::BF16, 0, 4096, 0, 0, 12800);  // an LM head of 100 MiB
    const std::vector<WeightItem> items = cut_weight_items(weights, WeightRounding::None, 64 * kMiB);
    ASSERT_EQ(items.size(), 2U);
    EXPECT_EQ(items[0].bytes, 50 * kMiB);
    EXPECT_EQ(items[1].bytes, 50 * kMiB);
    EXPECT_EQ(items[1].parts[0].first_row, 6400);
    weights.lm_head = shape_only(DType::BF16, 12801, 4096);
    EXPECT_EQ(cut_weight_items(weights, WeightRounding::None, 50 * kMiB).size(), 3U);
}

TEST(WeightItems, OfALargeModelFillTheirCopies) {
    // The shape of Llama 70B: 80 layers, of about 45 and 406 MiB a side, and an LM head of 141 MiB.
    const ModelWeights weights = uniform_model(DType::Q4_K, 80, 8192, 1024, 28672, 32064);
    const std::vector<WeightItem> items = cut_weight_items(weights, WeightRounding::None, 64 * kMiB);
    EXPECT_EQ(items.size(), 80U * (1 + 7) + 3);
    std::size_t total = 0;
    double flops = 0;
    for (const WeightItem& item : items) {
        EXPECT_LE(item.bytes, 64 * kMiB);
        EXPECT_GT(item.bytes, 40 * kMiB);
        total += item.bytes;
        flops += item_flops_per_token(weights, item);
    }
    const double elements = 80.0 * (2.0 * 8192 * 8192 + 2.0 * 1024 * 8192 + 3.0 * 28672 * 8192) + 32064.0 * 8192;
    EXPECT_EQ(flops, 2.0 * elements);
    EXPECT_EQ(static_cast<double>(total), elements * 144 / 256);
}

TEST(WeightItems, AreAGroupOfRowsWhereTheLimitIsBelowIt) {
    const ModelWeights weights = uniform_model(DType::F32, 1, 40, 8, 24, 33);
    for (const std::size_t limit : {0, 1, 64, 1000}) {
        const std::vector<WeightItem> items = cut_weight_items(weights, WeightRounding::None, limit);
        EXPECT_EQ(items.size(), 3U + 1 + 1 + 3 + 2 + 2 + 3 + 3) << limit;
        for (const WeightItem& item : items) EXPECT_EQ(item.parts.size(), 1U);
        expect_all_rows_in_order(weights, items);
    }
}

TEST(WeightItems, AreCountedAsRounded) {
    const ModelWeights weights = uniform_model(DType::F32, 1, 64, 32, 96, 100);
    const std::vector<WeightItem> items = cut_weight_items(weights, WeightRounding::Q8_0, SIZE_MAX);
    ASSERT_EQ(items.size(), 3U);
    EXPECT_EQ(items[0].bytes, packed_bytes(DType::Q8_0, 64 + 32 + 32, 64));
    EXPECT_EQ(items[2].bytes, packed_bytes(DType::Q8_0, 112, 64));
    EXPECT_EQ(packed_type(shape_only(DType::F16, 5, 64), WeightRounding::Q8_0), DType::Q8_0);
    EXPECT_EQ(packed_type(shape_only(DType::BF16, 5, 32), WeightRounding::Q8_0), DType::Q8_0);
    EXPECT_EQ(packed_type(shape_only(DType::F32, 5, 48), WeightRounding::Q8_0), DType::F32) << "not of whole blocks";
    EXPECT_EQ(packed_type(shape_only(DType::Q4_K, 5, 256), WeightRounding::Q8_0), DType::Q4_K);
    EXPECT_EQ(packed_type(shape_only(DType::F16, 5, 64), WeightRounding::None), DType::F16);
}

TEST(WeightItems, ATypeWithoutKernelsIsRefusedByName) {
    ModelWeights weights = uniform_model(DType::IQ4_NL, 2, 256, 64, 512, 100);
    check_kernels(weights, DeviceKind::Cuda);
    weights.token_embedding = shape_only(DType::IQ4_XS, 100, 256);  // its rows are the host's
    check_kernels(weights, DeviceKind::Cuda);
    for (const DType type : {DType::IQ4_XS, DType::Q2_K}) {
        weights.layers[1][TensorRole::Down] = shape_only(type, 256, 512);
        check_kernels(weights, DeviceKind::Cpu);
        const std::string line = error_text<Unsupported>([&] { check_kernels(weights, DeviceKind::Cuda); });
        EXPECT_EQ(line.find(fmt::format("matrices of type {} are not served on GPUs; use --devices cpu, or a file of "
                                        "the same model in other types (served on GPUs: F32, F16, ",
                                        dtype_name(type))),
                  0U)
            << line;
    }
}

TEST(WeightItems, RefuseMoreBytesThanCanBeCounted) {
    ModelWeights weights = uniform_model(DType::F32, 1, 64, 32, 96, 100);
    weights.layers[0][TensorRole::Up] = shape_only(DType::F32, std::int64_t{1} << 40, std::int64_t{1} << 40);
    EXPECT_EQ(
        error_text<FormatError>([&] { static_cast<void>(cut_weight_items(weights, WeightRounding::None, 64 * kMiB)); }),
        "layer 0: a matrix [1099511627776, 1099511627776] of F32 takes more bytes than can be counted");
    weights.layers[0][TensorRole::Up] =
        shape_only(DType::F32, std::int64_t{1} << 40, std::int64_t{1} << 16);  // alone it could
    EXPECT_THROW(static_cast<void>(cut_weight_items(weights, WeightRounding::None, 64 * kMiB)), FormatError);
    weights.layers[0][TensorRole::Up] = shape_only(DType::F32, 1, std::int64_t{1} << 60);
    EXPECT_THROW(static_cast<void>(cut_weight_items(weights, WeightRounding::None, 64 * kMiB)), FormatError);
    weights.layers[0][TensorRole::Up] = shape_only(DType::F32, INT64_MAX, 1);
    EXPECT_THROW(static_cast<void>(cut_weight_items(weights, WeightRounding::None, 64 * kMiB)), FormatError);
}

}  // namespace
}  // namespace slipstream
