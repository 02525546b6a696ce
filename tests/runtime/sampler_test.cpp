// The sampler: greedy rules, each filter against plain loops, and the draws of 1e5 positions against the filtered
// softmax.
#include "runtime/loop/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/noise.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplerOptions options(double temperature, std::int64_t top_k = 0, double top_p = 1.0, double min_p = 0.0) {
    return {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
}

std::vector<float> random_logits(std::size_t n, unsigned seed, double spread = 3.0) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, spread);
    std::vector<float> logits(n);
    for (float& logit : logits) logit = static_cast<float>(normal(random));
    return logits;
}

std::vector<TokenId> ids(std::span<const Candidate> candidates) {
    std::vector<TokenId> result;
    for (const Candidate& candidate : candidates) result.push_back(candidate.id);
    return result;
}

/// The filters by the book: sort everything, cut.
std::vector<Candidate> reference(const SamplerOptions& o, std::vector<float> logits, const std::vector<TokenId>& path) {
    const std::size_t from = path.size() - std::min(path.size(), static_cast<std::size_t>(o.repeat_window));
    for (const TokenId id : std::set<TokenId>(path.begin() + static_cast<std::ptrdiff_t>(from), path.end())) {
        float& logit = logits[id];
        logit = static_cast<float>(logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty);
    }
    const double greatest = *std::ranges::max_element(logits);
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < logits.size(); ++i)
        all.push_back({static_cast<TokenId>(i), static_cast<float>((logits[i] - greatest) / o.temperature), 0});
    std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    if (o.top_k > 0 && o.top_k < std::ssize(all)) all.resize(static_cast<std::size_t>(o.top_k));
    double total = 0;
    for (Candidate& c : all) total += c.probability = std::exp(static_cast<double>(c.logit));
    std::vector<Candidate> kept;
    double mass = 0;
    for (const Candidate& c : all) {
        if (o.top_p < 1 && !kept.empty() && mass >= o.top_p * total) break;
        mass += c.probability;
        kept.push_back(c);
    }
    std::erase_if(kept, [&](const Candidate& c) { return c.probability < o.min_p * kept.front().probability; });
    mass = 0;
    for (const Candidate& c : kept) mass += c.probability;
    for (Candidate& c : kept) c.probability /= mass;
    return kept;
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
    Sampler greedy(options(0), 5);
    EXPECT_EQ(greedy.sample(std::vector<float>{1, 3, 2, 3, 3}, 0, {}), 1);
    EXPECT_EQ(greedy.sample(std::vector<float>{-5, -5, -5, -5, -5}, 7, {}), 0);
    EXPECT_EQ(greedy.sample(std::vector<float>{kNan, -kInfinity, -2, kNan, -3}, 0, {}), 2);
    EXPECT_EQ(greedy.sample(std::vector<float>{0, kInfinity, 1, kInfinity, kNan}, 0, {}), 1);
}

TEST(Sampler, GreedyIgnoresTheFilters) {
    Sampler greedy(options(0, 1, 0.0, 1.0), 3);
    const auto one = greedy.distribution(std::vector<float>{1, 2, 2}, {});
    ASSERT_EQ(one.size(), 1U);
    EXPECT_EQ(one[0].id, 1);
    EXPECT_EQ(one[0].probability, 1.0);
}

TEST(Sampler, SaysSoWhereLogitsAreNotNumbers) {
    for (const double temperature : {0.0, 1.0}) {
        Sampler sampler(options(temperature), 3);
        for (const float bad : {kNan, -kInfinity}) {
            try {
                (void)sampler.sample(std::vector<float>(3, bad), 0, {});
                FAIL() << "accepted " << bad;
            } catch (const Unsupported& error) {
                EXPECT_THAT(error.what(), HasSubstr("not numbers"));
            }
        }
    }
}

TEST(Sampler, NeverDrawsNanOrMinusInfinity) {
    Sampler sampler(options(5.0), 5);
    const std::vector<float> logits = {kNan, 0, -kInfinity, 0.5, kNan};
    std::set<TokenId> drawn;
    for (int position = 0; position < 200; ++position) drawn.insert(sampler.sample(logits, position, {}));
    EXPECT_THAT(drawn, ElementsAre(1, 3));
    // Infinite logits share everything.
    EXPECT_THAT(ids(sampler.distribution(std::vector<float>{1, kInfinity, 2, kInfinity, 3}, {})), ElementsAre(1, 3));
}

TEST(Sampler, ATinyTemperatureIsGreedyAndFinite) {
    for (const double temperature : {1e-6, 1e-30, 1e-300}) {
        Sampler sampler(options(temperature), 4);
        for (int position = 0; position < 50; ++position)
            EXPECT_EQ(sampler.sample(std::vector<float>{80, 80.5F, -80, 79}, position, {}), 1);
        EXPECT_DOUBLE_EQ(sampler.distribution(std::vector<float>{80, 80.5F, -80, 79}, {})[0].probability, 1.0);
    }
}

