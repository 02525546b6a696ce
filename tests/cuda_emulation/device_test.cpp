// CudaDevice on the emulated machine: budget, memory that the host may not touch, streams and events under every
// timing, staging, link figures, errors.
#include "kernels/cuda/host/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/base/error.h"
#include "kernels/cuda/host/cuda_module.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/host/memory_regions.h"
#include "kernels/elementwise.h"
#include "offload/pinned_arena.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::Timing;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<std::byte> numbered(std::size_t n, int seed = 0) {
    std::vector<std::byte> bytes(n);
    for (std::size_t i = 0; i < n; ++i)
        bytes[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed)) % 251);
    return bytes;
}

// Brings device memory back by a stream.
std::vector<std::byte> fetched(Stream& stream, const std::byte* data, std::size_t n) {
    std::vector<std::byte> bytes(n);
    stream.copy(bytes.data(), data, n);
    stream.synchronize();
    return bytes;
}

TEST(CudaDevice, SaysWhatItIs) {
    const Machine machine({.n_cards = 2, .sm = 86, .timing = Timing::AtOnce});
    CudaDevice device(machine.table(), {.ordinal = 1, .memory_bytes = kMiB});
    EXPECT_EQ(device.kind(), DeviceKind::Cuda);
    EXPECT_EQ(device.name(), "cuda:1");
    EXPECT_EQ(device.instruction_form(), "sm_86x4+cublaslt-1");
    EXPECT_EQ(device.no_blas(), "");
    EXPECT_FALSE(device.shares_host_memory());
    EXPECT_EQ(device.budget().limit_bytes(), kMiB);
}

TEST(CudaDevice, ABudgetThatNobodyNamesIsWhatIsFreeLessAMargin) {
    const Machine machine({.memory_bytes = kCardMarginBytes + 5 * kMiB});
    EXPECT_EQ(CudaDevice(machine.table(), {}).budget().limit_bytes(), 5 * kMiB);
    CudaDevice other(machine.table(), {});
    const Buffer taken = other.allocate(2 * kMiB, MemoryTag::Weights, "weights");
    EXPECT_EQ(CudaDevice(machine.table(), {}).budget().limit_bytes(), 3 * kMiB);
}

TEST(CudaDevice, CardsThatAreNotThereOrTooOldAreErrors) {
    const Machine machine({.sm = 75});
    EXPECT_THAT(error_text<CudaError>([&] { CudaDevice(machine.table(), {.ordinal = 3}); }), HasSubstr("cuda:3"));
    EXPECT_THAT(error_text<CudaError>([&] { CudaDevice(machine.table(), {}); }),
                AllOf(HasSubstr("sm_75"), HasSubstr("sm_80 and newer"), HasSubstr("--devices cpu")));
    const CudaCards cards = cards_of(machine.table());
    EXPECT_FALSE(cards.serves(0));
    EXPECT_THAT(cards.why_not, HasSubstr("too old"));
}

TEST(CudaCards, NoModuleIsALine) {
    const std::filesystem::path folders[] = {"/nonexistent"};
    const CudaCards cards = find_cuda_cards(folders);
    EXPECT_EQ(cards.module, nullptr);
    EXPECT_THAT(cards.why_not, HasSubstr("this build has no CUDA module"));
}

TEST(CudaCards, AreCountedAndServe) {
    const Machine machine({.n_cards = 2});
    const CudaCards cards = cards_of(machine.table());
    EXPECT_EQ(cards.module, &machine.table());
    EXPECT_EQ(cards.why_not, "");
    ASSERT_EQ(cards.cards.size(), 2U);
    EXPECT_TRUE(cards.serves(1));
    EXPECT_FALSE(cards.serves(2));
}

TEST(CudaCards, EveryWayOfHavingNoneIsALine) {
    static cuda::Status answer;
    cuda::Module module{};
    module.count_devices = [](std::int32_t* n, cuda::ErrorText* error) {
        *n = 0;
        std::strcpy(error->text, "details");
        return answer;
    };
    for (const auto& [status, said] :
         {std::pair{cuda::Status::NoDriver, "no NVIDIA driver is installed (details)"},
          std::pair{cuda::Status::DriverTooOld, "driver is too old (details)"},
          std::pair{cuda::Status::NoDevice, "shows no GPU (details)"},
          std::pair{cuda::Status::Failed, "does not answer (details)"}, std::pair{cuda::Status::Ok, "shows no GPU"}}) {
        answer = status;
        const CudaCards cards = cards_of(module);
        EXPECT_EQ(cards.module, nullptr);
        EXPECT_THAT(cards.why_not, HasSubstr(said));
    }
}

