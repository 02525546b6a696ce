// What a device joins has the bits of the calls apart: several products of one x, outputs that are laid out for the
// matmul behind, norms of heads before rope, rows committed in several layers.
#include <functional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

class CudaJoined : public CudaMatmul {
protected:
    void TearDown() override {
        memory_.clear();
        CudaMatmul::TearDown();
    }
    ConstTensorView weights(DType type, std::int64_t m, std::int64_t k) {
        const testing_matmul::Weights made = testing_matmul::random_weights(type, m, k);
        const std::size_t size = packed_bytes(type, m, k);
        std::vector<std::byte> bytes(size + 64);
        auto* host = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 63) / 64 * 64);
        TensorView packed = packed_view(host, type, m, k, packed_layout(device().kind()));
        pack_weights(exec(), {.weights = made.view(), .packed = packed});
        memory_.push_back(upload_bytes(exec(), {host, size}));
        packed.data = memory_.back().data();
        return packed;
    }
    /// What matmuls of several types read of `y` [n, k] that run() has made, with a word about them and without.
    void expect_no_trace(const TensorView& y, const std::function<void(const NextWeights&)>& run) {
        for (const DType type : {DType::BF16, DType::Q4_1, DType::Q8_0}) {
            const ConstTensorView packed = weights(type, 40, y.shape[1]);
            NextWeights next;
            next.set(static_cast<std::size_t>(type));
            std::vector<float> found[2];
            for (const bool prepares : {false, true}) {
                const DeviceFloats out(exec(), y.shape[0], 40);
                run(prepares ? next : NextWeights{});
                matmul(exec(), {.weights = packed, .x = y, .y = out.view()});
                found[prepares ? 1 : 0] = out.read();
            }
            ASSERT_TRUE(same_bits(found[0], found[1])) << dtype_name(type) << " " << y.shape[0] << " " << y.shape[1];
        }
    }

private:
    std::vector<Buffer> memory_;
};

TEST_F(CudaJoined, ProductsOfOneX) {
    using enum DType;
    const std::int64_t k = 512;
    for (const std::vector<DType>& types : {std::vector{Q4_K, Q4_K, Q4_K},
                                            {Q4_K, Q4_K, Q6_K},
                                            {Q5_K, Q6_K},
                                            {Q3_K, Q3_K, Q5_K},
                                            {BF16, BF16},
                                            {Q8_0, Q8_0, Q8_0},
                                            {Q5_1, Q5_1, Q4_0},
                                            {F16, F16},
                                            {F32, F32}})
        for (const std::int64_t n : {1, 9, 33, 70}) {
            const DeviceFloats x(exec(), n, k, random_floats(n * k, 1));
            std::vector<ConstTensorView> packed;
            for (std::size_t i = 0; i < types.size(); ++i)
                packed.push_back(weights(types[i], 40 + 24 * static_cast<std::int64_t>(i), k));
            std::vector<std::vector<float>> found[2];
            for (const bool joined : {false, true}) {
                std::vector<DeviceFloats> y;
                std::vector<MatmulArgs> products;
                for (const ConstTensorView& matrix : packed) {
                    y.emplace_back(exec(), n, matrix.shape[0], 3);
                    products.push_back({.weights = matrix, .x = x.view(), .y = y.back().view()});
                }
                if (joined) {
                    matmuls(exec(), products);
                } else {
                    for (const MatmulArgs& args : products) matmul(exec(), args);
                }
                for (const DeviceFloats& one : y) found[joined ? 1 : 0].push_back(one.read());
            }
            for (std::size_t i = 0; i < types.size(); ++i)
                ASSERT_TRUE(same_bits(found[0][i], found[1][i])) << dtype_name(types[0]) << " " << i << " " << n;
        }
}

TEST_F(CudaJoined, NormsAndGatesLaidOutForMatmuls) {
    for (const std::int64_t n : {1, 5, 9, 70})
        for (const std::int64_t d : {96, 1056, 4096}) {
            if (n > 9 && d > 1056 && !is_card()) continue;
            const DeviceFloats x(exec(), n, d, random_floats(n * d, 1));
            const DeviceFloats other(exec(), n, d, random_floats(n * d, 2), 1);
            const DeviceFloats weight(exec(), 1, d, random_floats(d, 3));
            const DeviceFloats y(exec(), n, d);
            expect_no_trace(y.view(), [&](const NextWeights& next) {
                rms_norm(exec(), {.x = x.view(), .weight = weight.view(), .y = y.view(), .next = next});
            });
            for (const GatedActivation kind :
                 {GatedActivation::Silu, GatedActivation::GeluTanh, GatedActivation::Sigmoid})
                expect_no_trace(y.view(), [&](const NextWeights& next) {
                    gated_activation(exec(),
                                     {.gate = x.view(), .up = other.view(), .y = y.view(), .kind = kind, .next = next});
                });
        }
}