TEST(Sampler, TiesAtTheBordersGoToTheLowestIds) {
    const std::vector<float> flat(2000, 1.5F);
    for (const std::int64_t k : {1, 3, 1500}) {  // few and many blocks
        Sampler sampler(options(1, k), 2000);
        std::vector<TokenId> first(static_cast<std::size_t>(k));
        std::iota(first.begin(), first.end(), 0);
        EXPECT_EQ(ids(sampler.distribution(flat, {})), first);
    }
    Sampler half(options(1, 0, 0.5), 2000);
    EXPECT_EQ(ids(half.distribution(flat, {})).back(), 999);
}

TEST(Sampler, EdgesOfTheFilters) {
    const std::vector<float> logits = {0, 2, 1, 2};
    const auto kept = [&](const SamplerOptions& filters) {
        Sampler sampler(filters, 4);
        return ids(sampler.distribution(logits, {}));
    };
    EXPECT_THAT(kept(options(1, 0, 0.0)), ElementsAre(1));
    EXPECT_THAT(kept(options(1, 0, 1, 1.0)), ElementsAre(1, 3));
    EXPECT_THAT(kept(options(1, 99)), ElementsAre(1, 3, 2, 0));
    EXPECT_THAT(kept(options(1, 4)), ElementsAre(1, 3, 2, 0));
    EXPECT_THAT(kept(options(1, 1)), ElementsAre(1));
}

TEST(Sampler, PenalisesEachTokenOnceAndOnlyInTheWindow) {
    SamplerOptions o = options(0);
    o.repeat_penalty = 2.0;
    o.repeat_window = 3;
    Sampler sampler(o, 4);
    const std::vector<float> logits = {4.0F, 2.5F, -1.0F, 1.5F};
    EXPECT_EQ(sampler.sample(logits, 0, std::vector<TokenId>{0, 0, 0}), 1);     // 4 / 2 < 2.5
    EXPECT_EQ(sampler.sample(logits, 0, std::vector<TokenId>{1, 0, 1, 0}), 0);  // 4 / 2 against 2.5 / 2, not 4 / 4
    EXPECT_EQ(sampler.sample(logits, 0, std::vector<TokenId>{0, 3, 3, 3}), 0);  // 0 has left the window
    EXPECT_EQ(sampler.sample(std::vector<float>{-3, -1.0F, -1.5F, -4}, 0, std::vector<TokenId>{1}),
              2);  // -1 becomes -2
    o.repeat_window = 0;
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{0}), 0);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
    SamplerOptions o = options(0);
    o.repeat_window = 4;
    o.presence_penalty = 1.0;
    const std::vector<float> logits = {4.0F, 3.5F, 2.5F, -1.0F};
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{0, 0, 0}), 1) << "4 - 1 < 3.5";
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{1, 0, 1, 1}), 0) << "once each: 3 against 2.5";
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{0, 3, 3, 3, 3}), 0) << "0 has left the window";
    o.presence_penalty = 0.0;
    o.frequency_penalty = 0.5;
    Sampler frequency(o, 4);
    EXPECT_EQ(frequency.sample(logits, 0, std::vector<TokenId>{0}), 0) << "a tie of 3.5 goes to the lower id";
    EXPECT_EQ(frequency.sample(logits, 0, std::vector<TokenId>{0, 0, 1, 1}), 0) << "3 against 2.5";
    EXPECT_EQ(frequency.sample(logits, 0, std::vector<TokenId>{0, 0, 0, 1}), 1) << "2.5 against 3";
    EXPECT_EQ(frequency.sample(logits, 0, std::vector<TokenId>{0}), 0) << "no call leaves anything behind";
    o.frequency_penalty = -0.5;
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{2, 2, 2, 2}), 2) << "a reward";
}

TEST(Sampler, ABiasIsAddedAndMayForbid) {
    SamplerOptions o = options(0);
    const std::vector<float> logits = {4.0F, 3.5F, 2.5F, -1.0F};
    o.bias = {{0, -1.0F}, {99, 5.0F}};
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, {}), 1) << "ids beyond the vocabulary are passed over";
    o.bias = {{0, -kInfinity}, {1, -kInfinity}, {2, -kInfinity}};
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, {}), 3);
    o.repeat_penalty = 2.0;
    o.bias = {{0, -0.5F}};
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{1}), 0) << "3.5 against 3.5 / 2";
    EXPECT_EQ(Sampler(o, 4).sample(logits, 0, std::vector<TokenId>{0}), 1) << "4 / 2 - 0.5";
    o.temperature = 1.0;
    o.bias = {{0, -kInfinity}};
    Sampler sampler(o, 4);
    for (const Candidate& candidate : sampler.distribution(logits, {})) EXPECT_NE(candidate.id, 0);
}