// The module's own list tells what runs where, before any card is touched.
TEST(CudaCards, CodeServesItsGenerationAndPtxAllThatIsNewer) {
    const auto serves = [](const char* list) {
        std::string all;
        for (const std::int32_t sm : {80, 86, 87, 89, 90, 100, 103, 110, 120, 121})
            if (has_code_for(list, sm)) all += fmt::format("{} ", sm);
        return all;
    };
    EXPECT_EQ(serves("80-real;120-real"), "80 86 87 89 120 121 ");
    EXPECT_EQ(serves("86-real"), "86 87 89 ");
    EXPECT_EQ(serves("90-real"), "90 ");
    EXPECT_EQ(serves("90a-real"), "90 ");
    EXPECT_EQ(serves("80-virtual"), "80 86 87 89 90 100 103 110 120 121 ");
    EXPECT_EQ(serves("89-real,120"), "89 120 121 ");
    EXPECT_EQ(serves("80;86-real;89-real;90-real;120"), "80 86 87 89 90 100 103 110 120 121 ");
    EXPECT_EQ(serves(""), serves("80"));  // not known: the first kernel tells
}

TEST(CudaCards, ACardWithoutCodeIsALine) {
    const Machine machine({.sm = 90, .architectures = "80-real;120-real"});
    const CudaCards cards = cards_of(machine.table());
    EXPECT_FALSE(cards.serves(0));
    EXPECT_THAT(cards.why_not, AllOf(HasSubstr("no code for the GPU (an emulated card, sm_90)"),
                                     HasSubstr("80-real;120-real"), HasSubstr("tools/build_module 90")));
    EXPECT_THAT(cards.why_not_card(0), testing::StrEq(cards.why_not));
    EXPECT_THAT(cards.why_not_card(1), HasSubstr("numbered from 0"));
}

// Whatever the list says: a driver too old for the PTX, say.
TEST(CudaDevice, TriesAKernelAndSaysThatThereIsNoCode) {
    const Machine machine({.sm = 90, .architectures = "80", .runs_kernels = false});
    EXPECT_TRUE(cards_of(machine.table()).serves(0));
    EXPECT_THAT(error_text<CudaError>([&] { CudaDevice(machine.table(), {}); }),
                AllOf(HasSubstr("cuda:0"), HasSubstr("no code for the GPU"), HasSubstr("tools/build_module 90")));
}

TEST(CudaDevice, ALibraryThatDoesNotOpenIsDoneWithout) {
    const Machine machine({.sm = 89, .blas_opens = false});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB});
    EXPECT_EQ(device.instruction_form(), "sm_89");
    EXPECT_FALSE(device.has_prompt_kernels());
    EXPECT_THAT(device.no_blas(), AllOf(HasSubstr("does not open (it does not open)"), HasSubstr("own kernels")));
    EXPECT_EQ(card_form(machine.table(), 0, device.properties()), "sm_89");
}

// Page-locking is asked of the card that wants it: the thread's own may be another, or none yet.
TEST(CudaDevice, NamesItselfWhereItLocksHostMemory) {
    const Machine machine({.n_cards = 2});
    CudaDevice first(machine.table(), {.memory_bytes = kMiB});
    CudaDevice second(machine.table(), {.ordinal = 1, .memory_bytes = kMiB});
    { const Buffer host = second.allocate_host(100, MemoryTag::Activations, "logits"); }
    EXPECT_EQ(machine.locking_card(), 1);
    const Buffer other = first.allocate_host(100, MemoryTag::Activations, "logits");
    EXPECT_EQ(machine.locking_card(), 0);
    auto* page = static_cast<std::byte*>(std::aligned_alloc(4096, 4096));
    EXPECT_EQ(second.register_host(page, 4096), "");
    EXPECT_EQ(machine.locking_card(), 1);
    second.unregister_host(page);
    std::free(page);
}

