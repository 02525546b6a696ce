// Sampling from the heads of rows gives the whole row's token and distribution, bit for bit, whatever the settings; and
// heads decide where they are meant to, so that rows stay where they are.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/loop/sampling/sampler.h"
#include "tests/support/remote_rows.h"

namespace slipstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Kind { Peaked, Flat, Equals, Odd, Few, None };
constexpr Kind kKinds[] = {Kind::Peaked, Kind::Flat, Kind::Equals, Kind::Odd, Kind::Few, Kind::None};

std::vector<float> random_row(Kind kind, std::int64_t vocab, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<std::size_t>(vocab));
    for (float& logit : row) {
        logit = normal(random) * (kind == Kind::Peaked ? 4.0F : 1.0F) - 1.0F;
        if (kind == Kind::Equals) logit = std::round(logit * 2.0F) / 2.0F;
        if (kind == Kind::Odd) {
            if (random() % 3 == 0) logit = random() % 2 == 0 ? std::nanf("") : -kInfinity;
            if (random() % 30 == 0) logit = random() % 2 == 0 ? -0.0F : 0.0F;
            if (random() % 200 == 0) logit = random() % 2 == 0 ? 3e38F : -3e38F;
            if (random() % 500 == 0) logit = kInfinity;
        }
        if (kind == Kind::Few && random() % static_cast<std::uint32_t>(vocab) > 5) logit = -kInfinity;
        if (kind == Kind::None) logit = random() % 2 == 0 ? std::nanf("") : -kInfinity;
    }
    return row;
}

SamplerOptions random_options(std::mt19937& random, std::int64_t vocab) {
    const auto pick = [&](auto... values) {
        const std::array<double, sizeof...(values)> all = {static_cast<double>(values)...};
        return all[random() % all.size()];
    };
    return {.temperature = pick(0.0, 0.0, 0.3, 0.8, 1.0, 5.0, 1e-300),
            .top_k = static_cast<std::int64_t>(pick(0, 0, 1, 5, 40, 64, 65, 200, vocab)),
            .top_p = pick(0.0, 0.3, 0.9, 0.95, 1.0, 1.0),
            .min_p = pick(0.0, 0.0, 0.05, 0.5, 1.0),
            .repeat_penalty = pick(1.0, 1.0, 1.1, 3.0, 0.7),
            .repeat_window = static_cast<std::int64_t>(pick(0, 8, 64)),
            .presence_penalty = pick(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -0.5),
            .frequency_penalty = pick(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4),
            .bias = random() % 12 == 0 ? std::vector<TokenBias>{{0, 2.5F}} : std::vector<TokenBias>{},
            .seed = random()};
}

std::string described(const SamplerOptions& options, std::int64_t vocab, Kind kind) {
    return "T " + std::to_string(options.temperature) + ", top-k " + std::to_string(options.top_k) + ", top-p " +
           std::to_string(options.top_p) + ", min-p " + std::to_string(options.min_p) + ", penalty " +
           std::to_string(options.repeat_penalty) + ", vocabulary " + std::to_string(vocab) + ", kind " +
           std::to_string(static_cast<int>(kind));
}

// A path that mostly repeats what is likely: where penalties bite.
std::vector<TokenId> random_path(std::span<const float> row, std::mt19937& random) {
    std::vector<TokenId> path(random() % 100);
    for (TokenId& token : path) {
        token = static_cast<TokenId>(random() % row.size());
        for (int tries = 0; tries < 20 && random() % 4 != 0; ++tries) {
            const auto other = static_cast<TokenId>(random() % row.size());
            if (row[other] > row[token]) token = other;
        }
    }
    return path;
}

std::optional<TokenId> token_or_error(const auto& sample) {
    try {
        return sample();
    } catch (const Unsupported&) {
        return std::nullopt;
    }
}

bool same(std::span<const Candidate> a, std::span<const Candidate> b) {
    return std::ranges::equal(a, b, [](const Candidate& x, const Candidate& y) {
        return x.id == y.id && std::memcmp(&x.logit, &y.logit, sizeof x.logit) == 0 &&
               std::memcmp(&x.probability, &y.probability, sizeof x.probability) == 0;
    });
}

TEST(SamplerHeads, TokensAreThoseOfTheRow) {
    std::mt19937 random(11);
    std::int64_t n_fetched = 0;
    std::int64_t n_sampled = 0;
    for (int round = 0; round < 6000; ++round) {
        const std::int64_t vocabs[] = {1, 2, 63, 64, 65, 97, 500, 3000};
        const std::int64_t vocab = vocabs[random() % std::size(vocabs)];
        const Kind kind = kKinds[random() % std::size(kKinds)];
        const SamplerOptions options = random_options(random, vocab);
        RemoteRows rows(1, vocab, random_row(kind, vocab, random));
        Sampler of_heads(options, vocab);
        Sampler of_rows(options, vocab);
        const std::vector<TokenId> path = random_path(rows.row(0), random);
        const auto position = static_cast<std::int64_t>(random() % 5000);
        const LogitRows heads = rows.with_top(of_heads.sample_request(), {&position, 1});
        const auto expected = token_or_error([&] { return of_rows.sample(rows.row(0), position, path); });
        const auto found = token_or_error([&] { return of_heads.sample(heads, 0, position, path); });
        ASSERT_EQ(found, expected) << described(options, vocab, kind);
        n_fetched += rows.n_fetched();
        ++n_sampled;
    }
    // Settings are drawn without mercy, and still most are decided.
    EXPECT_LT(n_fetched, n_sampled / 2);
    EXPECT_GT(n_fetched, 0);
}

