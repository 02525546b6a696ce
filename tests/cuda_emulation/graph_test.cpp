// Graphs on the emulated machine: what a capture refuses, what a launch reads anew, and when one serves no more.
#include "kernels/graph.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "kernels/cuda/attention/attention_planner.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/elementwise.h"
#include "kernels/move_rows.h"
#include "tests/cuda/attention_layers.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Timing;
using testing::AllOf;
using testing::HasSubstr;
using testing_cuda::Layers;

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(GraphChunks, AreRoundedUpInTwoStepsAnOctave) {
    const std::vector<std::int64_t> expected{1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16};
    for (std::size_t n = 1; n <= expected.size(); ++n)
        EXPECT_EQ(graph_chunks(static_cast<std::int64_t>(n)), expected[n - 1]) << n;
    for (std::int64_t n = 1; n < 5000; ++n) {
        EXPECT_GE(graph_chunks(n), n);
        EXPECT_LE(graph_chunks(n), n <= 2 ? n : (n * 3 - 1) / 2) << n;
        EXPECT_GE(graph_chunks(n + 1), graph_chunks(n));
        EXPECT_EQ(graph_chunks(graph_chunks(n)), graph_chunks(n));
    }
}

/// A card with a stream, and some memory.
struct Card {
    explicit Card(Timing timing = Timing::Latest)
        : machine({.timing = timing}),
          device(machine.table(), {.memory_bytes = 64 * kMiB}),
          stream(device.make_stream(StreamKind::Compute)),
          memory(device.allocate(4096, MemoryTag::Activations, "memory")),
          locked(device.allocate_host(4096, MemoryTag::Activations, "host memory")) {}

    [[nodiscard]] ExecRef exec() { return {device, *stream}; }
    [[nodiscard]] TensorView rows(std::int64_t n) const {
        return matrix_view(reinterpret_cast<float*>(memory.data()), n, 64);
    }
    void work() { gated_activation(exec(), {.gate = rows(2), .up = rows(2), .y = rows(2)}); }

    Machine machine;
    CudaDevice device;
    std::unique_ptr<Stream> stream;
    Buffer memory;
    Buffer locked;
};

// Each call that no capture survives: it says so, the capture ends with a line, and the stream is as before.
TEST(Graph, WhatACaptureRefusesEndsWithALine) {
    using Violation = std::function<void(Card&)>;
    std::vector<std::byte> pageable(64);
    const std::pair<const char*, Violation> violations[] = {
        {"synchronize", [](Card& card) { card.stream->synchronize(); }},
        {"an allocation",
         [](Card& card) { static_cast<void>(card.device.allocate(64, MemoryTag::Activations, "more")); }},
        {"page-locking",
         [](Card& card) { static_cast<void>(card.device.allocate_host(64, MemoryTag::Activations, "more")); }},
        {"pageable host memory", [&](Card& card) { card.stream->copy(card.memory.data(), pageable.data(), 64); }},
        {"pageable host memory", [&](Card& card) { card.stream->copy(pageable.data(), card.memory.data(), 64); }},
        {"memory that is not there",
         [](Card& card) { card.stream->copy(card.memory.data() + 4090, card.memory.data(), 64); }},
    };
    for (const auto& [said, violate] : violations) {
        Card card;
        const std::string text = error_text<Error>([&] {
            static_cast<void>(card.stream->capture([&] {
                card.work();
                try {
                    violate(card);
                    ADD_FAILURE() << said;
                } catch (const Error&) {
                }
            }));
        });
        EXPECT_THAT(text, AllOf(HasSubstr("a graph"), HasSubstr("the capture was invalidated"), HasSubstr(said)));
        EXPECT_EQ(card.machine.n_graphs(), 0);
        card.work();
        card.stream->synchronize();
    }
}