// What weights that stream do between two matmuls of the same rows: another stream's copy, and a wait for it.
TEST(CudaDevice, PreparedActivationsOutliveAWaitForWeights) {
    const Machine machine({});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto in = device.make_stream(StreamKind::CopyIn);
    const auto came = device.make_event();
    const Buffer rows = device.allocate(4096, MemoryTag::Activations, "rows");
    const Buffer slot = device.allocate(4096, MemoryTag::Ring, "a slot");
    const Buffer host = device.allocate_host(4096, MemoryTag::Activations, "weights");
    const auto* x = reinterpret_cast<const float*>(rows.data());
    const auto prepare = [&] {
        cuda::Op op({device, *compute});
        device.keep_prepared({.x = x, .x_stride = 128, .k = 100, .n_tokens = 3, .change = device.n_changes()});
    };
    const auto finds = [&] {
        cuda::Op op({device, *compute});
        return device.find_prepared({.x = x, .x_stride = 128, .k = 100, .n_tokens = 3, .change = device.n_changes()}) !=
               nullptr;
    };
    prepare();
    EXPECT_TRUE(finds());
    prepare();
    in->copy(slot.data(), host.data(), 4096);
    compute->wait(*came, in->record(*came));
    EXPECT_TRUE(finds());
    prepare();
    in->copy(rows.data() + 4 * (2 * 128 + 99), host.data(), 4);  // the last float
    compute->wait(*came, in->record(*came));
    EXPECT_FALSE(finds());
    prepare();
    in->copy(rows.data() + 4 * (2 * 128 + 100), host.data(), 4);  // behind it
    EXPECT_TRUE(finds());
    prepare();
    compute->copy(rows.data(), slot.data(), 4);
    EXPECT_FALSE(finds());
    in->synchronize();
}

// 40 copies of 256 KiB at 1 GiB/s take 10 ms, however the calls come; a stream of the other direction has its own time.
TEST(CudaDevice, ALinkMayBeMadeSlower) {
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = kMiB, .link_bytes_per_second = 0x1p30});
        const auto in = device.make_stream(StreamKind::CopyIn);
        const Buffer slot = device.allocate(kMiB / 4, MemoryTag::Ring, "a slot");
        const Buffer host = device.allocate_host(kMiB / 4, MemoryTag::Activations, "host memory");
        const std::vector<std::byte> data = numbered(kMiB / 4);
        std::ranges::copy(data, host.data());
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < 40; ++i) in->copy(slot.data(), host.data(), kMiB / 4);
        in->synchronize();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        EXPECT_GE(took.count(), 40 * 0x1p-12);
        EXPECT_GE(device.link_in().busy_seconds, 0.99 * 40 * 0x1p-12);
        EXPECT_EQ(device.link_in().bytes, 10 * kMiB);
        const auto compute = device.make_stream(StreamKind::Compute);
        EXPECT_EQ(fetched(*compute, slot.data(), kMiB / 4), data);
    }
}

// Two streams of a direction share its link, and a long copy is waited for in several kernels.
TEST(CudaDevice, ASlowLinkIsSharedByItsStreams) {
    const Machine machine({});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB, .link_bytes_per_second = 0x1p20});
    const auto a = device.make_stream(StreamKind::CopyOut);
    const auto b = device.make_stream(StreamKind::CopyOut);
    const Buffer slot = device.allocate(kMiB / 2, MemoryTag::Ring, "a slot");
    const Buffer host = device.allocate_host(kMiB / 2, MemoryTag::Activations, "host memory");
    const std::int64_t before = machine.n_kernels();
    const auto began = std::chrono::steady_clock::now();
    a->copy(host.data(), slot.data(), 300 << 10);
    EXPECT_EQ(machine.n_kernels() - before, 3);  // one in front, 0.29 s in two behind
    b->copy(host.data(), slot.data(), 100 << 10);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    EXPECT_GE(took.count(), 400.0 / 1024);
}

