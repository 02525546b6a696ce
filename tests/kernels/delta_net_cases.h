// Cases for tests of delta_net() on any device: weights, a state and the inputs of a tree of tokens; their results in
// double, with a bound of the error of float arithmetic; the steps and the memory of a call.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/checked_math.h"
#include "kernels/delta_net.h"
#include "tests/cuda/device_array.h"

namespace slipstream::testing_delta {

using testing_cuda::DeviceFloats;

inline std::vector<float> normal(std::mt19937& random, std::int64_t n, float scale) {
    std::normal_distribution<float> draw(0.0F, scale);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = draw(random);
    return values;
}

/// Weights of a delta net, a state, and the inputs of tokens that are nodes of a tree.
struct Case {
    DeltaNetShape shape;
    std::vector<float> conv, rates, bias, state, taps, rows;
    std::vector<std::int32_t> parents;  // [tokens], a parent before its children; -1: after the state

    Case(const DeltaNetShape& of, std::vector<std::int32_t> tree, unsigned seed) : shape(of), parents(std::move(tree)) {
        std::mt19937 random(seed);
        conv = normal(random, shape.convolved_cols() * shape.conv_width, 0.5F);
        rates = normal(random, shape.n_value_heads, 1.0F);
        for (float& rate : rates) rate = -std::exp(rate);
        bias = normal(random, shape.n_value_heads, 1.0F);
        taps = normal(random, shape.tap_floats(), 1.0F);
        rows = normal(random, std::ssize(parents) * shape.row_cols(), 1.0F);
        state = normal(random, shape.state_floats(), 0.3F);
        const std::int64_t blocks = ceil_div(shape.value_dim, kStateColumns);
        for (std::int64_t i = 0; i < shape.state_floats(); ++i) {
            const std::int64_t column =
                i / (shape.key_dim * kStateColumns) % blocks * kStateColumns + i % kStateColumns;
            if (column >= shape.value_dim) state[i] = 0.0F;
        }
    }
    [[nodiscard]] std::int64_t n() const { return std::ssize(parents); }
    [[nodiscard]] std::int32_t parent(std::int64_t token) const { return parents[token]; }
    /// Returns the tokens from the first to `token`.
    [[nodiscard]] std::vector<std::int32_t> path(std::int32_t token) const {
        std::vector<std::int32_t> tokens;
        for (; token >= 0; token = parent(token)) tokens.push_back(token);
        std::reverse(tokens.begin(), tokens.end());
        return tokens;
    }
    /// Returns a case of `tokens` of this one as a chain, after another state.
    [[nodiscard]] Case chain_of(const std::vector<std::int32_t>& tokens, std::vector<float> after,
                                std::vector<float> after_taps) const {
        Case chain = *this;
        chain.rows.clear();
        chain.parents.clear();
        for (const std::int32_t token : tokens) {
            const auto first = rows.begin() + token * shape.row_cols();
            chain.rows.insert(chain.rows.end(), first, first + shape.row_cols());
            chain.parents.push_back(static_cast<std::int32_t>(std::ssize(chain.parents)) - 1);
        }
        chain.state = std::move(after);
        chain.taps = std::move(after_taps);
        return chain;
    }
};

/// Returns a tree of `n` tokens that begins with a chain of `n_chain`; the others hang anywhere from its end on.
inline std::vector<std::int32_t> random_tree(std::int32_t n_chain, std::int32_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> parents;
    for (std::int32_t i = 0; i < n; ++i)
        parents.push_back(i <= n_chain ? i - 1
                                       : std::uniform_int_distribution(std::max(n_chain - 1, 0), i - 1)(random));
    return parents;
}

/// Results of all tokens, [tokens, value_cols()], and how far those in float may be from them.
struct Reference {
    std::vector<double> out, bound;
};

// Errors, to first order: what a step adds to the error of a state, and what it passes on. A step multiplies the error
// of the state before by decay (I - beta k k^T), whose norm is at most 1, since |k| <= 1. So errors of steps add up.
// Sums of n terms in p parts have n / p + p roundings in a row; functions are allowed four units in the last place.
inline Reference reference(const Case& of) {
    constexpr double kUnit = 0x1p-24;
    const DeltaNetShape& shape = of.shape;
    const std::int64_t blocks = ceil_div(shape.value_dim, kStateColumns);
    const auto at = [](const std::vector<float>& values, std::int64_t i) { return static_cast<double>(values[i]); };
    const auto input = [&](std::int32_t token, std::int64_t back, std::int64_t column) {
        for (; back > 0 && token >= 0; --back) token = of.parent(token);
        return token >= 0 ? at(of.rows, token * shape.row_cols() + column)
                          : at(of.taps, (shape.conv_width - 2 - back) * shape.convolved_cols() + column);
    };
    struct Vector {
        std::vector<double> x;
        double error = 0.0;  // of the whole vector, as a norm
        [[nodiscard]] double norm() const { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }
    };
    const auto convolved = [&](std::int32_t token, std::int64_t first, std::int64_t n) {
        Vector y;
        for (std::int64_t i = 0; i < n; ++i) {
            double sum = 0.0;
            double size = 0.0;
            for (std::int64_t tap = 0; tap < shape.conv_width; ++tap) {
                const double term = at(of.conv, tap * shape.convolved_cols() + first + i) *
                                    input(token, shape.conv_width - 1 - tap, first + i);
                sum += term;
                size += std::abs(term);
            }
            y.x.push_back(sum / (1.0 + std::exp(-sum)));
            // The derivative of silu is at most 1.1.
            const double error = 1.1 * static_cast<double>(shape.conv_width + 1) * kUnit * size +
                                 (8.0 + std::abs(sum)) * kUnit * std::abs(y.x.back());
            y.error += error * error;
        }
        y.error = std::sqrt(y.error);
        return y;
    };
    const auto normed = [&](Vector y, double scale) {
        const double size = std::sqrt(y.norm() * y.norm() + 1e-6);
        for (double& value : y.x) value *= scale / size;
        y.error = 2.0 * y.error * scale / size + (static_cast<double>(shape.key_dim) / 16.0 + 16.0) * kUnit * y.norm();
        return y;
    };
    const double dot_roundings = (static_cast<double>(shape.key_dim) / 4.0 + 4.0) * kUnit;
    const auto keys = static_cast<std::size_t>(shape.key_dim);
    // States of a head after each token: [tokens][value_dim][key_dim], and the norms of their columns' errors.
    struct State {
        std::vector<std::vector<double>> s;
        std::vector<double> error;
    };
    Reference result{std::vector<double>(static_cast<std::size_t>(of.n() * shape.value_cols())), {}};
    result.bound = result.out;
    for (std::int64_t head = 0; head < shape.n_value_heads; ++head) {
        const std::int64_t key_head =
            shape.tiled ? head % shape.n_key_heads : head * shape.n_key_heads / shape.n_value_heads;
        State before{{}, std::vector<double>(static_cast<std::size_t>(shape.value_dim))};
        for (std::int64_t v = 0; v < shape.value_dim; ++v) {
            before.s.emplace_back();
            for (std::int64_t k = 0; k < shape.key_dim; ++k)
                before.s.back().push_back(at(of.state, ((head * blocks + v / 16) * shape.key_dim + k) * 16 + v % 16));
        }
        std::vector<State> after;
        for (std::int32_t token = 0; token < of.n(); ++token) {
            State state = of.parent(token) < 0 ? before : after[of.parent(token)];
            const Vector q = normed(convolved(token, key_head * shape.key_dim, shape.key_dim),
                                    1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
            const Vector k = normed(convolved(token, shape.key_cols() + key_head * shape.key_dim, shape.key_dim), 1.0);
            const Vector values = convolved(token, 2 * shape.key_cols() + head * shape.value_dim, shape.value_dim);
            const double x = input(token, 0, shape.convolved_cols() + head) + at(of.bias, head);
            const double softplus = std::log1p(std::exp(x));
            const double decay = std::exp(at(of.rates, head) * softplus);
            const double decay_error =  // relative
                kUnit * (8.0 + std::abs(at(of.rates, head)) * (std::abs(x) + 8.0 * softplus + 2.0));
            const double beta =
                1.0 / (1.0 + std::exp(-input(token, 0, shape.convolved_cols() + shape.n_value_heads + head)));
            const double beta_error = kUnit * 16.0;
            for (std::int64_t v = 0; v < shape.value_dim; ++v) {
                std::vector<double>& s = state.s[v];
                double& error = state.error[v];
                double dot = 0.0;
                double size = 0.0;
                for (std::size_t i = 0; i < keys; ++i) {
                    s[i] *= decay;
                    dot += s[i] * k.x[i];
                    size += s[i] * s[i];
                }
                size = std::sqrt(size);
                const double update = beta * (values.x[v] - dot);
                double y = 0.0;
                double size_after = 0.0;
                for (std::size_t i = 0; i < keys; ++i) {
                    s[i] += k.x[i] * update;
                    y += s[i] * q.x[i];
                    size_after += s[i] * s[i];
                }
                size_after = std::sqrt(size_after);
                const double dot_error = size * (k.error + dot_roundings * k.norm());
                error = decay * error + size * (decay_error + kUnit) +
                        k.norm() * (beta * (values.error + dot_error) + std::abs(update) * (beta_error + 2.0 * kUnit)) +
                        k.error * std::abs(update) + kUnit * size_after;
                const auto to = static_cast<std::size_t>(token * shape.value_cols() + head * shape.value_dim + v);
                result.out[to] = y;
                result.bound[to] = q.norm() * error + size_after * (q.error + dot_roundings * q.norm());
            }
            after.push_back(std::move(state));
        }
    }
    return result;
}

inline void expect_near(const std::vector<float>& found, const Reference& expected) {
    ASSERT_EQ(found.size(), expected.out.size());
    double bounds = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        // Not <=: NaN is an error.
        ASSERT_TRUE(std::abs(static_cast<double>(found[i]) - expected.out[i]) <= expected.bound[i])
            << "element " << i << ": " << found[i] << ", expected " << expected.out[i] << " +- " << expected.bound[i];
        bounds += expected.bound[i] * expected.bound[i];
        squares += expected.out[i] * expected.out[i];
    }
    EXPECT_LT(bounds, 1e-4 * squares) << "the bound says nothing";
}

struct Result {
    std::vector<float> out, state, taps;
};

/// How working states are given to the steps of a tree.
enum class Working : std::uint8_t {
    OneEach,       // each step after the kept ones leaves its state in one of its own
    LastTakesOver  // the last child of a step takes over the working state of its parent
};

/// Returns the steps of the tokens of a case in their order, and the number of working states.
inline std::vector<DeltaStep> steps_of(const Case& of, std::int64_t n_kept, Working working, std::int64_t& n_working) {
    std::vector<std::int32_t> last_child(static_cast<std::size_t>(of.n()) + 1, -1);  // [1 + parent]
    for (std::int32_t i = 0; i < of.n(); ++i) last_child[of.parent(i) + 1] = i;
    std::vector<DeltaStep> steps;
    n_working = 1;
    for (std::int32_t i = 0; i < of.n(); ++i) {
        const std::int32_t parent = of.parent(i);
        const std::int32_t from = parent < 0 ? 0 : steps[parent].to;
        const bool takes = i < n_kept || (working == Working::LastTakesOver && last_child[parent + 1] == i);
        steps.push_back(
            {.row = i, .parent = parent, .from = from, .to = takes ? from : static_cast<std::int32_t>(n_working++)});
    }
    return steps;
}

/// How the memory of a call lies.
struct CallOptions {
    Working working = Working::OneEach;
    bool in_place = false;      // the kept state and taps replace those before
    std::int64_t n_stored = 0;  // first tokens whose inputs are stored; they have no result
};

/// Runs the tokens of a case in the order of their numbers; the first `n_kept` must be a chain. State and taps of the
/// result are the kept ones, NaN if none are. Results of stored tokens are left out.
inline Result run(ExecRef exec, const Case& of, std::int64_t n_kept, const CallOptions& options = {}) {
    const DeltaNetShape& shape = of.shape;
    const auto one_row = [&](const std::vector<float>& values) {
        return DeviceFloats(exec, 1, std::ssize(values), values);
    };
    const std::int64_t n_rows = of.n() - options.n_stored;
    const auto border = of.rows.begin() + options.n_stored * shape.row_cols();
    const DeviceFloats stored = one_row({of.rows.begin(), border});
    const DeviceFloats rows(exec, n_rows, shape.row_cols(), {border, of.rows.end()}, 3);
    const DeviceFloats conv = one_row(of.conv);
    const DeviceFloats rates = one_row(of.rates);
    const DeviceFloats bias = one_row(of.bias);
    const DeviceFloats state = one_row(of.state);
    const DeviceFloats taps = one_row(of.taps);
    const DeviceFloats kept_state(exec, 1, shape.state_floats());
    const DeviceFloats kept_taps(exec, 1, shape.tap_floats());
    const DeviceFloats convolved(exec, of.n(), shape.row_cols());
    const DeviceFloats out(exec, n_rows, shape.value_cols(), 5);
    std::int64_t n_working = 0;
    std::vector<DeltaStep> steps = steps_of(of, n_kept, options.working, n_working);
    for (DeltaStep& step : steps)
        step.row = step.row < options.n_stored ? -1 - step.row : step.row - static_cast<std::int32_t>(options.n_stored);
    delta_net(exec, {.shape = shape,
                     .rows = rows.view(),
                     .stored = stored.data(),
                     .steps = steps,
                     .n_kept = n_kept,
                     .n_working = n_working,
                     .conv = conv.data(),
                     .decay_rates = rates.data(),
                     .decay_bias = bias.data(),
                     .state = state.data(),
                     .taps = taps.data(),
                     .kept_state = options.in_place ? state.data() : kept_state.data(),
                     .kept_taps = options.in_place ? taps.data() : kept_taps.data(),
                     .convolved = convolved.data(),
                     .out = out.view()});
    static_cast<void>(convolved.read());  // nothing beside it was written
    if (!options.in_place) {
        EXPECT_TRUE(testing_cuda::same_bits(state.read(), of.state));
        EXPECT_TRUE(testing_cuda::same_bits(taps.read(), of.taps));
    }
    return {out.read(), options.in_place ? state.read() : kept_state.read(),
            options.in_place ? taps.read() : kept_taps.read()};
}

inline void expect_same(const Result& found, const Result& expected) {
    EXPECT_TRUE(testing_cuda::same_bits(found.out, expected.out));
    EXPECT_TRUE(testing_cuda::same_bits(found.state, expected.state));
    EXPECT_TRUE(testing_cuda::same_bits(found.taps, expected.taps));
}

/// Runs each token after its path alone, one call per token, and compares with the results in `tree`; after the token
/// n_kept - 1, also the state and the taps.
inline void expect_paths_alone(ExecRef exec, const Case& of, std::int64_t n_kept, const Result& tree) {
    const auto cols = static_cast<std::size_t>(of.shape.value_cols());
    std::vector<Result> after;
    for (std::int32_t token = 0; token < of.n(); ++token) {
        const std::int32_t parent = of.parent(token);
        const Case alone = parent < 0 ? of.chain_of({token}, of.state, of.taps)
                                      : of.chain_of({token}, after[parent].state, after[parent].taps);
        after.push_back(run(exec, alone, 1));
        EXPECT_TRUE(testing_cuda::same_bits(after.back().out,
                                            std::span(tree.out).subspan(static_cast<std::size_t>(token) * cols, cols)))
            << "token " << token;
        if (token + 1 != n_kept) continue;
        EXPECT_TRUE(testing_cuda::same_bits(after.back().state, tree.state));
        EXPECT_TRUE(testing_cuda::same_bits(after.back().taps, tree.taps));
    }
}

inline const DeltaNetShape kEven{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 32, .value_dim = 32, .conv_width = 4};
inline const DeltaNetShape kOdd{
    .n_key_heads = 2, .n_value_heads = 6, .key_dim = 19, .value_dim = 21, .conv_width = 4, .tiled = true};
inline const DeltaNetShape kShort{
    .n_key_heads = 1, .n_value_heads = 1, .key_dim = 16, .value_dim = 48, .conv_width = 2};

}  // namespace slipstream::testing_delta
