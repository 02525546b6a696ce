// Copies of a CPU device that stand still: every wait for them ends, all hear of it, and the stream serves again. A
// slow link is no such thing.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "tests/support/error_text.h"

namespace slipstream {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

class StallingCopy : public testing::Test {
protected:
    std::uint64_t copy_and_record(Stream& stream, Event& event) {
        stream.copy(target_.data(), source_.data(), source_.size());
        return stream.record(event);
    }
    void expect_to_serve(Stream& stream) {
        target_.assign(target_.size(), 0);
        compute_->wait(*event_, copy_and_record(stream, *event_));
        EXPECT_EQ(target_, source_);
    }

    CpuFaults faults_{.stall_after = std::chrono::milliseconds(200)};
    CpuDevice device_{CpuDeviceOptions{.name = "card", .faults = &faults_}};
    std::unique_ptr<Event> event_ = device_.make_event();
    std::unique_ptr<Event> other_event_ = device_.make_event();
    std::vector<char> source_ = std::vector<char>(100, 'x');
    std::vector<char> target_ = std::vector<char>(100, 0);
    std::unique_ptr<Stream> compute_ = device_.make_stream(StreamKind::Compute);
    std::unique_ptr<Stream> in_ = device_.make_stream(StreamKind::CopyIn);
    std::unique_ptr<Stream> out_ = device_.make_stream(StreamKind::CopyOut);
};

TEST_F(StallingCopy, FailsForWhoeverWaitsBehindIt) {
    faults_.copies_until_stall = 1;
    const std::uint64_t use = copy_and_record(*in_, *event_);
    const Clock::time_point began = Clock::now();
    EXPECT_THAT(error_text<IoError>([&] { compute_->wait(*event_, use); }),
                HasSubstr("card, copies in: a copy of 100 bytes made no progress for 0.2 s"));
    EXPECT_GE(Clock::now() - began, faults_.stall_after);
    EXPECT_EQ(target_[0], 0);
    EXPECT_THAT(error_text<IoError>([&] { in_->synchronize(); }), HasSubstr("made no progress"));
    EXPECT_EQ(device_.link_in().bytes, 0U);
    expect_to_serve(*in_);
}

TEST_F(StallingCopy, FailsForWhoeverWaitsForTheStream) {
    for (const std::int64_t n_before : {0, 1, 5}) {
        faults_.copies_until_stall = n_before + 1;
        for (std::int64_t i = 0; i < 7; ++i) copy_and_record(*out_, *event_);
        EXPECT_THAT(error_text<IoError>([&] { out_->synchronize(); }), HasSubstr("card, copies out: a copy of 100"));
        expect_to_serve(*out_);
    }
}

TEST_F(StallingCopy, FailsForOneWhoWaitsForRoomInTheQueue) {
    faults_.copies_until_stall = 1;
    for (int i = 0; i < 3000; ++i) in_->copy(target_.data(), source_.data(), 1);
    EXPECT_THAT(error_text<IoError>([&] { in_->synchronize(); }), HasSubstr("made no progress"));
    expect_to_serve(*in_);
}

// Nobody waits for the stream that stalls, but for one that waits for it.
TEST_F(StallingCopy, IsHeardOfBehindAnotherStream) {
    faults_.copies_until_stall = 1;
    in_->wait(*other_event_, copy_and_record(*out_, *other_event_));
    const std::uint64_t use = copy_and_record(*in_, *event_);
    EXPECT_THAT(error_text<IoError>([&] { compute_->wait(*event_, use); }), HasSubstr("card, copies out: a copy of"));
    EXPECT_THROW(in_->synchronize(), IoError);
    EXPECT_THROW(out_->synchronize(), IoError);
    expect_to_serve(*in_);
    expect_to_serve(*out_);
}

TEST_F(StallingCopy, KeepsNoStreamFromItsEnd) {
    faults_.copies_until_stall = 1;
    copy_and_record(*in_, *event_);
    const Clock::time_point began = Clock::now();
    in_.reset();
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
    EXPECT_EQ(target_[0], 0);
}

// Many wait, for the event and for the stream.
TEST_F(StallingCopy, EndsEveryWait) {
    for (int round = 0; round < 3; ++round) {
        faults_.copies_until_stall = 2;
        std::vector<std::uint64_t> uses;
        for (int i = 0; i < 3; ++i) uses.push_back(copy_and_record(*in_, *event_));
        std::atomic<int> n_told{0};
        {
            std::vector<std::jthread> waiters;
            for (int i = 0; i < 3; ++i)
                waiters.emplace_back([&] {
                    const auto own = device_.make_stream(StreamKind::Compute);
                    for (const std::uint64_t use : uses) try {
                            own->wait(*event_, use);
                        } catch (const IoError&) {
                            ++n_told;
                        }
                });
        }
        EXPECT_EQ(n_told, 2 * 3);
        EXPECT_THROW(in_->synchronize(), IoError);
        expect_to_serve(*in_);
    }
}

// Of several devices at once: all have had their time when the first has.
TEST(StallingCopies, ThatStandStillTogetherDoNotAddUp) {
    constexpr int kDevices = 4;
    std::vector<std::unique_ptr<CpuFaults>> faults;
    std::vector<std::unique_ptr<CpuDevice>> devices;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    std::vector<char> source(100, 'x'), target(100, 0);
    for (int i = 0; i < kDevices; ++i) {
        faults.push_back(std::make_unique<CpuFaults>());
        faults[i]->stall_after = std::chrono::seconds(1);
        faults[i]->copies_until_stall = 1;
        devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.name = "card", .faults = faults[i].get()}));
        streams.push_back(devices[i]->make_stream(StreamKind::CopyIn));
        events.push_back(devices[i]->make_event());
        streams[i]->copy(target.data(), source.data(), source.size());
    }
    const Clock::time_point began = Clock::now();
    for (int i = 0; i < kDevices; ++i) {
        const auto compute = devices[i]->make_stream(StreamKind::Compute);
        const std::uint64_t use = streams[i]->record(*events[i]);
        EXPECT_THAT(error_text<IoError>([&] { compute->wait(*events[i], use); }),
                    HasSubstr("made no progress for 1 s"));
    }
    EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(900));
    EXPECT_LT(Clock::now() - began, std::chrono::milliseconds(2500));
}