TEST(Graph, EventsDoNotCrossTheBorderOfACapture) {
    Card card;
    const auto event = card.device.make_event();
    const std::uint64_t use = card.stream->record(*event);
    EXPECT_THAT(error_text<CudaError>(
                    [&] { static_cast<void>(card.stream->capture([&] { card.stream->wait(*event, use); })); }),
                HasSubstr("recorded outside"));
    EXPECT_THAT(error_text<CudaError>(
                    [&] { static_cast<void>(card.stream->capture([&] { static_cast<void>(event->completed()); })); }),
                HasSubstr("asking for an event"));
    void* raw = nullptr;
    cuda::ErrorText error{};
    const cuda::Module& table = card.machine.table();
    const cuda::Place place = static_cast<cuda::CudaStream&>(*card.stream).place();
    ASSERT_EQ(table.make_event(0, cuda::EventKind::Order, &raw, &error), cuda::Status::Ok);
    const auto graph = card.stream->capture([&] { table.record(place, raw, &error); });
    EXPECT_EQ(table.query(raw, &error), cuda::Status::Failed);
    EXPECT_THAT(error.text, HasSubstr("recorded in a capture"));
    EXPECT_EQ(table.await(raw, &error), cuda::Status::Failed);
    EXPECT_EQ(table.wait(place, raw, &error), cuda::Status::Failed);
    EXPECT_EQ(table.record(place, raw, &error), cuda::Status::Ok);
    EXPECT_EQ(table.await(raw, &error), cuda::Status::Ok);
    table.free_event(raw, &error);
    card.stream->synchronize();
}

TEST(Graph, CapturesDoNotNest) {
    Card card;
    const auto other = card.device.make_stream(StreamKind::Compute);
    EXPECT_THAT(error_text<Error>([&] {
                    static_cast<void>(card.stream->capture([&] { static_cast<void>(other->capture([] {})); }));
                }),
                HasSubstr("cuda:0"));
    EXPECT_FALSE(card.device.make_stream(StreamKind::CopyIn)->has_graphs());
}

TEST(GraphDeathTest, ArraysThatNoLaunchWouldReadAnewAreABug) {
    const auto commit = [] {
        Card card;
        const std::int32_t row = 0;
        std::byte* chunk = card.memory.data();
        static_cast<void>(card.stream->capture([&] {
            kv_commit(card.exec(), {.shape = {.n_kv_heads = 1, .head_dim = 2, .dtype = DType::F16},
                                    .scratch_k = card.memory.data(),
                                    .scratch_v = card.memory.data(),
                                    .scratch_rows = &row,
                                    .n_rows = 1,
                                    .first_position = 0,
                                    .chunks = &chunk});
        }));
    };
    EXPECT_DEATH(commit(), "no launch would read anew");
}

// A fault in the middle of a capture leaves the stream, and what comes after it, in order.
TEST(Graph, AFaultInACaptureIsThrownAndOver) {
    Card card;
    card.machine.fail_in(2);
    EXPECT_THAT(error_text<CudaError>([&] {
                    static_cast<void>(card.stream->capture([&] {
                        card.work();
                        card.work();
                    }));
                }),
                AllOf(HasSubstr("gated_activation [2, 64]"), HasSubstr("an injected fault")));
    EXPECT_EQ(card.machine.n_graphs(), 0);
    const auto graph = card.stream->capture([&] { card.work(); });
    EXPECT_EQ(graph->n_nodes(), 1);
    card.machine.fail_in(1);
    EXPECT_THROW(static_cast<void>(card.stream->launch(*graph, {})), CudaError);
    EXPECT_TRUE(card.stream->launch(*graph, {}));
    card.stream->synchronize();
}

// Nothing is done at the capture; a launch works on what memory holds then, as often as it is asked for.
TEST(Graph, LaunchesReadMemoryAsItIsThen) {
    for (const Timing timing : kTimings) {
        Card card(timing);
        const auto graph =
            card.stream->capture([&] { card.stream->copy(card.memory.data() + 64, card.memory.data(), 64); });
        std::vector<std::byte> found(64);
        for (int round = 1; round < 4; ++round) {
            std::ranges::fill_n(card.locked.data(), 64, static_cast<std::byte>(round));
            card.stream->copy(card.memory.data(), card.locked.data(), 64);
            EXPECT_TRUE(card.stream->launch(*graph, {}));
            card.stream->copy(found.data(), card.memory.data() + 64, 64);
            card.stream->synchronize();
            for (const std::byte value : found) ASSERT_EQ(value, static_cast<std::byte>(round));
        }
    }
}