TEST(SamplerHeads, DistributionsAreThoseOfTheRow) {
    std::mt19937 random(12);
    for (int round = 0; round < 4000; ++round) {
        const std::int64_t vocabs[] = {1, 64, 65, 97, 1000};
        const std::int64_t vocab = vocabs[random() % std::size(vocabs)];
        const Kind kind = kKinds[random() % 5];
        const SamplerOptions options = random_options(random, vocab);
        RemoteRows rows(1, vocab, random_row(kind, vocab, random));
        Sampler of_heads(options, vocab);
        Sampler of_rows(options, vocab);
        const std::vector<TokenId> path = random_path(rows.row(0), random);
        const std::int64_t position = 3;
        const LogitRows heads = rows.with_top(of_heads.distribution_request(), {&position, 1});
        std::vector<Candidate> expected;
        const auto sampled = token_or_error([&] {
            const auto all = of_rows.distribution(rows.row(0), path);
            expected.assign(all.begin(), all.end());
            return all.front().id;
        });
        const auto found = token_or_error([&] {
            const auto all = of_heads.distribution(heads, 0, path);
            EXPECT_TRUE(same(all, expected)) << described(options, vocab, kind);
            return all.front().id;
        });
        ASSERT_EQ(found, sampled) << described(options, vocab, kind);
    }
}

// top-p at the very mass of so many tokens, and next to it: the case that bounds leave open.
TEST(SamplerHeads, BordersOfTopPAreThoseOfTheRow) {
    std::mt19937 random(13);
    std::int64_t n_fetched = 0;
    for (int round = 0; round < 1500; ++round) {
        const std::int64_t vocab = 300;
        RemoteRows rows(1, vocab, random_row(round % 3 == 0 ? Kind::Equals : Kind::Peaked, vocab, random));
        SamplerOptions options{.temperature = 0.9, .top_k = round % 2 == 0 ? 0 : 30, .top_p = 1.0, .seed = 5};
        Sampler all(options, vocab);
        const auto candidates = all.distribution(rows.row(0), {});
        const std::size_t n = 1 + random() % 10;
        double mass = 0.0;
        for (std::size_t i = 0; i < n; ++i) mass += candidates[i].probability;
        const double steps[] = {0.0, 1e-16, -1e-16, 1e-10, -1e-10, 1e-5, -1e-5, 1e-3};
        options.top_p = std::clamp(mass + steps[random() % std::size(steps)], 0.0, 1.0);
        Sampler of_heads(options, vocab);
        Sampler of_rows(options, vocab);
        const std::int64_t position = round;
        const LogitRows heads = rows.with_top(of_heads.distribution_request(), {&position, 1});
        const auto expected = of_rows.distribution(rows.row(0), {});
        ASSERT_TRUE(same(of_heads.distribution(heads, 0, {}), expected)) << round << ", top-p " << options.top_p;
        n_fetched += rows.n_fetched();
    }
    EXPECT_GT(n_fetched, 100);  // the borders were met
}

// What people set: rows stay on the device.
TEST(SamplerHeads, UsualSettingsFetchNoRow) {
    std::mt19937 random(14);
    const std::int64_t vocab = 4000;
    const SamplerOptions settings[] = {
        {.temperature = 0.0},
        {.temperature = 0.0, .repeat_penalty = 1.1},
        {.temperature = 0.8, .top_k = 40, .top_p = 0.95},
        {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
        {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .repeat_penalty = 1.05},
        {.temperature = 1.0, .top_k = 0, .top_p = 1.0},
        {.temperature = 0.6, .top_k = 0, .top_p = 0.9},
        {.temperature = 1.0, .top_k = 0, .top_p = 1.0, .min_p = 0.1},
    };
    for (const SamplerOptions& options : settings) {
        constexpr std::int64_t n = 100;
        std::vector<float> logits;
        std::vector<std::int64_t> positions;
        for (std::int64_t i = 0; i < n; ++i) {
            const std::vector<float> row = random_row(Kind::Peaked, vocab, random);
            logits.insert(logits.end(), row.begin(), row.end());
            logits.back() = 14.0F;  // a model that knows what it wants
            logits[logits.size() - 7] = 13.0F;
            positions.push_back(i + 9);
        }
        RemoteRows rows(n, vocab, std::move(logits));
        Sampler sampler(options, vocab);
        const LogitRows heads = rows.with_top(sampler.sample_request(), positions);
        std::vector<TokenId> path = {1, 5, 7, 3999};
        for (std::int64_t i = 0; i < n; ++i)
            EXPECT_EQ(sampler.sample(heads, i, i + 9, path), sampler.sample(rows.row(i), i + 9, path));
        EXPECT_LE(rows.n_fetched(), 1) << described(options, vocab, Kind::Peaked);
        const std::uint64_t whole = static_cast<std::uint64_t>(n * vocab) * sizeof(float);
        EXPECT_LT(rows.figures().bytes, whole / 20 + whole / n);
    }
}

// A draw that was made for another place is none.
TEST(SamplerHeads, ADrawOfAnotherPositionIsNotTaken) {
    std::mt19937 random(15);
    RemoteRows rows(1, 200, random_row(Kind::Flat, 200, random));
    Sampler sampler({.temperature = 1.0, .top_k = 0, .top_p = 1.0, .seed = 3}, 200);
    const std::int64_t position = 4;
    const LogitRows heads = rows.with_top(sampler.sample_request(), {&position, 1});
    EXPECT_EQ(sampler.sample(heads, 0, 5, {}), sampler.sample(rows.row(0), 5, {}));
    EXPECT_EQ(rows.n_fetched(), 1);
    EXPECT_EQ(sampler.sample(heads, 0, 4, {}), sampler.sample(rows.row(0), 4, {}));
    EXPECT_EQ(rows.n_fetched(), 1);
}

}  // namespace
}  // namespace slipstream