TEST(CudaDevice, KeepsItsBudgetToTheByte) {
    const Machine machine({});
    CudaDevice device(machine.table(), {.memory_bytes = 1000});
    {
        const Buffer first = device.allocate(600, MemoryTag::Weights, "weights");
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 64, 0U);
        EXPECT_THAT(error_text<OutOfBudget>([&] { (void)device.allocate(401, MemoryTag::Kv, "the KV cache"); }),
                    AllOf(HasSubstr("the KV cache"), HasSubstr("400")));
        const Buffer second = device.allocate(400, MemoryTag::Kv, "the KV cache");
        EXPECT_EQ(machine.allocated_bytes(), 1000U);
        const Buffer host = device.allocate_host(5000, MemoryTag::Activations, "logits");
        std::memset(host.data(), 1, 5000);
        EXPECT_EQ(device.budget().used_bytes(), 1000U);
    }
    EXPECT_EQ(device.budget().used_bytes(), 0U);
    EXPECT_EQ(machine.allocated_bytes(), 0U);
}

TEST(CudaDevice, ACardThatIsFullerThanItsBudgetSaysSo) {
    const Machine machine({.memory_bytes = kMiB});
    CudaDevice device(machine.table(), {.memory_bytes = 4 * kMiB});
    EXPECT_THAT(error_text<OutOfBudget>([&] { (void)device.allocate(2 * kMiB, MemoryTag::Weights, "weights"); }),
                AllOf(HasSubstr("weights"), HasSubstr("--device-memory")));
    EXPECT_EQ(device.budget().used_bytes(), 0U);
}

// As a model takes it: norms, packs of weights, extents of KV, activations; then all of it is given back, in any order.
TEST(CudaDevice, TakesLittleMoreOfACardThanItsBudgetCounts) {
    Machine machine({.memory_bytes = std::size_t{2} << 30, .allocation_bytes = 2 * kMiB});
    CudaDevice device(machine.table(), {.memory_bytes = std::size_t{1} << 30});
    std::mt19937 random(5);
    std::vector<Buffer> buffers;
    std::size_t rounded_alone = 0;
    const auto take = [&](std::size_t bytes) {
        buffers.push_back(device.allocate(bytes, MemoryTag::Weights, "a block"));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 256, 0U);
        rounded_alone += (bytes + 2 * kMiB - 1) / (2 * kMiB) * 2 * kMiB;
    };
    for (int layer = 0; layer < 40; ++layer) {
        take(4096 + random() % 4096);
        take(9 * kMiB + random() % kMiB);
        for (int extent = 0; extent < 4; ++extent) take(kMiB / 4 * (1 + random() % 8));
    }
    std::ranges::sort(buffers, {}, &Buffer::data);
    for (std::size_t i = 1; i < buffers.size(); ++i)
        ASSERT_GE(buffers[i].data(), buffers[i - 1].data() + buffers[i - 1].size_bytes());
    const std::size_t used = device.budget().used_bytes();
    const cuda::RegionFigures taken = device.memory();
    EXPECT_EQ(taken.taken_bytes, machine.allocated_bytes());
    EXPECT_LT(static_cast<double>(taken.taken_bytes), 1.06 * static_cast<double>(used));
    EXPECT_GT(static_cast<double>(rounded_alone), 1.3 * static_cast<double>(used));
    EXPECT_LT(taken.n_regions, 80);
    std::ranges::shuffle(buffers, random);
    for (std::size_t i = 0; i < buffers.size(); i += 2) buffers[i] = Buffer();
    for (std::size_t i = 0; i < buffers.size(); i += 2) take(1 + random() % (2 * kMiB));  // into what is free again
    buffers.clear();
    EXPECT_EQ(device.budget().used_bytes(), 0U);
    EXPECT_EQ(device.memory().taken_bytes, 0U);
    EXPECT_EQ(machine.allocated_bytes(), 0U);
}

// A region that the card has no room for is tried smaller before anything is refused.
TEST(CudaDevice, FillsACardToItsEnd) {
    const Machine machine({.memory_bytes = 21 * kMiB, .allocation_bytes = 2 * kMiB});
    CudaDevice device(machine.table(), {.memory_bytes = 64 * kMiB});
    std::vector<Buffer> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(device.allocate(2 * kMiB - 256, MemoryTag::Weights, "a block"));
    EXPECT_THAT(error_text<OutOfBudget>([&] { (void)device.allocate(kMiB, MemoryTag::Kv, "the KV cache"); }),
                AllOf(HasSubstr("cuda:0"), HasSubstr("no 1048576 bytes left for the KV cache"),
                      HasSubstr("of 67108864 bytes are used"), HasSubstr("--device-memory")));
    EXPECT_EQ(buffers.size(), 10U);
}