TEST(Graph, ACopyOfMemoryThatIsGoneFailsAtTheLaunch) {
    Card card;
    Buffer other = card.device.allocate(64, MemoryTag::Activations, "memory that goes");
    const auto graph = card.stream->capture([&] { card.stream->copy(card.memory.data(), other.data(), 64); });
    other = Buffer();
    EXPECT_THAT(error_text<CudaError>([&] { static_cast<void>(card.stream->launch(*graph, {})); }),
                HasSubstr("memory that is gone"));
}

TEST(Graph, ServesNoMoreOnceWorkspaceHasMoved) {
    Card card;
    card.device.reserve_scratch(1000);
    const auto graph = card.stream->capture([&] { card.work(); });
    EXPECT_TRUE(card.stream->launch(*graph, {}));
    card.device.reserve_scratch(500);
    EXPECT_TRUE(card.stream->launch(*graph, {}));
    card.device.reserve_scratch(5000);
    EXPECT_FALSE(card.stream->launch(*graph, {}));
    const auto again = card.stream->capture([&] { card.work(); });
    EXPECT_TRUE(card.stream->launch(*again, {}));
    card.device.reserve_staging(kMiB);
    EXPECT_FALSE(card.stream->launch(*again, {}));
    card.stream->synchronize();
}

TEST(Graph, ScratchThatWasNotReservedBeforeTheCaptureIsALine) {
    Card card;
    card.device.reserve_scratch(1000);
    EXPECT_THAT(error_text<OutOfBudget>([&] {
                    static_cast<void>(card.stream->capture([&] {
                        cuda::Op op(card.exec());
                        static_cast<void>(op.scratch(2000));
                    }));
                }),
                AllOf(HasSubstr("cuda:0"), HasSubstr("of scratch"), HasSubstr("reserved before the capture")));
    EXPECT_EQ(card.machine.n_graphs(), 0);
}

// What a graph's matmul leaves in scratch is nobody's but its own.
TEST(Graph, PreparedActivationsDoNotCrossItsBorder) {
    Card card;
    const auto graph = card.stream->capture([&] {
        cuda::Op op(card.exec());
        op.device().keep_prepared({.x = reinterpret_cast<const float*>(card.memory.data()),
                                   .k = 64,
                                   .n_tokens = 1,
                                   .scratch = nullptr,
                                   .change = op.device().n_changes()});
    });
    EXPECT_TRUE(card.stream->launch(*graph, {}));
    cuda::Op op(card.exec());
    EXPECT_EQ(op.device().find_prepared({.x = reinterpret_cast<const float*>(card.memory.data()),
                                         .k = 64,
                                         .n_tokens = 1,
                                         .scratch = nullptr,
                                         .change = op.device().n_changes()}),
              nullptr);
    card.stream->synchronize();
}

TEST(Graph, ATextThatHasGrownOutOfAGraphIsNotItsPass) {
    Card card;
    Layers layers(card.exec(), {.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16}, 4, 0);
    std::mt19937 random(1);
    layers.grow(4, 10, random);
    const auto graph = card.stream->capture([&] { layers.enqueue(); });
    EXPECT_TRUE(card.stream->launch(*graph, layers.numbers()));
    layers.grow(4, 600, random);
    EXPECT_FALSE(card.stream->launch(*graph, layers.numbers()));
    layers.grow(4, 20, random);
    EXPECT_TRUE(card.stream->launch(*graph, layers.numbers()));
    card.stream->synchronize();
}

// Two graphs have their arrays in one place: each launch finds its own.
TEST(Graph, GraphsTakeTurnsAtTheirArrays) {
    for (const Timing timing : kTimings) {
        Card card(timing);
        Layers few(card.exec(), {.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16}, 4, 0);
        Layers many(card.exec(), {.n_kv_heads = 1, .head_dim = 64, .dtype = DType::F16}, 4, 70);
        std::mt19937 random(2);
        few.grow(2, 300, random), many.grow(11, 1000, random);
        few.enqueue(), many.enqueue();
        const std::vector<std::byte> of_few = few.results(), of_many = many.results();
        const auto first = card.stream->capture([&] { few.enqueue(); });
        const auto second = card.stream->capture([&] { many.enqueue(); });
        for (int round = 0; round < 3; ++round) {
            few.clear_results(), many.clear_results();
            ASSERT_TRUE(card.stream->launch(*first, few.numbers()));
            ASSERT_TRUE(card.stream->launch(*second, many.numbers()));
            EXPECT_EQ(few.results(), of_few);
            EXPECT_EQ(many.results(), of_many);
        }
    }
}

