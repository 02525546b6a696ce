// Trees over mixtures of experts, where a larger pass reads more experts: with a plan by the distinct experts that
// texts needed, drafting is never much slower than plain decoding, and edits of code are as fast as with the best fixed
// budget. Simulated, with seeds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "draft/control/draft_control.h"
#include "runtime/plan/expert_misses.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kMost = 64;
constexpr double kDraftSeconds = 0.005;  // of a tree; a plain pass takes 1

/// A mixture whose experts are computed in host memory: of a pass of one token, experts take three quarters of the
/// time, and what does not grow a fifth.
struct Mixture {
    std::string name;
    ExpertChoice choice;
    // Neighbours of public traces ("Experts: neighbours and slots" in runtime/NOTES.md).
    std::vector<DistinctPoint> needed;

    [[nodiscard]] double seconds(std::int64_t n_nodes, std::span<const DistinctPoint> counted) const {
        const auto n = static_cast<double>(n_nodes);
        return 0.2 + 0.75 * expected_distinct(choice, n, counted) / static_cast<double>(choice.n_chosen) + 0.05 * n;
    }
    [[nodiscard]] double seconds(std::int64_t n_nodes) const { return seconds(n_nodes, needed); }
};

std::vector<Mixture> mixtures() {
    const auto points = [](double chosen, const std::vector<double>& needed) {
        std::vector<DistinctPoint> all;
        for (std::size_t i = 0; i < needed.size(); ++i)
            all.push_back({std::exp2(static_cast<double>(i + 1)), chosen * needed[i]});
        return all;
    };
    return {{"Qwen3-30B-A3B", {128, 6}, points(6.0, {1.62, 2.59, 3.93, 5.58, 7.1, 8.5})},
            {"gpt-oss-120b", {128, 2}, points(2.0, {1.82, 3.08, 4.99, 7.87, 11.9, 17.9})},
            {"neighbours nearly alike", {128, 8}, points(8.0, {1.1, 1.2, 1.4, 1.7, 2.2, 3.0})}};
}

/// For each position: whether its draft token is accepted if all before it in the chain are, and the acceptance that
/// the source of the draft token expects of it and of the rest of the chain.
struct Text {
    std::vector<char> comes_true;
    std::vector<double> estimate;
    [[nodiscard]] std::int64_t committed(std::size_t at, std::int64_t n_nodes) const {
        std::int64_t n = 1;
        while (n < n_nodes && comes_true[at + static_cast<std::size_t>(n) - 1] != 0) ++n;
        return n;
    }
};

Text text_of(std::size_t n, double acceptance, std::uint32_t seed) {
    std::mt19937 random(seed);
    Text text;
    for (std::size_t i = 0; i < n + kMost; ++i) {
        text.comes_true.push_back(std::bernoulli_distribution(acceptance)(random) ? 1 : 0);
        text.estimate.push_back(std::min(0.99, 1.5 * acceptance));  // too sure
    }
    return text;
}

// Copied stretches of 40 tokens on average, of which 97 % come true, and 8 tokens of something new: .83 in all.
Text edit_of_code(std::size_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    Text text;
    bool is_copied = false;
    for (std::size_t left = 0; text.estimate.size() < n + kMost; --left) {
        while (left == 0) {
            is_copied = !is_copied;
            left =
                static_cast<std::size_t>(std::exponential_distribution<>(is_copied ? 1.0 / 40.0 : 1.0 / 8.0)(random));
        }
        const double acceptance = is_copied ? 0.97 : 0.15;
        text.comes_true.push_back(std::bernoulli_distribution(acceptance)(random) ? 1 : 0);
        // Sources do not see a stretch end: they learn how many tokens of a chain come true.
        text.estimate.push_back(is_copied ? 0.97 * (1.0 - 1.0 / 40.0) : acceptance);
    }
    return text;
}

double plain_seconds(const Mixture& mixture, std::size_t n_tokens) {
    return static_cast<double>(n_tokens) * mixture.seconds(1);
}