TEST(CudaDeviceDeathTest, TheHostMayNotTouchItsMemory) {
    const auto touch = [] {
        const Machine machine({});
        CudaDevice device(machine.table(), {.memory_bytes = kMiB});
        const Buffer buffer = device.allocate(64, MemoryTag::Weights, "weights");
        *static_cast<volatile std::byte*>(buffer.data()) = std::byte{1};
    };
    EXPECT_DEATH(touch(), "the host touches memory of a GPU");
}

TEST(CudaDeviceDeathTest, WaitingForAnUnrecordedUseIsAnError) {
    const auto wait = [] {
        const Machine machine({});
        CudaDevice device(machine.table(), {.memory_bytes = kMiB});
        const auto stream = device.make_stream(StreamKind::Compute);
        const auto event = device.make_event();
        stream->record(*event);
        stream->wait(*event, 2);
    };
    EXPECT_DEATH(wait(), "wait for use 2 of an event recorded 1 times");
}

TEST(CudaDevice, EventsCountUsesDone) {
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = kMiB});
        const auto stream = device.make_stream(StreamKind::Compute);
        const auto event = device.make_event();
        EXPECT_EQ(event->completed(), 0U);
        for (std::uint64_t use = 1; use <= 11; ++use) EXPECT_EQ(stream->record(*event), use);
        EXPECT_EQ(event->recorded(), 11U);
        EXPECT_EQ(event->completed(), timing == Timing::AtOnce ? 11U : 0U);
        stream->synchronize();
        EXPECT_EQ(event->completed(), 11U);
    }
}

// A chain over three streams, ordered by events alone: in, upside down on the compute stream, out.
TEST(CudaDevice, EventsOrderStreamsUnderEveryTiming) {
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = kMiB});
        const auto in = device.make_stream(StreamKind::CopyIn);
        const auto compute = device.make_stream(StreamKind::Compute);
        const auto out = device.make_stream(StreamKind::CopyOut);
        const auto came = device.make_event();
        const auto computed = device.make_event();
        const auto freed = device.make_event();
        constexpr std::size_t n = 4096;
        const Buffer slot = device.allocate(n, MemoryTag::Ring, "a slot");
        const Buffer result = device.allocate(n, MemoryTag::Activations, "a result");
        const Buffer host = device.allocate_host(20 * n, MemoryTag::Activations, "host memory");
        for (int round = 0; round < 10; ++round) {
            const std::vector<std::byte> data = numbered(n, round);
            std::byte* from = host.data() + static_cast<std::size_t>(2 * round) * n;
            std::ranges::copy(data, from);
            if (round > 0) in->wait(*computed, computed->recorded());
            in->copy(slot.data(), from, n);
            compute->wait(*came, in->record(*came));
            if (round > 0) compute->wait(*freed, freed->recorded());
            compute->copy(result.data(), slot.data(), n);
            out->wait(*computed, compute->record(*computed));
            out->copy(from + n, result.data(), n);
            out->record(*freed);
        }
        out->synchronize();
        for (int round = 0; round < 10; ++round)
            ASSERT_EQ(
                std::memcmp(host.data() + static_cast<std::size_t>(2 * round + 1) * n, numbered(n, round).data(), n), 0)
                << round;
        EXPECT_EQ(machine.n_pageable_copies(), 0);
        EXPECT_EQ(device.link_in().bytes, 10 * n);
        EXPECT_EQ(device.link_out().bytes, 10 * n);
        EXPECT_GE(device.link_in().busy_seconds, 0.0);
    }
}

// Without the wait for the release, the latest and the earliest copies give what must not be.
TEST(Machine, TimingsShowAMissingWait) {
    int n_seen = 0;
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = kMiB});
        const auto in = device.make_stream(StreamKind::CopyIn);
        const auto compute = device.make_stream(StreamKind::Compute);
        const Buffer slot = device.allocate(64, MemoryTag::Ring, "a slot");
        const Buffer first = device.allocate(64, MemoryTag::Ring, "a copy");
        const std::vector<std::byte> ones(64, std::byte{1});
        const std::vector<std::byte> twos(64, std::byte{2});
        const auto came = device.make_event();
        in->copy(slot.data(), ones.data(), 64);
        compute->wait(*came, in->record(*came));
        compute->copy(first.data(), slot.data(), 64);
        in->copy(slot.data(), twos.data(), 64);
        in->synchronize();
        n_seen += fetched(*compute, first.data(), 64) != ones ? 1 : 0;
    }
    EXPECT_EQ(n_seen, 2);
}