// A program that is asked to stop waits for no link; one that goes on after that finds it free.
TEST(SlowLink, IsNotWaitedForOnceTheProgramIsToStop) {
    std::atomic<bool> stop{false};
    CpuFaults wish{.stop = &stop};
    CpuDevice device({.link_bytes_per_second = 1000.0, .faults = &wish});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto copies = device.make_stream(StreamKind::CopyIn);
    const auto event = device.make_event();
    std::vector<char> source(100'000, 'x'), target(100'000, 0);
    const Clock::time_point began = Clock::now();
    for (int i = 0; i < 3; ++i) copies->copy(target.data(), source.data(), source.size());  // 300 s
    const std::uint64_t use = copies->record(*event);
    const std::jthread stopping([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        stop = true;
    });
    compute->wait(*event, use);
    EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(100));
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(2));
    EXPECT_EQ(target, source);
    EXPECT_LT(device.link_in().busy_seconds, 2.0);

    stop = false;
    const Clock::time_point again = Clock::now();
    copies->copy(target.data(), source.data(), 300);
    copies->synchronize();
    EXPECT_GE(Clock::now() - again, std::chrono::milliseconds(300));
    EXPECT_LT(Clock::now() - again, std::chrono::seconds(2));
}

// A block is a step of progress: the deadline counts from the time at which a link of that rate has brought it.
TEST(SlowLink, IsNotTakenForOneThatStandsStill) {
    CpuFaults faults;
    faults.stall_after = std::chrono::milliseconds(100);
    CpuDevice device({.link_bytes_per_second = 2000.0, .faults = &faults});
    const auto compute = device.make_stream(StreamKind::Compute);
    const auto copies = device.make_stream(StreamKind::CopyIn);
    const auto event = device.make_event();
    std::vector<char> source(1000, 'x'), target(1000, 0);
    const Clock::time_point began = Clock::now();
    copies->copy(target.data(), source.data(), 600);
    copies->copy(target.data() + 600, source.data() + 600, 400);
    compute->wait(*event, copies->record(*event));
    EXPECT_GE(Clock::now() - began, 4 * faults.stall_after);
    EXPECT_EQ(target, source);
}

TEST(CpuFaults, TheNthKernelAndTheNthCopyOfRowsFail) {
    CpuFaults faults;
    const CpuDeviceOptions options{.name = "card", .faults = &faults};
    CpuDevice device(options);
    faults.ops_until_failure = 2;
    static_cast<void>(device.ops());
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(device.ops()); }), HasSubstr("card: a kernel failed"));
    static_cast<void>(device.ops());
    faults.rows_until_failure = 1;
    const auto compute = device.make_stream(StreamKind::Compute);
    int from = 7;
    int to = 0;
    EXPECT_THAT(error_text<IoError>([&] { compute->copy(&to, &from, sizeof(int)); }),
                HasSubstr("card: a copy of 4 bytes failed"));
    compute->copy(&to, &from, sizeof(int));
    EXPECT_EQ(to, 7);
}

}  // namespace
}  // namespace slipstream