template <typename S>
concept HasDistribution = requires(S&& sampler, std::span<const float> logits, const LogitRows& rows) {
    std::forward<S>(sampler).distribution(logits, {});
    std::forward<S>(sampler).distribution(rows, 0, {});
};
template <typename S>
concept HasAnyDistribution = HasDistribution<S> || requires(S&& sampler, std::span<const float> logits) {
    std::forward<S>(sampler).distribution(logits, {});
} || requires(S&& sampler, const LogitRows& rows) {
    std::forward<S>(sampler).distribution(rows, 0, {});
};

// What it returns is memory of the sampler.
TEST(Sampler, ATemporaryHasNoDistribution) {
    static_assert(HasDistribution<Sampler&>);
    static_assert(!HasAnyDistribution<Sampler>);
}

TEST(Sampler, FiltersAsTheBookSays) {
    const std::size_t vocab = 3000;
    const std::vector<TokenId> path = {5, 9, 9, 100, 2999};
    int n_cases = 0;
    for (const double temperature : {0.5, 1.0, 1.5})
        for (const std::int64_t top_k : {0, 1, 40, 1025})
            for (const double top_p : {0.1, 0.5, 0.95, 1.0})
                for (const double min_p : {0.0, 0.02})
                    for (const double penalty : {1.0, 1.3}) {
                        SamplerOptions o = options(temperature, top_k, top_p, min_p);
                        o.repeat_penalty = penalty;
                        std::vector<float> logits = random_logits(vocab, static_cast<unsigned>(++n_cases));
                        // Coarse steps make ties, which every filter has to break alike.
                        for (float& logit : logits) logit = std::round(logit * 8) / 8;
                        const std::vector<Candidate> expected = reference(o, logits, path);
                        Sampler sampler(o, static_cast<std::int64_t>(vocab));
                        const auto got = sampler.distribution(logits, path);
                        ASSERT_EQ(ids(got), ids(expected)) << "T " << temperature << " k " << top_k << " p " << top_p;
                        for (std::size_t i = 0; i < got.size(); ++i) {
                            ASSERT_EQ(got[i].logit, expected[i].logit);
                            ASSERT_NEAR(got[i].probability, expected[i].probability, 1e-12);
                        }
                    }
}

/// Pearson's statistic of n_draws positions against the distribution, rare tokens (expected < 10) pooled; in standard
/// deviations of its own distribution (mean df, variance 2 df).
double chi_square_deviation(Sampler& sampler, const std::vector<float>& logits, const std::vector<TokenId>& path,
                            int n_draws, std::int64_t first_position) {
    std::vector<double> counts(logits.size());
    for (int i = 0; i < n_draws; ++i) counts[sampler.sample(logits, first_position + i, path)] += 1;
    const auto distribution = sampler.distribution(logits, path);
    double chi = 0;
    double cells = 0;
    double rare_expected = 0;
    double rare_count = 0;
    double covered = 0;
    for (const Candidate& candidate : distribution) {
        const double expected = candidate.probability * n_draws;
        const double count = counts[candidate.id];
        covered += count;
        if (expected < 10) {
            rare_expected += expected;
            rare_count += count;
            continue;
        }
        chi += (count - expected) * (count - expected) / expected;
        ++cells;
    }
    EXPECT_EQ(covered, n_draws) << "a token outside of the filters was drawn";
    if (rare_expected > 10) {
        chi += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
        ++cells;
    }
    EXPECT_GT(cells, 3);
    return (chi - (cells - 1)) / std::sqrt(2 * (cells - 1));
}

TEST(Sampler, DrawsFollowTheFilteredSoftmax) {
    const std::vector<float> logits = random_logits(60, 99, 2.0);
    const std::vector<TokenId> path = {1, 2, 3, 3, 3, 55};
    SamplerOptions penalised = options(1.0, 30, 0.9, 0.01);
    penalised.repeat_penalty = 1.5;
    SamplerOptions other_seed = options(1.0);
    other_seed.seed = 0xfedcba9876543210U;
    const SamplerOptions settings[] = {options(0.5),
                                       options(1.0),
                                       options(1.5),
                                       options(1.0, 20),
                                       options(1.0, 0, 0.9),
                                       options(1.0, 0, 1.0, 0.05),
                                       options(0.8, 20, 0.95),
                                       penalised,
                                       other_seed};
    for (const SamplerOptions& setting : settings) {
        Sampler sampler(setting, 60);
        // 5 standard deviations: the chi-square tail is heavier than a normal one; a wrong filter gives hundreds.
        EXPECT_LT(chi_square_deviation(sampler, logits, path, 100000, 0), 5.0)
            << "T " << setting.temperature << " k " << setting.top_k << " p " << setting.top_p << " min "
            << setting.min_p;
    }
}