TEST(CudaDevice, RegistersHostMemory) {
    const Machine machine({.lockable_bytes = 8192});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB});
    auto* pages = static_cast<std::byte*>(std::aligned_alloc(4096, 4 * 4096));
    ASSERT_NE(pages, nullptr);
    EXPECT_EQ(device.register_host(pages, 8192), "");
    EXPECT_THAT(device.register_host(pages + 8192, 8192), HasSubstr("out of memory"));
    const auto in = device.make_stream(StreamKind::CopyIn);
    const Buffer buffer = device.allocate(16384, MemoryTag::Ring, "a slot");
    in->copy(buffer.data(), pages + 4096, 4096);
    EXPECT_EQ(machine.n_pageable_copies(), 0);
    in->copy(buffer.data(), pages + 8192, 4096);
    EXPECT_EQ(machine.n_pageable_copies(), 1);
    EXPECT_THROW(in->copy(buffer.data(), pages + 4096, 8192), CudaError);  // across a border
    in->synchronize();
    device.unregister_host(pages);
    std::free(pages);
}

TEST(PinnedArena, RegistersItsBlocksWithTheDevice) {
    const Machine machine({.lockable_bytes = 12288});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB});
    PinnedArena arena({.limit_bytes = 16 * kMiB, .device = &device});
    PinnedBuffer first = arena.allocate(100, "a small block");
    EXPECT_EQ(first.page_lock(), PageLock::Locked);
    const PinnedBuffer second = arena.allocate(5000, "a block");
    EXPECT_EQ(second.page_lock(), PageLock::Locked);
    EXPECT_EQ(arena.lock_refusal(), "");
    const auto in = device.make_stream(StreamKind::CopyIn);
    const Buffer buffer = device.allocate(8192, MemoryTag::Ring, "a slot");
    in->copy(buffer.data(), second.data(), 5000);
    EXPECT_EQ(machine.n_pageable_copies(), 0);
    const PinnedBuffer third = arena.allocate(100, "a block too many");
    EXPECT_EQ(third.page_lock(), PageLock::Pageable);
    EXPECT_THAT(arena.lock_refusal(), AllOf(HasSubstr("cuda:0 did not register 100"), HasSubstr("--host-memory")));
    EXPECT_EQ(arena.locked_bytes(), 5100U);
    in->synchronize();
    first = PinnedBuffer();
    EXPECT_EQ(arena.allocate(200, "a block").page_lock(), PageLock::Locked);  // its pages are free again
}

TEST(PinnedArena, RegistersPartsOfAReservedBlockAsTheyCome) {
    const Machine machine({.lockable_bytes = 5 * 4096});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB});
    PinnedArena arena({.limit_bytes = 16 * kMiB, .device = &device});
    PinnedBuffer block = arena.reserve(8 * 4096, "KV");
    EXPECT_EQ(arena.locked_bytes(), 0U);
    arena.bring(block, 0, 8192, "KV");
    std::thread([&] { arena.bring(block, 8192, 8192, "KV"); }).join();
    EXPECT_EQ(arena.locked_bytes(), 16384U);
    EXPECT_EQ(arena.lock_refusal(), "");
    const auto in = device.make_stream(StreamKind::CopyIn);
    const Buffer buffer = device.allocate(16384, MemoryTag::Ring, "a slot");
    in->copy(buffer.data(), block.data() + 8192, 8192);
    EXPECT_EQ(machine.n_pageable_copies(), 0);
    EXPECT_THROW(in->copy(buffer.data(), block.data(), 16384), CudaError);  // from one part into another
    arena.bring(block, 16384, 16384, "KV");
    EXPECT_EQ(arena.locked_bytes(), 16384U);
    EXPECT_THAT(arena.lock_refusal(), HasSubstr("cuda:0 did not register 16384 bytes in addition to 16384"));
    in->synchronize();
    block = PinnedBuffer();
    EXPECT_EQ(arena.locked_bytes(), 0U);
    EXPECT_EQ(arena.allocate(5 * 4096, "a block").page_lock(), PageLock::Locked);  // its pages are free again
}