// Tokens a plain pass's time, in chains of `budget` nodes.
double fixed_speed(const Mixture& mixture, const Text& text, std::size_t n_tokens, std::int64_t budget) {
    double seconds = 0.0;
    std::size_t at = 0;
    for (; at < n_tokens; at += static_cast<std::size_t>(text.committed(at, budget)))
        seconds += mixture.seconds(budget) + (budget > 1 ? kDraftSeconds : 0.0);
    return plain_seconds(mixture, at) / seconds;
}

// The same with chains whose length follows the times of passes; `counted` is what the plan knows.
double automatic_speed(const Mixture& mixture, const Text& text, std::size_t n_tokens,
                       std::span<const DistinctPoint> counted) {
    DraftControl control(kMost, [&](std::int64_t n, std::int64_t) { return mixture.seconds(n, counted); });
    double seconds = 0.0;
    std::size_t at = 0;
    while (at < n_tokens) {
        const bool drafts = control.should_draft(static_cast<std::int64_t>(at));
        std::int64_t n_nodes = 1;
        double expected = 1.0;
        double most = 1.0 - control.curve().at(1) / control.seconds_per_token();
        double reached = 1.0;
        double sum = 1.0;
        for (std::int64_t n = 2; drafts && n <= kMost; ++n) {  // as the tree builder chooses
            reached *= text.estimate[at];
            sum += reached;
            const double gain =
                1.0 + control.realised_fraction() * (sum - 1.0) - control.curve().at(n) / control.seconds_per_token();
            if (gain <= most) continue;
            most = gain;
            n_nodes = n;
            expected = sum;
        }
        const std::int64_t n_tokens_of_pass = text.committed(at, n_nodes);
        const PassOutcome outcome{.n_nodes = n_nodes,
                                  .n_tokens = n_tokens_of_pass,
                                  .pass_seconds = mixture.seconds(n_nodes),
                                  .draft_seconds = drafts ? kDraftSeconds : 0.3 * kDraftSeconds,
                                  .expected = drafts ? expected : 0.0,
                                  .guessed = drafts};
        control.record(outcome);
        seconds += outcome.pass_seconds + outcome.draft_seconds;
        at += static_cast<std::size_t>(n_tokens_of_pass);
    }
    return plain_seconds(mixture, at) / seconds;
}

TEST(MixtureBudget, IsNeverMuchSlowerThanPlainDecoding) {
    for (const Mixture& mixture : mixtures())
        for (const double acceptance : {0.0, 0.1, 0.3})
            for (std::uint32_t seed = 0; seed < 40; ++seed)
                // The plan of a model's first run knows nothing of its texts.
                for (const bool is_counted : {true, false})
                    EXPECT_GE(automatic_speed(mixture, text_of(256, acceptance, seed), 256,
                                              is_counted ? mixture.needed : std::vector<DistinctPoint>()),
                              0.97)
                        << mixture.name << ", acceptance " << acceptance << ", seed " << seed
                        << (is_counted ? "" : ", without counts");
}

TEST(MixtureBudget, OfEditsIsAsFastAsTheBestFixedOneByWhatTextsNeeded) {
    constexpr std::size_t kTokens = 1024;
    constexpr int kSeeds = 40;
    for (const Mixture& mixture : mixtures()) {
        double counted = 0.0;
        double even = 0.0;
        for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
            const Text text = edit_of_code(kTokens, seed);
            double best = 0.0;
            for (std::int64_t budget = 1; budget <= kMost; budget *= 2)
                best = std::max(best, fixed_speed(mixture, text, kTokens, budget));
            const double speed = automatic_speed(mixture, text, kTokens, mixture.needed);
            EXPECT_GE(speed, 0.9 * best) << mixture.name << ", seed " << seed;
            counted += speed / best / kSeeds;
            even += automatic_speed(mixture, text, kTokens, {}) / best / kSeeds;
        }
        EXPECT_GT(counted, 1.0) << mixture.name;
        EXPECT_GT(even, 1.0) << mixture.name << ": measured passes correct the plan";
        fmt::print("{}: {:.2f} of the best fixed budget, {:.2f} by even choices\n", mixture.name, counted, even);
    }
}

}  // namespace
}  // namespace slipstream::draft
