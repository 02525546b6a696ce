// Outputs that ops lay out for the matmul behind: it finds them, and multiplies the very bits that it would have laid
// out itself; and the ops' own outputs are those without. Shapes in which rows end inside a unit of K, in place, and
// strided.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "block.h"
#include "emulated_machine.h"
#include "kernels/attention.h"
#include "kernels/base/float16.h"
#include "kernels/elementwise.h"
#include "schedule.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

NextWeights next_of(std::initializer_list<DType> types) {
    NextWeights next;
    for (const DType type : types) next.set(static_cast<std::size_t>(type));
    return next;
}

struct Card {
    emulation::Machine machine{{.timing = emulation::Timing::Latest}};
    CudaDevice device{machine.table(), {.memory_bytes = std::size_t{256} << 20}};
    std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    [[nodiscard]] ExecRef exec() { return {device, *stream}; }
};

/// An op that writes `y`, with and without a word about what comes next.
struct Case {
    std::string what;
    TensorView y;
    std::function<void(const NextWeights&)> run;
};

class Multiplier {
public:
    Multiplier(Card& card, DType type, std::int64_t k) : card_(card), type_(type), k_(k) {
        const testing_matmul::Weights weights = testing_matmul::random_weights(type, 24, k);
        const std::size_t bytes = packed_bytes(type, 24, k);
        std::vector<std::byte> memory(bytes + 64);
        auto* host = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
        const TensorView packed = packed_view(host, type, 24, k, packed_layout(DeviceKind::Cuda));
        pack_weights(card.exec(), {.weights = weights.view(), .packed = packed});
        packed_ = upload_bytes(card.exec(), {host, bytes});
    }
    /// y = x W^T, and how many kernels it took.
    std::vector<float> multiply_into(const DeviceFloats& y, const TensorView& x, std::int64_t& n_kernels) {
        ConstTensorView weights = packed_view(packed_.data(), type_, 24, k_, packed_layout(DeviceKind::Cuda));
        const std::int64_t before = emulation::n_grids_run();
        matmul(card_.exec(), {.weights = weights, .x = x, .y = y.view()});
        card_.stream->synchronize();
        n_kernels = emulation::n_grids_run() - before;
        return y.read();
    }

private:
    Card& card_;
    DType type_;
    std::int64_t k_;
    Buffer packed_;
};

std::vector<float> rows_of(Card& card, const TensorView& y) {
    std::vector<float> values;
    for (std::int64_t row = 0; row < y.rows(); ++row) {
        const std::vector<std::byte> bytes = download_bytes(card.exec(), y.row(row), row_bytes(DType::F32, y.cols()));
        const auto* floats = reinterpret_cast<const float*>(bytes.data());
        values.insert(values.end(), floats, floats + y.cols());
    }
    return values;
}

void expect_same(Card& card, const Case& of) {
    for (const auto& [type, next] : {std::pair{DType::BF16, next_of({DType::BF16, DType::Q8_0})},
                                     {DType::Q4_1, next_of({DType::Q4_1})},
                                     {DType::Q8_0, next_of({DType::Q5_1, DType::Q8_0})}}) {
        SCOPED_TRACE(of.what + " " + std::string(dtype_name(type)));
        Multiplier by(card, type, of.y.cols());
        const DeviceFloats first(card.exec(), of.y.rows(), 24);
        const DeviceFloats second(card.exec(), of.y.rows(), 24);
        of.run({});
        const std::vector<float> plain = rows_of(card, of.y);
        std::int64_t apart = 0;
        const std::vector<float> expected = by.multiply_into(first, of.y, apart);
        EXPECT_EQ(apart, 2);
        of.run(next);
        card.stream->synchronize();
        std::int64_t together = 0;
        const std::vector<float> found = by.multiply_into(second, of.y, together);
        EXPECT_EQ(together, 1);
        EXPECT_TRUE(same_bits(rows_of(card, of.y), plain));
        EXPECT_TRUE(same_bits(found, expected));
    }
}

constexpr std::int64_t kTokens[] = {1, 3, 9, 33};