TEST(CudaDevice, ErrorsNameTheDeviceAndTheCall) {
    Machine machine({});
    CudaDevice device(machine.table(), {.memory_bytes = kMiB});
    const auto stream = device.make_stream(StreamKind::Compute);
    const Buffer x = device.allocate(7 * 64 * sizeof(float), MemoryTag::Activations, "x");
    machine.fail_in(1);
    EXPECT_THAT(error_text<CudaError>([&] {
                    const TensorView rows = matrix_view(reinterpret_cast<float*>(x.data()), 7, 64);
                    gated_activation({device, *stream}, {.gate = rows, .up = rows, .y = rows});
                }),
                AllOf(HasSubstr("cuda:0"), HasSubstr("gated_activation [7, 64]"), HasSubstr("an injected fault")));
    machine.fail_in(1);
    EXPECT_THROW(stream->copy(x.data(), x.data() + 64, 64), CudaError);
    stream->synchronize();
}

TEST(Staging, GivesEachArrayItsBytes) {
    std::mt19937 rng(11);
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = 64 * kMiB});
        const auto stream = device.make_stream(StreamKind::Compute);
        const Buffer results = device.allocate(16 * kMiB, MemoryTag::Activations, "results");
        std::vector<std::vector<std::byte>> expected;
        std::size_t at = 0;
        for (int op_number = 0; op_number < 300; ++op_number) {
            cuda::Op op({device, *stream});
            std::vector<const std::byte*> staged;
            std::vector<std::vector<std::byte>> arrays;
            for (unsigned n = 1 + rng() % 4; n > 0; --n)  // some seen before, some new, some as large as rings get
                arrays.push_back(numbered(1 + rng() % (rng() % 20 == 0 ? 60000 : 600), static_cast<int>(rng() % 9)));
            for (std::vector<std::byte>& array : arrays) {
                staged.push_back(op.stage(array.data(), std::ssize(array)));
                EXPECT_EQ(reinterpret_cast<std::uintptr_t>(staged.back()) % 64, 0U);
                std::vector<std::byte> gone(array.size(), std::byte{0xee});
                expected.push_back(std::exchange(array, gone));  // the host's may change at once
            }
            for (std::size_t i = 0; i < staged.size(); ++i) {
                const std::size_t n = expected[expected.size() - staged.size() + i].size();
                stream->copy(results.data() + at, staged[i], n);
                at += n;
            }
            ASSERT_LE(at, results.size_bytes());
        }
        const std::vector<std::byte> found = fetched(*stream, results.data(), at);
        at = 0;
        for (const std::vector<std::byte>& array : expected) {
            ASSERT_EQ(std::memcmp(found.data() + at, array.data(), array.size()), 0);
            at += array.size();
        }
        EXPECT_GT(device.staging().n_found(), 0U);
        EXPECT_EQ(machine.n_pageable_copies(), 0);
    }
}

TEST(Staging, TheSameBytesAreCopiedOnce) {
    const Machine machine({.timing = Timing::Latest});
    CudaDevice device(machine.table(), {.memory_bytes = 64 * kMiB});
    const auto stream = device.make_stream(StreamKind::Compute);
    std::vector<std::int32_t> positions(500);
    std::iota(positions.begin(), positions.end(), 0);
    for (int layer = 0; layer < 30; ++layer) {
        cuda::Op op({device, *stream});
        const std::vector<std::int32_t> of_layer(16, layer);
        static_cast<void>(op.stage(positions.data(), std::ssize(positions)));
        static_cast<void>(op.stage(of_layer.data(), std::ssize(of_layer)));
    }
    EXPECT_EQ(device.staging().n_copied(), 31U);
    EXPECT_EQ(device.staging().n_found(), 29U);
    const std::vector<std::int32_t> prefix(positions.begin(), positions.begin() + 499);
    cuda::Op op({device, *stream});
    static_cast<void>(op.stage(prefix.data(), std::ssize(prefix)));
    EXPECT_EQ(device.staging().n_copied(), 32U);
    stream->synchronize();
}