// Streams share scratch and the arrays' place: whoever comes next waits on the card for whoever was there, also where
// both are graphs and the host waits for neither.
TEST(Graph, StreamsTakeTurns) {
    for (const Timing timing : kTimings) {
        Card card(timing);
        const auto other_stream = card.device.make_stream(StreamKind::Compute);
        Layers own(card.exec(), {.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16}, 4, 0);
        Layers other({card.device, *other_stream}, {.n_kv_heads = 1, .head_dim = 64, .dtype = DType::F16}, 4, 0);
        std::mt19937 random(4);
        own.grow(5, 900, random), other.grow(3, 600, random);
        own.enqueue(), other.enqueue();
        const std::vector<std::byte> of_own = own.results(), of_other = other.results();
        const auto first = card.stream->capture([&] { own.enqueue(); });
        const auto second = other_stream->capture([&] { other.enqueue(); });
        own.clear_results(), other.clear_results();
        for (int round = 0; round < 3; ++round) {
            ASSERT_TRUE(card.stream->launch(*first, own.numbers()));
            ASSERT_TRUE(other_stream->launch(*second, other.numbers()));
            other.enqueue();
        }
        EXPECT_EQ(other.results(), of_other);
        EXPECT_EQ(own.results(), of_own);
    }
}

TEST(AttentionPlanner, PlansOnceForAllLayersAndAgainForOtherPaths) {
    Card card;
    Layers layers(card.exec(), {.n_kv_heads = 2, .head_dim = 64, .dtype = DType::F16}, 4, 300);
    std::mt19937 random(3);
    const cuda::AttentionPlanner& planner = card.device.planner();
    layers.grow(9, 500, random);
    layers.enqueue();
    EXPECT_EQ(planner.n_made(), 2U);  // with and without a window
    EXPECT_EQ(planner.n_found(), 1U);
    layers.enqueue();
    EXPECT_EQ(planner.n_made(), 2U);
    layers.grow(9, 501, random);  // the same arrays with other contents
    layers.enqueue();
    EXPECT_EQ(planner.n_made(), 4U);
    EXPECT_EQ(planner.n_found(), 5U);
    card.stream->synchronize();
}

TEST(MoveRows, PutsRowsOfEachPlaneWhereTheyBelong) {
    for (const Timing timing : kTimings) {
        Card card(timing);
        constexpr std::size_t kRow = 520, kSrcRows = 9, kDstRows = 5, kPlanes = 3;
        std::vector<std::byte> src(kPlanes * kSrcRows * kRow), dst(kPlanes * kDstRows * kRow, std::byte{0xee});
        for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<std::byte>(i * 13 % 251);
        const Buffer from = card.device.allocate(src.size(), MemoryTag::Activations, "from");
        const Buffer to = card.device.allocate(dst.size(), MemoryTag::Activations, "to");
        card.stream->copy(from.data(), src.data(), src.size());
        card.stream->copy(to.data(), dst.data(), dst.size());
        const std::vector<std::int32_t> rows{8, 0, 3}, places{1, 4, 0};
        move_rows(card.exec(), {.src = from.data(),
                                .src_plane_bytes = kSrcRows * kRow,
                                .dst = to.data(),
                                .dst_plane_bytes = kDstRows * kRow,
                                .n_planes = kPlanes,
                                .row_bytes = kRow,
                                .src_rows = rows.data(),
                                .dst_rows = places.data(),
                                .n_rows = 3});
        for (std::size_t plane = 0; plane < kPlanes; ++plane)
            for (std::size_t i = 0; i < 3; ++i)
                std::memcpy(&dst[(plane * kDstRows + static_cast<std::size_t>(places[i])) * kRow],
                            &src[(plane * kSrcRows + static_cast<std::size_t>(rows[i])) * kRow], kRow);
        std::vector<std::byte> found(dst.size());
        card.stream->copy(found.data(), to.data(), found.size());
        card.stream->synchronize();
        EXPECT_EQ(found, dst);
    }
}

}  // namespace
}  // namespace slipstream