TEST(Prepared, NormsLeaveWhatAMatmulReads) {
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scoped(schedule);
        Card card;
        for (const std::int64_t d : {32, 96, 1024, 1056, 2304})
            for (const std::int64_t n : kTokens) {
                if (n > 9 && d > 1056) continue;
                // Other orders matter where a row is a block's, which has a barrier.
                if (schedule.order != emulation::Order::Lockstep && (d != 1056 || n > 9)) continue;
                const DeviceFloats x(card.exec(), n, d, random_floats(n * d, 1), d == 1056 ? 3 : 4);
                const DeviceFloats weight(card.exec(), 1, d, random_floats(d, 2));
                const DeviceFloats y(card.exec(), n, d);
                expect_same(card, {fmt::format("norm [{}, {}]", n, d), y.view(), [&](const NextWeights& next) {
                                       rms_norm(card.exec(),
                                                {.x = x.view(), .weight = weight.view(), .y = y.view(), .next = next});
                                   }});
                expect_same(card, {"in place", y.view(), [&](const NextWeights& next) {
                                       rms_norm(card.exec(), {.x = x.view(), .weight = weight.view(), .y = y.view()});
                                       rms_norm(card.exec(),
                                                {.x = y.view(), .weight = weight.view(), .y = y.view(), .next = next});
                                   }});
            }
    }
}

TEST(Prepared, GatesLeaveWhatAMatmulReads) {
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scoped(schedule);
        Card card;
        for (const std::int64_t d : {32, 96, 1056})
            for (const std::int64_t n : kTokens) {
                const DeviceFloats gate(card.exec(), n, d, random_floats(n * d, 1), d == 96 ? 1 : 0);
                const DeviceFloats up(card.exec(), n, d, random_floats(n * d, 2));
                const DeviceFloats y(card.exec(), n, d);
                for (const GatedActivation kind :
                     {GatedActivation::Silu, GatedActivation::GeluTanh, GatedActivation::Sigmoid})
                    expect_same(
                        card,
                        {fmt::format("gate [{}, {}]", n, d), y.view(), [&](const NextWeights& next) {
                             gated_activation(
                                 card.exec(),
                                 {.gate = gate.view(), .up = up.view(), .y = y.view(), .kind = kind, .next = next});
                         }});
            }
    }
}

// Two chunks and a tail, joined; queries of three heads, which end inside a unit of K.
TEST(Prepared, JoinsOfChunksLeaveWhatAMatmulReads) {
    constexpr KvLayout kShape{.n_kv_heads = 1, .head_dim = 64, .dtype = DType::F16};
    constexpr std::int64_t kCommitted = 300;
    const std::vector<float> values = random_floats(2 * kChunkTokens * kShape.head_dim, 5);
    std::vector<Half> halves;
    for (const float value : values) halves.push_back(to_half(value));
    for (const emulation::Schedule schedule : emulation::kAllSchedules) {
        const emulation::ScopedSchedule scoped(schedule);
        Card card;
        const Buffer chunk = upload_bytes(card.exec(), std::as_bytes(std::span(halves)));
        const std::byte* const chunks[] = {chunk.data(), chunk.data()};
        for (const std::int64_t n : {1, 9}) {
            const DeviceFloats q(card.exec(), n, 3 * kShape.head_dim, random_floats(n * 3 * kShape.head_dim, 6));
            const DeviceFloats out(card.exec(), n, 3 * kShape.head_dim);
            std::vector<std::int32_t> positions, begins, rows;
            for (std::int32_t i = 0; i < n; ++i) {  // siblings
                positions.push_back(kCommitted);
                begins.push_back(i);
                rows.push_back(i);
            }
            expect_same(card, {fmt::format("{} tokens", n), out.view(), [&](const NextWeights& next) {
                                   attention(card.exec(), {.shape = kShape,
                                                           .q = q.view(),
                                                           .out = out.view(),
                                                           .n_q_heads = 3,
                                                           .positions = positions.data(),
                                                           .chunks = chunks,
                                                           .n_committed = kCommitted,
                                                           .scratch_k = chunk.data(),
                                                           .scratch_v = chunk.data(),
                                                           .path_begin = begins.data(),
                                                           .path_rows = rows.data(),
                                                           .scale = 0.125F,
                                                           .next = next});
                               }});
        }
    }
}

// Halves are multiplied by a power of two that follows from the whole row: they stay with the matmul.
TEST(Prepared, HalvesAreNotLaidOutByOps) {
    Card card;
    const DeviceFloats x(card.exec(), 3, 64, random_floats(3 * 64, 1));
    const DeviceFloats weight(card.exec(), 1, 64, random_floats(64, 2));
    const DeviceFloats y(card.exec(), 3, 64);
    Multiplier by(card, DType::F16, 64);
    std::int64_t n_kernels = 0;
    const DeviceFloats out(card.exec(), 3, 24);
    rms_norm(card.exec(), {.x = x.view(), .weight = weight.view(), .y = y.view(), .next = next_of({DType::F16})});
    card.stream->synchronize();
    by.multiply_into(out, y.view(), n_kernels);
    EXPECT_EQ(n_kernels, 3);
}

}  // namespace
}  // namespace slipstream::testing_cuda
