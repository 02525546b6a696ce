// delta_net() against a reference in double over random trees; the same bits in every kernel variant, for any number of
// threads, and however the tokens are divided among passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu_device.h"
#include "tests/kernels/delta_net_cases.h"

namespace slipstream {
namespace {

using testing_delta::Case;
using testing_delta::expect_near;
using testing_delta::expect_paths_alone;
using testing_delta::expect_same;
using testing_delta::kEven;
using testing_delta::kOdd;
using testing_delta::kShort;
using testing_delta::random_tree;
using testing_delta::Result;

struct Cpu {
    explicit Cpu(CpuForm form = best_cpu_form(), int n_threads = 2) : device({.n_threads = n_threads, .form = form}) {}
    [[nodiscard]] ExecRef exec() { return {device, *stream}; }
    CpuDevice device;
    std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
};

std::vector<CpuForm> forms() {
    std::vector<CpuForm> all;
    for (const CpuForm form : kCpuForms)
        if (cpu_has_form(form)) all.push_back(form);
    return all;
}

TEST(DeltaNet, IsNearAReferenceInDouble) {
    for (const DeltaNetShape& shape : {kEven, kOdd, kShort}) {
        const Case of(shape, random_tree(5, 24, 7), 3);
        expect_near(run(Cpu().exec(), of, 5).out, reference(of));
    }
}

TEST(DeltaNet, EveryVariantAndNumberOfThreadsGivesTheSameBits) {
    for (const DeltaNetShape& shape : {kEven, kOdd, kShort}) {
        const Case of(shape, random_tree(3, 17, 5), 4);
        const Result expected = run(Cpu(CpuForm::Scalar, 1).exec(), of, 3);
        for (const CpuForm form : forms())
            for (const int n_threads : {1, 3}) expect_same(run(Cpu(form, n_threads).exec(), of, 3), expected);
    }
}

// A path of a tree has the bits of its tokens one by one, and so has the state after it.
TEST(DeltaNet, ATokenDependsOnItsPathAlone) {
    for (const DeltaNetShape& shape : {kEven, kOdd, kShort}) {
        const Case of(shape, random_tree(2, 20, 9), 6);
        expect_paths_alone(Cpu().exec(), of, 2, run(Cpu().exec(), of, 2));
    }
}

// Fewer tokens than taps move taps within their memory.
TEST(DeltaNet, TheStateMayBeWrittenInPlace) {
    for (const std::int32_t n : {1, 2, 6}) {
        const Case of(kEven, random_tree(n, n, 1), 8);
        expect_same(run(Cpu().exec(), of, n, {.in_place = true}), run(Cpu().exec(), of, n));
    }
}

// Stored inputs are those of a pass: the first tokens of a chain are stored, and have no results.
TEST(DeltaNet, StoredInputsContinueTheText) {
    const Case of(kOdd, random_tree(7, 7, 1), 9);
    Result expected = run(Cpu().exec(), of, 7);
    expected.out.erase(expected.out.begin(), expected.out.begin() + 4 * of.shape.value_cols());
    expect_same(run(Cpu().exec(), of, 7, {.n_stored = 4}), expected);
}

TEST(DeltaNet, WorkingStatesGrowWithTheLogarithmOfTheSteps) {
    EXPECT_EQ(working_states(1), 1);
    EXPECT_EQ(working_states(2), 2);
    EXPECT_EQ(working_states(64), 7);
}

TEST(GatherColumns, CopiesRunsInOrder) {
    CpuDevice device({.n_threads = 2});
    const auto stream = device.make_stream(StreamKind::Compute);
    std::vector<float> x(2 * 12);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    std::vector<float> y(2 * 4);
    gather_columns({device, *stream}, {.x = matrix_view(static_cast<const float*>(x.data()), 2, 12),
                                       .y = matrix_view(y.data(), 2, 4),
                                       .run = 2,
                                       .first = 3,
                                       .stride = 5});
    EXPECT_THAT(y, ::testing::ElementsAre(3, 4, 8, 9, 15, 16, 20, 21));
}

}  // namespace
}  // namespace slipstream