TEST_F(CudaJoined, NormsOfHeadsBeforeRope) {
    constexpr std::int64_t kTokens = 3;
    const std::vector<std::int32_t> rows{2, 0, 3};
    for (const std::int64_t head_dim : {64, 128, 96, 256})
        for (const RopeLayout layout : {RopeLayout::Interleaved, RopeLayout::Half})
            for (const auto& [type, rotated] : {std::pair{DType::BF16, head_dim},
                                                {DType::BF16, head_dim / 2},
                                                {DType::BF16, std::int64_t{0}},
                                                {DType::Q8_0, head_dim},
                                                {DType::Q8_0, head_dim / 2}}) {
                const KvLayout shape{.n_kv_heads = 2, .head_dim = head_dim, .dtype = type};
                const DeviceFloats cos_sin(exec(), kTokens, rotated, random_floats(kTokens * rotated, 8));
                const DeviceFloats v(exec(), kTokens, 2 * head_dim, random_floats(kTokens * 2 * head_dim, 11));
                const DeviceFloats q_norm(exec(), 1, head_dim, random_floats(head_dim, 12));
                const DeviceFloats k_norm(exec(), 1, head_dim, random_floats(head_dim, 13));
                const std::vector<std::byte> fresh(4 * shape.scratch_row_bytes(), std::byte{0x5a});
                std::vector<float> turned[2];
                std::vector<std::byte> written[2][2];
                for (const bool joined : {false, true}) {
                    const DeviceFloats q(exec(), kTokens, 5 * head_dim, random_floats(kTokens * 5 * head_dim, 9));
                    const DeviceFloats k(exec(), kTokens, 2 * head_dim, random_floats(kTokens * 2 * head_dim, 10));
                    const Buffer scratch_k = upload_bytes(exec(), fresh);
                    const Buffer scratch_v = upload_bytes(exec(), fresh);
                    RotateWriteArgs args{.shape = shape,
                                         .q = q.view(),
                                         .k = k.view(),
                                         .v = v.view(),
                                         .cos_sin = cos_sin.view(),
                                         .layout = layout,
                                         .scratch_k = scratch_k.data(),
                                         .scratch_v = scratch_v.data(),
                                         .scratch_rows = rows.data()};
                    if (joined) {
                        args.q_norm = q_norm.view();
                        args.k_norm = k_norm.view();
                    } else {
                        for (const auto& [x, weight] : {std::pair{&q, &q_norm}, {&k, &k_norm}}) {
                            const TensorView heads =
                                matrix_view(x->data(), x->view().rows() * x->view().cols() / head_dim, head_dim);
                            rms_norm(exec(), {.x = heads, .weight = weight->view(), .y = heads});
                        }
                    }
                    rotate_write(exec(), args);
                    const std::size_t i = joined ? 1 : 0;
                    turned[i] = q.read();
                    written[i][0] = download_bytes(exec(), scratch_k.data(), fresh.size());
                    written[i][1] = download_bytes(exec(), scratch_v.data(), fresh.size());
                }
                ASSERT_TRUE(same_bits(turned[0], turned[1])) << head_dim << " " << rotated;
                ASSERT_EQ(written[0][0], written[1][0]) << head_dim << " " << rotated;
                ASSERT_EQ(written[0][1], written[1][1]) << head_dim << " " << rotated;
            }
}

// Over a border of chunks; more layers than one launch takes of so many chunks.
TEST_F(CudaJoined, RowsCommittedInSeveralLayers) {
    constexpr KvLayout kShape{.n_kv_heads = 1, .head_dim = 2, .dtype = DType::F16};
    constexpr std::int64_t kLayers = 300;
    constexpr std::int64_t kRows = 6;
    std::mt19937 random(1);
    std::vector<std::byte> bytes(2 * kLayers * kRows * kShape.scratch_row_bytes());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const Buffer scratch = upload_bytes(exec(), bytes);
    const std::size_t plane = kRows * kShape.scratch_row_bytes();
    const std::vector<std::byte> fresh(2 * kLayers * kShape.chunk_bytes(), std::byte{0x5a});
    const std::vector<std::int32_t> rows{5, 3, 0, 1};
    std::vector<std::byte> found[2];
    for (const bool joined : {false, true}) {
        const Buffer cache = upload_bytes(exec(), fresh);
        std::vector<std::byte*> chunks;
        for (std::size_t i = 0; i < std::size_t{2 * kLayers}; ++i)
            chunks.push_back(cache.data() + i * kShape.chunk_bytes());
        for (std::int64_t layer = 0; layer < (joined ? 1 : kLayers); ++layer)
            kv_commit(exec(), {.shape = kShape,
                               .scratch_k = scratch.data() + 2 * static_cast<std::size_t>(layer) * plane,
                               .scratch_v = scratch.data() + (2 * static_cast<std::size_t>(layer) + 1) * plane,
                               .scratch_rows = rows.data(),
                               .n_rows = 4,
                               .first_position = kChunkTokens - 2,
                               .chunks = chunks.data() + 2 * layer,
                               .n_layers = joined ? kLayers : 1,
                               .layer_bytes = 2 * plane,
                               .layer_chunks = 2});
        found[joined ? 1 : 0] = download_bytes(exec(), cache.data(), fresh.size());
    }
    EXPECT_EQ(found[0], found[1]);
    EXPECT_NE(found[0], fresh);
}

}  // namespace
}  // namespace slipstream::testing_cuda
