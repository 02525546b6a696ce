// delta_net() against a reference in double over random trees; the same bits in every kernel variant, for any number of
// threads, and however the tokens are divided among passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/delta_net.h"

namespace slipstream {
namespace {

using ::testing::ElementsAreArray;

std::vector<float> normal(std::mt19937& random, std::int64_t n, float scale) {
    std::normal_distribution<float> draw(0.0F, scale);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = draw(random);
    return values;
}

// Weights of a delta net, a state, and the inputs of tokens that are nodes of a tree.
struct Case {
    DeltaNetShape shape;
    std::vector<float> conv, rates, bias, state, taps, rows;
    std::vector<std::int32_t> parents;  // [tokens]; -1: after the state

    Case(const DeltaNetShape& of, std::vector<std::int32_t> tree, unsigned seed) : shape(of), parents(std::move(tree)) {
        std::mt19937 random(seed);
        conv = normal(random, shape.convolved_cols() * shape.conv_width, 0.5F);
        rates = normal(random, shape.n_value_heads, 1.0F);
        for (float& rate : rates) rate = -std::exp(rate);
        bias = normal(random, shape.n_value_heads, 1.0F);
        taps = normal(random, shape.tap_floats(), 1.0F);
        rows = normal(random, std::ssize(parents) * shape.row_cols(), 1.0F);
        state = normal(random, shape.state_floats(), 0.3F);
        const std::int64_t blocks = (shape.value_dim + kStateColumns - 1) / kStateColumns;
        for (std::int64_t i = 0; i < shape.state_floats(); ++i) {
            const std::int64_t column =
                i / (shape.key_dim * kStateColumns) % blocks * kStateColumns + i % kStateColumns;
            if (column >= shape.value_dim) state[static_cast<std::size_t>(i)] = 0.0F;
        }
    }
    [[nodiscard]] std::int64_t n() const { return std::ssize(parents); }
};

struct Result {
    std::vector<float> out, state, taps;
};

// Runs the tokens of a case in the order of their parents, each in a working state of its own; the first `n_kept` must
// be a chain.
Result run(const Case& of, CpuForm form, int n_threads, std::int64_t n_kept) {
    CpuDevice device({.n_threads = n_threads, .form = form});
    const auto stream = device.make_stream(StreamKind::Compute);
    Result result{std::vector<float>(static_cast<std::size_t>(of.n() * of.shape.value_cols())),
                  std::vector<float>(of.state.size(), -7.0F), std::vector<float>(of.taps.size(), -7.0F)};
    std::vector<DeltaStep> steps;
    for (std::int32_t i = 0; i < of.n(); ++i) {
        const std::int32_t parent = of.parents[static_cast<std::size_t>(i)];
        const std::int32_t from = parent < n_kept ? 0 : steps[static_cast<std::size_t>(parent)].to;
        steps.push_back({.row = i, .parent = parent, .from = from, .to = i < n_kept ? 0 : i + 1});
    }
    std::vector<float> convolved(of.rows.size());
    delta_net({device, *stream}, {.shape = of.shape,
                                  .rows = matrix_view(of.rows.data(), of.n(), of.shape.row_cols()),
                                  .steps = steps,
                                  .n_kept = n_kept,
                                  .n_working = of.n() + 1,
                                  .conv = of.conv.data(),
                                  .decay_rates = of.rates.data(),
                                  .decay_bias = of.bias.data(),
                                  .state = of.state.data(),
                                  .taps = of.taps.data(),
                                  .kept_state = result.state.data(),
                                  .kept_taps = result.taps.data(),
                                  .convolved = convolved.data(),
                                  .out = matrix_view(result.out.data(), of.n(), of.shape.value_cols())});
    return result;
}

// The results of all tokens in double, each computed from the state along its path.
std::vector<double> reference(const Case& of) {
    const DeltaNetShape& shape = of.shape;
    const std::int64_t blocks = (shape.value_dim + kStateColumns - 1) / kStateColumns;
    std::vector<double> out;
    for (std::int32_t token = 0; token < of.n(); ++token) {
        std::vector<std::int32_t> path;
        for (std::int32_t at = token; at >= 0; at = of.parents[static_cast<std::size_t>(at)]) path.push_back(at);
        std::reverse(path.begin(), path.end());
        const auto input = [&](std::int64_t at, std::int64_t column) -> double {  // at: in `path`, below 0 in the taps
            if (at < 0)
                return of.taps[static_cast<std::size_t>((shape.conv_width - 1 + at) * shape.convolved_cols() + column)];
            return of.rows[static_cast<std::size_t>(path[static_cast<std::size_t>(at)] * shape.row_cols() + column)];
        };
        for (std::int64_t head = 0; head < shape.n_value_heads; ++head) {
            std::vector<std::vector<double>> s(static_cast<std::size_t>(shape.key_dim));
            for (std::int64_t k = 0; k < shape.key_dim; ++k)
                for (std::int64_t v = 0; v < shape.value_dim; ++v)
                    s[static_cast<std::size_t>(k)].push_back(of.state[static_cast<std::size_t>(
                        ((head * blocks + v / 16) * shape.key_dim + k) * 16 + v % 16)]);
            std::vector<double> result(static_cast<std::size_t>(shape.value_dim));
            for (std::int64_t t = 0; t < std::ssize(path); ++t) {
                const auto convolved = [&](std::int64_t column) {
                    double sum = 0.0;
                    for (std::int64_t tap = 0; tap < shape.conv_width; ++tap)
                        sum += of.conv[static_cast<std::size_t>(tap * shape.convolved_cols() + column)] *
                               input(t - (shape.conv_width - 1) + tap, column);
                    return sum / (1.0 + std::exp(-sum));
                };
                const auto vector = [&](std::int64_t first, bool norms, double scale) {
                    std::vector<double> x;
                    double squares = 1e-6;
                    for (std::int64_t k = 0; k < shape.key_dim; ++k) {
                        x.push_back(convolved(first + k));
                        squares += x.back() * x.back();
                    }
                    for (double& value : x) value *= norms ? scale / std::sqrt(squares) : 1.0;
                    return x;
                };
                const std::int64_t key_head =
                    shape.tiled ? head % shape.n_key_heads : head * shape.n_key_heads / shape.n_value_heads;
                const auto q = vector(key_head * shape.key_dim, true, 1.0 / std::sqrt(double(shape.key_dim)));
                const auto k = vector(shape.key_cols() + key_head * shape.key_dim, true, 1.0);
                const double x = input(t, shape.convolved_cols() + head) + of.bias[static_cast<std::size_t>(head)];
                const double decay = std::exp(of.rates[static_cast<std::size_t>(head)] * std::log1p(std::exp(x)));
                const double beta =
                    1.0 / (1.0 + std::exp(-input(t, shape.convolved_cols() + shape.n_value_heads + head)));
                for (std::int64_t v = 0; v < shape.value_dim; ++v) {
                    const auto column = static_cast<std::size_t>(v);
                    double dot = 0.0;
                    for (std::size_t i = 0; i < s.size(); ++i) dot += (s[i][column] *= decay) * k[i];
                    const double update = beta * (convolved(2 * shape.key_cols() + head * shape.value_dim + v) - dot);
                    result[column] = 0.0;
                    for (std::size_t i = 0; i < s.size(); ++i) {
                        s[i][column] += k[i] * update;
                        result[column] += s[i][column] * q[i];
                    }
                }
            }
            out.insert(out.end(), result.begin(), result.end());
        }
    }
    return out;
}

const DeltaNetShape kEven{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 32, .value_dim = 32, .conv_width = 4};
const DeltaNetShape kOdd{
    .n_key_heads = 2, .n_value_heads = 6, .key_dim = 19, .value_dim = 21, .conv_width = 4, .tiled = true};
const DeltaNetShape kShort{.n_key_heads = 1, .n_value_heads = 1, .key_dim = 16, .value_dim = 48, .conv_width = 2};

std::vector<std::int32_t> random_tree(std::int32_t n_chain, std::int32_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> parents;
    for (std::int32_t i = 0; i < n; ++i)
        parents.push_back(i <= n_chain ? i - 1
                                       : std::uniform_int_distribution(std::max(n_chain - 1, 0), i - 1)(random));
    return parents;
}

std::vector<CpuForm> forms() {
    std::vector<CpuForm> all;
    for (const CpuForm form : kCpuForms)
        if (cpu_has_form(form)) all.push_back(form);
    return all;
}

TEST(DeltaNet, EqualsAReferenceInDouble) {
    for (const DeltaNetShape& shape : {kEven, kOdd, kShort}) {
        const Case of(shape, random_tree(5, 24, 7), 3);
        const Result found = run(of, best_cpu_form(), 2, 5);
        const std::vector<double> expected = reference(of);
        ASSERT_EQ(found.out.size(), expected.size());
        double error = 0.0;
        double norm = 0.0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            error += (found.out[i] - expected[i]) * (found.out[i] - expected[i]);
            norm += expected[i] * expected[i];
        }
        EXPECT_LT(error / norm, 1e-11) << "key size " << shape.key_dim;
    }
}

TEST(DeltaNet, EveryVariantAndNumberOfThreadsGivesTheSameBits) {
    for (const DeltaNetShape& shape : {kEven, kOdd, kShort}) {
        const Case of(shape, random_tree(3, 17, 5), 4);
        const Result expected = run(of, CpuForm::Scalar, 1, 3);
        for (const CpuForm form : forms()) {
            for (const int n_threads : {1, 3}) {
                const Result found = run(of, form, n_threads, 3);
                EXPECT_THAT(found.out, ElementsAreArray(expected.out)) << cpu_form_name(form);
                EXPECT_THAT(found.state, ElementsAreArray(expected.state)) << cpu_form_name(form);
                EXPECT_THAT(found.taps, ElementsAreArray(expected.taps)) << cpu_form_name(form);
            }
        }
    }
}

// A path of a tree has the bits of its tokens one by one, and so has the state after it.
TEST(DeltaNet, ATokenDependsOnItsPathAlone) {
    for (const DeltaNetShape& shape : {kEven, kOdd, kShort}) {
        const Case of(shape, random_tree(2, 20, 9), 6);
        const Result tree = run(of, best_cpu_form(), 2, 2);
        const auto cols = static_cast<std::size_t>(shape.value_cols());
        const auto row_cols = static_cast<std::size_t>(shape.row_cols());
        for (std::int32_t leaf = 0; leaf < of.n(); ++leaf) {
            std::vector<std::int32_t> path;
            for (std::int32_t at = leaf; at >= 0; at = of.parents[static_cast<std::size_t>(at)]) path.push_back(at);
            std::reverse(path.begin(), path.end());
            Case single = of;
            single.parents = {-1};
            for (const std::int32_t token : path) {
                const auto at = static_cast<std::size_t>(token);
                single.rows.assign(of.rows.begin() + static_cast<std::ptrdiff_t>(at * row_cols),
                                   of.rows.begin() + static_cast<std::ptrdiff_t>((at + 1) * row_cols));
                const Result alone = run(single, best_cpu_form(), 1, 1);
                EXPECT_THAT(alone.out, ElementsAreArray(tree.out.data() + at * cols, cols)) << "token " << token;
                single.state = alone.state;
                single.taps = alone.taps;
                if (token != 1) continue;
                EXPECT_THAT(alone.state, ElementsAreArray(tree.state));
                EXPECT_THAT(alone.taps, ElementsAreArray(tree.taps));
            }
        }
    }
}

// Fewer tokens than taps move taps within their memory.
TEST(DeltaNet, TheStateMayBeWrittenInPlace) {
    for (const std::int32_t n : {1, 2, 6}) {
        Case of(kEven, random_tree(n, n, 1), 8);
        const Result expected = run(of, best_cpu_form(), 1, n);
        CpuDevice device({.n_threads = 1});
        const auto stream = device.make_stream(StreamKind::Compute);
        std::vector<DeltaStep> steps;
        for (std::int32_t i = 0; i < n; ++i) steps.push_back({.row = i, .parent = i - 1});
        std::vector<float> convolved(of.rows.size());
        std::vector<float> out(expected.out.size());
        delta_net({device, *stream}, {.shape = of.shape,
                                      .rows = matrix_view(of.rows.data(), n, of.shape.row_cols()),
                                      .steps = steps,
                                      .n_kept = n,
                                      .conv = of.conv.data(),
                                      .decay_rates = of.rates.data(),
                                      .decay_bias = of.bias.data(),
                                      .state = of.state.data(),
                                      .taps = of.taps.data(),
                                      .kept_state = of.state.data(),
                                      .kept_taps = of.taps.data(),
                                      .convolved = convolved.data(),
                                      .out = matrix_view(out.data(), n, of.shape.value_cols())});
        EXPECT_THAT(of.state, ElementsAreArray(expected.state)) << n;
        EXPECT_THAT(of.taps, ElementsAreArray(expected.taps)) << n;
        EXPECT_THAT(out, ElementsAreArray(expected.out)) << n;
    }
}

// Stored inputs are those of a pass: the first tokens of a chain are stored, and have no results.
TEST(DeltaNet, StoredInputsContinueTheText) {
    const Case of(kOdd, random_tree(7, 7, 1), 9);
    const Result expected = run(of, best_cpu_form(), 2, 7);
    Case rest = of;
    const auto row_cols = static_cast<std::ptrdiff_t>(of.shape.row_cols());
    rest.rows.assign(of.rows.begin() + 4 * row_cols, of.rows.end());
    CpuDevice device({.n_threads = 2});
    const auto stream = device.make_stream(StreamKind::Compute);
    std::vector<DeltaStep> steps;
    for (std::int32_t i = 0; i < 7; ++i) steps.push_back({.row = i < 4 ? -1 - i : i - 4, .parent = i - 1});
    std::vector<float> convolved(of.rows.size());
    std::vector<float> out(static_cast<std::size_t>(3 * of.shape.value_cols()));
    Result found{{}, std::vector<float>(of.state.size()), std::vector<float>(of.taps.size())};
    delta_net({device, *stream}, {.shape = of.shape,
                                  .rows = matrix_view(rest.rows.data(), 3, of.shape.row_cols()),
                                  .stored = of.rows.data(),
                                  .steps = steps,
                                  .n_kept = 7,
                                  .conv = of.conv.data(),
                                  .decay_rates = of.rates.data(),
                                  .decay_bias = of.bias.data(),
                                  .state = of.state.data(),
                                  .taps = of.taps.data(),
                                  .kept_state = found.state.data(),
                                  .kept_taps = found.taps.data(),
                                  .convolved = convolved.data(),
                                  .out = matrix_view(out.data(), 3, of.shape.value_cols())});
    EXPECT_THAT(out, ElementsAreArray(expected.out.data() + 4 * of.shape.value_cols(), out.size()));
    EXPECT_THAT(found.state, ElementsAreArray(expected.state));
    EXPECT_THAT(found.taps, ElementsAreArray(expected.taps));
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
