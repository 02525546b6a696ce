// Graphs of a CUDA device: a launch has the bits of the calls that were captured, with the arrays of the moment.
#include "kernels/graph.h"

#include <memory>
#include <random>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/move_rows.h"
#include "tests/cuda/attention_layers.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"

namespace slipstream::testing_cuda {
namespace {

class CudaGraph : public CudaOps {};

// Trees of one size behind texts of any length: a launch of a graph gives the bits of the calls, on tensor cores and
// plainly, with windows, whatever the graph was captured with; and it plans once for all layers alike.
TEST_F(CudaGraph, AttentionOfALaunchHasTheBitsOfItsCalls) {
    const KvLayout halves{.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16};
    const KvLayout floats{.n_kv_heads = 1, .head_dim = 16, .dtype = DType::F32};
    const KvLayout wide{.n_kv_heads = 1, .head_dim = 128, .dtype = DType::F16};
    for (const auto& [shape, softcap] :
         {std::pair{halves, 0.0F}, {floats, 0.0F}, {wide, 2.0F}, {halves, 2.0F}})  // the last without tensor cores
        for (const std::int64_t n : {1, 9}) {
            Layers layers(exec(), shape, 4, 300, softcap);
            std::mt19937 random(static_cast<std::uint32_t>(n));
            std::unique_ptr<Graph> graph;
            std::int64_t made_for = 0;
            std::int64_t n_captured = 0;
            for (const std::int64_t n_committed :
                 {0, 100, 249, 255, 256, 300, 511, 512, 700, 766, 768, 900, 1030, 1279, 1290, 1500, 20, 257}) {
                layers.grow(n, n_committed, random);
                layers.clear_results();
                layers.enqueue();
                const std::vector<std::byte> expected = layers.results();
                if (graph == nullptr || layers.shared_chunks() != made_for) {
                    graph = exec().stream.capture([&] { layers.enqueue(); });
                    made_for = layers.shared_chunks();
                    ++n_captured;
                }
                layers.grow(n, n_committed, random);  // not what was captured
                layers.clear_results();
                layers.enqueue();
                const std::vector<std::byte> other = layers.results();
                layers.clear_results();
                ASSERT_TRUE(exec().stream.launch(*graph, layers.numbers())) << n_committed;
                EXPECT_EQ(layers.results(), other) << n_committed;
                if (n > 2) {
                    EXPECT_NE(expected, other);
                }
            }
            EXPECT_LE(n_captured, 8);
        }
}

// Ops and copies one behind the other, a thousand launches without a wait: in order, and each as captured.
TEST_F(CudaGraph, LaunchesRunInStreamOrder) {
    const std::vector<float> ones(64, 1.0F);
    const DeviceFloats sum(exec(), 1, 64, std::vector<float>(64, 0.0F));
    const DeviceFloats copied(exec(), 1, 64);
    const DeviceFloats one(exec(), 1, 64, ones);
    const auto graph = exec().stream.capture([&] {
        add(exec(), {.x = one.view(), .y = sum.view()});
        exec().stream.copy(copied.data(), sum.data(), 64 * sizeof(float));
        add(exec(), {.x = one.view(), .y = sum.view()});
    });
    EXPECT_EQ(graph->n_nodes(), 3);
    EXPECT_EQ(sum.read(), std::vector<float>(64, 0.0F));  // nothing was done
    constexpr int kLaunches = 1000;
    for (int i = 0; i < kLaunches; ++i) ASSERT_TRUE(exec().stream.launch(*graph, {}));
    EXPECT_EQ(sum.read(), std::vector<float>(64, 2.0F * kLaunches));
    EXPECT_EQ(copied.read(), std::vector<float>(64, 2.0F * kLaunches - 1.0F));
}

// Rows go where the array says at each launch.
TEST_F(CudaGraph, RowsGoWhereTheArraySaysThen) {
    const std::vector<float> values{1.0F, 2.0F, 3.0F, 4.0F};
    const DeviceFloats from(exec(), 2, 2, values);
    const DeviceFloats to(exec(), 4, 2, std::vector<float>(8, 0.0F));
    std::vector<std::int32_t> rows{0, 1};
    std::vector<std::int32_t> places{3, 0};
    const auto graph = exec().stream.capture([&] {
        move_rows(exec(), {.src = from.view().data,
                           .dst = to.view().data,
                           .n_planes = 1,
                           .row_bytes = 2 * sizeof(float),
                           .src_rows = rows.data(),
                           .dst_rows = places.data(),
                           .n_rows = 2});
    });
    places = {2, 1};
    ASSERT_TRUE(exec().stream.launch(*graph, {}));
    EXPECT_EQ(to.read(), (std::vector<float>{0, 0, 3, 4, 1, 2, 0, 0}));
    rows = {1, 0};
    places = {0, 1};
    ASSERT_TRUE(exec().stream.launch(*graph, {}));
    EXPECT_EQ(to.read(), (std::vector<float>{3, 4, 1, 2, 1, 2, 0, 0}));
}

}  // namespace
}  // namespace slipstream::testing_cuda