// However often the ring has gone round: what is met again was copied long ago, and nothing later is waited for.
TEST(Staging, NewArraysDoNotStopTheHost) {
    const Machine machine({.timing = Timing::Latest});
    CudaDevice device(machine.table(), {.memory_bytes = 64 * kMiB});
    const auto stream = device.make_stream(StreamKind::Compute);
    std::vector<std::byte> array(4096);
    std::int32_t number = 0;
    for (int pass = 0; pass < 40; ++pass) {
        for (int i = 0; i < 32; ++i) {
            const std::int64_t waiting = machine.n_waiting();
            std::memcpy(array.data(), &++number, sizeof(number));
            cuda::Op op({device, *stream});
            static_cast<void>(op.stage(array.data(), std::ssize(array)));
            ASSERT_GT(machine.n_waiting(), waiting) << "pass " << pass << ", array " << i;
        }
        stream->synchronize();
    }
}

TEST(Staging, StreamsTakeTurns) {
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = 64 * kMiB});
        const auto first = device.make_stream(StreamKind::Compute);
        auto second = device.make_stream(StreamKind::Compute);
        const Buffer result = device.allocate(4 * 512, MemoryTag::Activations, "results");
        const std::vector<std::byte> array = numbered(512);
        for (std::size_t i = 0; i < 4; ++i) {
            Stream& stream = i % 2 == 0 ? *first : *second;
            cuda::Op op({device, stream});
            // Scratch is handed from one to the other, in order.
            std::byte* scratch = op.scratch(512);
            if (i == 0) stream.copy(scratch, op.stage(array.data(), 512), 512);
            stream.copy(result.data() + i * 512, scratch, 512);
        }
        second->synchronize();
        const std::vector<std::byte> found = fetched(*first, result.data(), 4 * 512);
        for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::memcmp(found.data() + i * 512, array.data(), 512), 0);
        second.reset();  // whoever had the last turn may go
        cuda::Op op({device, *first});
        static_cast<void>(op.stage(array.data(), 10));
        first->synchronize();
    }
}

TEST(HostOps, EmbeddingRowsAndRopeAnglesAreTheHosts) {
    for (const Timing timing : kTimings) {
        const Machine machine({.timing = timing});
        CudaDevice device(machine.table(), {.memory_bytes = 64 * kMiB, .n_threads = 2});
        const auto stream = device.make_stream(StreamKind::Compute);
        // Rows of 64 KiB: many pieces of the ring that they are sent through.
        constexpr std::int64_t d = 16384;
        constexpr std::int64_t n = 300;
        std::vector<float> table(static_cast<std::size_t>(5 * d));
        std::iota(table.begin(), table.end(), 1.0F);
        std::vector<std::int32_t> tokens(n);
        for (std::size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<std::int32_t>(t * 7 % 5);
        const Buffer y = device.allocate(n * d * sizeof(float), MemoryTag::Activations, "y");
        embed({device, *stream}, {.table = matrix_view(static_cast<const float*>(table.data()), 5, d),
                                  .tokens = tokens.data(),
                                  .y = matrix_view(reinterpret_cast<float*>(y.data()), n, d)});
        std::vector<float> found(n * d);
        stream->copy(found.data(), y.data(), y.size_bytes());
        stream->synchronize();
        for (std::size_t t = 0; t < tokens.size(); ++t)
            ASSERT_EQ(std::memcmp(found.data() + t * d, table.data() + static_cast<std::size_t>(tokens[t]) * d,
                                  d * sizeof(float)),
                      0)
                << t;

        const std::vector<double> inverse{1.0, 0.1, 0.01};
        const std::vector<std::int32_t> positions{0, 1, 131071};
        rope_table({device, *stream}, {.positions = positions.data(),
                                       .inverse_frequency = inverse.data(),
                                       .magnitude = 1.5F,
                                       .cos_sin = matrix_view(reinterpret_cast<float*>(y.data()), 3, 6)});
        stream->copy(found.data(), y.data(), 18 * sizeof(float));
        stream->synchronize();
        for (std::size_t t = 0; t < 3; ++t)
            for (std::size_t i = 0; i < 3; ++i) {
                const double angle = positions[t] * inverse[i];
                EXPECT_EQ(found[t * 6 + i], static_cast<float>(std::cos(angle)) * 1.5F);
                EXPECT_EQ(found[t * 6 + 3 + i], static_cast<float>(std::sin(angle)) * 1.5F);
            }
    }
}

}  // namespace
}  // namespace slipstream
