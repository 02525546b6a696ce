#include "tests/support/shard_check.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/matmul.h"
#include "runtime/model/model.h"

namespace slipstream {

namespace {

constexpr std::int64_t kVectors = 3;

/// Multiplies a matrix of a model, from its column `first_col` on, with the vectors `x` [kVectors, x columns]. Returns
/// [kVectors, rows].
class Products {
public:
    explicit Products(Device& device) : device_(device), stream_(device.make_stream(StreamKind::Compute)) {}

    std::vector<float> operator()(const Model& model, std::int64_t layer, TensorRole role, const std::vector<float>& x,
                                  std::int64_t first_col) {
        const std::span<const MatrixPart> parts = model.parts(layer, role);
        const std::int64_t cols = parts[0].packed.cols();
        const std::int64_t rows = parts.back().first_row + parts.back().packed.shape[0];
        std::vector<float> mine(static_cast<std::size_t>(kVectors * cols));
        const auto width = std::ssize(x) / kVectors;
        for (std::int64_t i = 0; i < kVectors; ++i)
            std::copy_n(x.begin() + i * width + first_col, cols, mine.begin() + i * cols);
        const Buffer in = device_.allocate(mine.size() * sizeof(float), MemoryTag::Activations, "a test");
        stream_->copy(in.data(), reinterpret_cast<const std::byte*>(mine.data()), in.size_bytes());
        const Buffer out = device_.allocate(static_cast<std::size_t>(kVectors * rows) * sizeof(float),
                                            MemoryTag::Activations, "a test");
        const TensorView y = matrix_view(out.data(), DType::F32, kVectors, rows);
        for (const MatrixPart& part : parts) {
            TensorView some = y;
            some.data += row_bytes(DType::F32, part.first_row);
            some.shape[1] = part.packed.shape[0];
            matmul({device_, *stream_},
                   {.weights = part.packed, .x = matrix_view(in.data(), DType::F32, kVectors, cols), .y = some});
        }
        std::vector<float> found(static_cast<std::size_t>(kVectors * rows));
        stream_->copy(reinterpret_cast<std::byte*>(found.data()), out.data(), out.size_bytes());
        stream_->synchronize();
        return found;
    }

private:
    Device& device_;
    std::unique_ptr<Stream> stream_;
};

bool is_cut_by_columns(TensorRole role) {
    return role == TensorRole::AttnOut || role == TensorRole::Down;
}

std::int64_t columns_of(const Model& model, std::int64_t layer, TensorRole role) {
    return model.parts(layer, role)[0].packed.cols();
}

}  // namespace

void expect_shards_make_the_whole(Device& device, const ModelFiles& files, std::span<const ModelShard> shards) {
    const Model whole(files, device, {});
    std::vector<std::unique_ptr<Model>> thin;
    std::size_t bytes = 0;
    for (const ModelShard& shard : shards) {
        thin.push_back(std::make_unique<Model>(files, device, LoadOptions{.shard = shard}));
        for (const WeightItem& item : thin.back()->items()) bytes += item.bytes;
    }
    std::size_t whole_bytes = 0;
    for (const WeightItem& item : whole.items()) whole_bytes += item.bytes;
    // Equal up to padding: rows are padded to groups of 16, parts to 64 bytes.
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(whole_bytes), 0.2 * static_cast<double>(whole_bytes));
    Products product(device);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (std::int64_t layer = 0; layer <= whole.config().n_layers(); ++layer) {
        for (const TensorRole role : {TensorRole::Q, TensorRole::K, TensorRole::V, TensorRole::AttnOut,
                                      TensorRole::Gate, TensorRole::Up, TensorRole::Down, TensorRole::LmHead}) {
            if ((role == TensorRole::LmHead) != (layer == whole.config().n_layers())) continue;
            if (whole.parts(layer, role).empty()) continue;  // a layer without values of its own
            SCOPED_TRACE(testing::Message() << "layer " << layer << ", role " << static_cast<int>(role));
            std::vector<float> x(static_cast<std::size_t>(kVectors * columns_of(whole, layer, role)));
            for (float& value : x) value = normal(random);
            const std::vector<float> expected = product(whole, layer, role, x, 0);
            const auto n = std::ssize(expected) / kVectors;
            std::vector<float> found(expected.size(), 0.0F);
            std::int64_t at = 0;  // rows or columns of the earlier shards
            for (const auto& model : thin) {
                const bool by_columns = is_cut_by_columns(role);
                const std::vector<float> part = product(*model, layer, role, x, by_columns ? at : 0);
                const auto n_part = std::ssize(part) / kVectors;
                for (std::int64_t i = 0; i < kVectors; ++i)
                    for (std::int64_t j = 0; j < n_part; ++j)
                        found[i * n + (by_columns ? 0 : at) + j] += part[i * n_part + j];
                at += by_columns ? columns_of(*model, layer, role) : n_part;
            }
            EXPECT_EQ(at, is_cut_by_columns(role) ? columns_of(whole, layer, role) : n) << "the shares are not all";
            if (is_cut_by_columns(role)) {
                // The sums of floats have another order.
                for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-5F) << i;
            } else {
                ASSERT_EQ(found, expected);
            }
        }
    }
}

}  // namespace slipstream