TEST(Sampler, TheDistributionTestCanFail) {
    const std::vector<float> logits = random_logits(60, 99, 2.0);
    Sampler warm(options(1.1), 60);
    std::vector<float> sharper = logits;
    for (float& logit : sharper) logit *= 1.1F;  // what warm divides away again
    Sampler plain(options(1.0), 60);
    std::vector<double> counts(60);
    double chi = 0;
    for (int i = 0; i < 100000; ++i) counts[warm.sample(logits, i, {})] += 1;
    for (const Candidate& c : plain.distribution(logits, {}))
        chi += std::pow(counts[c.id] - c.probability * 1e5, 2) / (c.probability * 1e5);
    EXPECT_GT(chi, 1000);
    EXPECT_LT(chi_square_deviation(warm, sharper, {}, 100000, 0), 5.0);
}

TEST(Sampler, IsTheArgmaxOfLogitPlusNoise) {
    const std::size_t vocab = 5000;
    for (const std::uint64_t seed : {0ULL, 7ULL, 1ULL << 63}) {
        SamplerOptions o = options(1.7);
        o.seed = seed;
        Sampler sampler(o, static_cast<std::int64_t>(vocab));
        for (std::int64_t position = 0; position < 40; ++position) {
            const std::vector<float> logits = random_logits(vocab, static_cast<unsigned>(position), 0.5);
            const auto p = static_cast<std::uint64_t>(position) << 30;
            float best = -kInfinity;
            TokenId winner = -1;
            std::vector<Candidate> by_id(sampler.distribution(logits, {}).begin(),
                                         sampler.distribution(logits, {}).end());
            std::ranges::sort(by_id, {}, &Candidate::id);
            for (const Candidate& c : by_id) {
                const float score = c.logit + gumbel_noise(seed, p, static_cast<std::uint32_t>(c.id));
                if (score > best) {
                    best = score;
                    winner = c.id;
                }
            }
            ASSERT_EQ(sampler.sample(logits, static_cast<std::int64_t>(p), {}), winner);
        }
    }
}

TEST(Sampler, NothingDependsOnEarlierCalls) {
    const std::vector<float> a = random_logits(1000, 1);
    const std::vector<float> b = random_logits(1000, 2);
    const std::vector<TokenId> path = {3, 4};
    SamplerOptions o = options(0.9, 40, 0.9);
    o.repeat_penalty = 1.2;
    o.seed = 5;
    Sampler forward(o, 1000);
    std::vector<TokenId> first;
    for (int i = 0; i < 200; ++i) first.push_back(forward.sample(i % 2 == 0 ? a : b, i, path));
    Sampler backward(o, 1000);
    for (int i = 199; i >= 0; --i) {
        (void)backward.distribution(i % 2 == 0 ? b : a, {});
        ASSERT_EQ(backward.sample(i % 2 == 0 ? a : b, i, path), first[i]) << i;
    }
    o.seed = 6;
    Sampler other(o, 1000);
    int n_equal = 0;
    for (int i = 0; i < 200; ++i) n_equal += other.sample(i % 2 == 0 ? a : b, i, path) == first[i];
    EXPECT_LT(n_equal, 150);
}

TEST(Sampler, RefusesOptionsOutOfRange) {
    const auto message = [](auto change) {
        SamplerOptions o;
        change(o);
        try {
            const Sampler sampler(o, 10);
        } catch (const RequestError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(message([](SamplerOptions& o) { o.temperature = -1; }), HasSubstr("temperature is -1"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.temperature = kNan; }), HasSubstr("temperature"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.temperature = kInfinity; }), HasSubstr("temperature"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.top_k = -1; }), HasSubstr("top-k"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.top_p = 1.01; }), HasSubstr("top-p"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.top_p = kNan; }), HasSubstr("top-p"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.min_p = -0.1; }), HasSubstr("min-p"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.repeat_penalty = 0; }), HasSubstr("repeat-penalty"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.repeat_window = -1; }), HasSubstr("repeat-window"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.presence_penalty = kNan; }), HasSubstr("presence-penalty"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.frequency_penalty = kInfinity; }), HasSubstr("frequency-penalty"));
    EXPECT_THAT(message([](SamplerOptions& o) { o.bias = {{1, kInfinity}}; }), HasSubstr("logit-bias"));
    EXPECT_EQ(message([](SamplerOptions&) {}), "accepted");
}

}  // namespace
}  // namespace slipstream
