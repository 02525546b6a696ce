// RejectionVerifier: whatever is drafted, and however, the text has the target's distribution; and what is drafted well
// is accepted as often as theory says. Walks with one fault each must fail the same test, so that it says something.
#include "draft/rejection.h"

#include <numeric>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/draft/toy_models.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kTrials = 120'000;
constexpr double kLeastPValue = 1e-4;

constexpr DrawRule kRules[] = {DrawRule::WithReplacement, DrawRule::WithoutReplacement};

/// One draw a node, down to depth 3 or what is wanted.
void chain(ToyPass& pass) {
    for (TreeNode node = kTreeRoot; pass.tree.depth(node) < pass.max_depth;) {
        static_cast<void>(pass.draw(node, DrawRule::WithReplacement, 1));
        node = TreeNode(pass.tree.size() - 1);
    }
}

/// Three draws below node 0, two below its children, one below theirs: fixed before drawing.
ToyShape branching(DrawRule rule) {
    return [rule](ToyPass& pass) {
        for (TreeNode node = kTreeRoot; node.index < pass.tree.size(); ++node.index)
            if (pass.tree.depth(node) < pass.max_depth)
                static_cast<void>(pass.draw(node, rule, 3 - pass.tree.depth(node)));
    };
}

/// Point masses: two tokens a node that nobody drew, and one path that repeats.
void merged(ToyPass& pass) {
    for (TreeNode node = kTreeRoot; node.index < pass.tree.size(); ++node.index) {
        if (pass.tree.depth(node) >= pass.max_depth) continue;
        pass.tree.add(node, pass.tree.token(node));
        pass.tree.add(node, (pass.tree.token(node) + 1) % kToyVocab);
    }
}

/// A drawn tree into which another source hung children of its own.
void drawn_and_merged(ToyPass& pass) {
    branching(DrawRule::WithoutReplacement)(pass);
    merged(pass);
}

struct Case {
    const char* name;
    ToyShape shape;
    SamplerOptions options;
};

SamplerOptions unfiltered(std::uint64_t seed) {
    return {.temperature = 1.0, .top_k = 0, .top_p = 1.0, .seed = seed};
}
SamplerOptions penalised(std::uint64_t seed) {
    return {.temperature = 0.8, .top_k = 0, .top_p = 1.0, .repeat_penalty = 1.8, .seed = seed};
}
SamplerOptions nucleus(std::uint64_t seed) {
    return {.temperature = 1.2, .top_k = 0, .top_p = 0.8, .seed = seed};
}

const std::vector<Case> kCases = {
    {"Chain", chain, unfiltered(1)},
    {"ChainPenalised", chain, penalised(2)},
    {"ChainTopP", chain, nucleus(3)},
    {"WithReplacement", branching(DrawRule::WithReplacement), unfiltered(4)},
    {"WithReplacementPenalised", branching(DrawRule::WithReplacement), penalised(5)},
    {"WithReplacementTopP", branching(DrawRule::WithReplacement), nucleus(12)},
    {"WithoutReplacement", branching(DrawRule::WithoutReplacement), unfiltered(6)},
    {"WithoutReplacementPenalised", branching(DrawRule::WithoutReplacement), penalised(7)},
    {"WithoutReplacementTopP", branching(DrawRule::WithoutReplacement), nucleus(8)},
    {"PointMasses", merged, unfiltered(9)},
    {"PointMassesPenalised", merged, penalised(10)},
    {"DrawnAndMerged", drawn_and_merged, penalised(11)},
};

class RejectionWalkTest : public testing::TestWithParam<Case> {};

TEST_P(RejectionWalkTest, TheJointDistributionIsTheTargets) {
    for (const std::uint32_t seed : {2U, 3U}) {
        const ToyModels models(seed, 0.2);
        SamplerOptions options = GetParam().options;
        options.seed = options.seed << 32 | std::uint64_t{seed} << 24;
        const double p_value = toy_p_value(models, options, GetParam().shape, kTrials);
        EXPECT_GT(p_value, kLeastPValue) << "models " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RejectionWalkTest, testing::ValuesIn(kCases),
                         [](const auto& which) { return std::string(which.param.name); });

/// The walk over a chain with one fault.
enum class Fault { ResidualIsTarget, CommittedPathOnly, NotRenormalised };
class FaultyVerifier final : public Verifier {
public:
    FaultyVerifier(Sampler& sampler, const DrawnTree& drawn, Fault fault)
        : sampler_(sampler), drawn_(drawn), fault_(fault) {}

    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override {
        const std::vector<TokenId> committed = text;
        accepted.assign(1, kTreeRoot);
        for (TreeNode node = kTreeRoot;;) {
            const auto& path = fault_ == Fault::CommittedPathOnly ? committed : text;
            std::vector<double> p(kToyVocab);
            for (const Candidate& candidate : sampler_.distribution(logits.row(logits_row_of(node)), path))
                p[candidate.id] = candidate.probability;
            text.push_back(decide(p, drawn_.drawn(node)));
            if (std::ssize(accepted) == limits.max_new_tokens) return;
            const auto next = tree.child(node, text.back());
            if (!next) return;
            accepted.push_back(node = *next);
        }
    }

private:
    TokenId decide(std::vector<double>& p, const DrawnChildren& children) {
        for (const TokenId draw : children.draws) {
            std::vector<double> q(p.size());
            for (const Candidate& candidate : children.q) q[candidate.id] = candidate.probability;
            const auto at = static_cast<std::size_t>(draw);
            if (uniform() * q[at] < p[at]) return draw;
            if (fault_ == Fault::ResidualIsTarget) continue;
            double mass = 0.0;
            for (std::size_t i = 0; i < p.size(); ++i) mass += p[i] = std::max(p[i] - q[i], 0.0);
            if (fault_ != Fault::NotRenormalised)
                for (double& value : p) value /= mass;
        }
        double missing = uniform() * std::accumulate(p.begin(), p.end(), 0.0);
        TokenId token = 0;
        while (token + 1 < kToyVocab && missing >= p[token]) missing -= p[token++];
        return token;
    }
    double uniform() { return rejection_uniform(~sampler_.options().seed, 0, n_uniform_++); }

    Sampler& sampler_;
    const DrawnTree& drawn_;
    Fault fault_;
    std::uint32_t n_uniform_ = 0;
};

ToyWalk faulty(Fault fault) {
    return [fault](Sampler& sampler, const DrawnTree& drawn) {
        return std::make_unique<FaultyVerifier>(sampler, drawn, fault);
    };
}

TEST(RejectionWalkPower, FaultsFailTheTest) {
    const ToyModels models(1);
    EXPECT_LT(toy_p_value(models, unfiltered(1), chain, kTrials, faulty(Fault::ResidualIsTarget)), 1e-12);
    EXPECT_LT(toy_p_value(models, penalised(2), chain, kTrials, faulty(Fault::CommittedPathOnly)), 1e-12);
    EXPECT_LT(toy_p_value(models, unfiltered(3), branching(DrawRule::WithReplacement), kTrials,
                          faulty(Fault::NotRenormalised)),
              1e-12);
    // The faulty walk without the fault that matters here: the test does not fail everything.
    EXPECT_GT(toy_p_value(models, unfiltered(4), chain, kTrials, faulty(Fault::CommittedPathOnly)), kLeastPValue);
}

/// Says of each drawn child that it was drawn by the other rule, or forgets a draw by its value.
class Liar final : public DraftDistributions {
public:
    enum class Lie { OtherRule, UnlikelyDrawsLeftOut };
    Liar(const DrawnTree& drawn, Lie lie) : drawn_(drawn), lie_(lie) {}
    [[nodiscard]] DrawnChildren drawn(TreeNode node) const override {
        DrawnChildren children = drawn_.drawn(node);
        if (lie_ == Lie::OtherRule) {
            children.rule =
                children.rule == DrawRule::WithReplacement ? DrawRule::WithoutReplacement : DrawRule::WithReplacement;
        } else if (!children.draws.empty() && children.draws[0] != children.q[0].id) {
            children.draws = {};
        }
        return children;
    }

private:
    const DrawnTree& drawn_;
    Lie lie_;
};

class LyingVerifier final : public Verifier {
public:
    LyingVerifier(Sampler& sampler, const DrawnTree& drawn, Liar::Lie lie)
        : liar_(drawn, lie), walk_(sampler, kToyVocab, &liar_) {}
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override {
        walk_.verify(tree, logits, limits, text, accepted);
    }

private:
    Liar liar_;
    RejectionVerifier walk_;
};

TEST(RejectionWalkPower, AWrongRecordOfTheDrawsFailsTheTest) {
    const auto lying = [](Liar::Lie lie) {
        return [lie](Sampler& sampler, const DrawnTree& drawn) {
            return std::make_unique<LyingVerifier>(sampler, drawn, lie);
        };
    };
    const ToyModels models(1);
    EXPECT_LT(toy_p_value(models, unfiltered(1), branching(DrawRule::WithoutReplacement), kTrials,
                          lying(Liar::Lie::OtherRule)),
              1e-12);
    EXPECT_LT(toy_p_value(models, unfiltered(2), chain, kTrials, lying(Liar::Lie::UnlikelyDrawsLeftOut)), 1e-12);
}

/// Share of trials in which a guess of the first pass was accepted.
double acceptance(const ToyModels& models, const ToyShape& shape) {
    return static_cast<double>(toy_trials(models, unfiltered(77), shape, kTrials).first_guess_accepted) /
           static_cast<double>(kTrials);
}

TEST(RejectionVerifier, AcceptsAsOftenAsTheoryAllows) {
    for (const std::uint32_t seed : {4U, 5U}) {
        const ToyModels models(seed);
        const std::vector<TokenId> root{kToyRoot};
        const auto p = toy_distribution(ToyModels::row(models.target, root), root, unfiltered(0));
        const auto q = toy_distribution(ToyModels::row(models.draft, root), root, unfiltered(0));
        double overlap = 0.0;  // Leviathan et al. 2023, theorem 3.5
        for (std::size_t i = 0; i < p.size(); ++i) overlap += std::min(p[i], q[i]);
        const double one = acceptance(models, chain);
        EXPECT_NEAR(one, overlap, 5.0 * std::sqrt(0.25 / kTrials));
        const double with = acceptance(models, branching(DrawRule::WithReplacement));
        const double without = acceptance(models, branching(DrawRule::WithoutReplacement));
        EXPECT_GT(with, one + 0.02);
        EXPECT_GT(without, with) << "what was refused once is not drawn again";
    }
    const ToyModels same(7, 1.0);
    EXPECT_EQ(acceptance(same, chain), 1.0) << "p = q: nothing is ever refused";
    const SamplerOptions greedy{.temperature = 0.0};
    EXPECT_EQ(toy_trials(same, greedy, chain, 100).first_guess_accepted, 100);
}

TEST(RejectionVerifier, IsAFunctionOfTheSeed) {
    const ToyModels models(8);
    for (const DrawRule rule : kRules) {
        const auto first = toy_trials(models, unfiltered(5), branching(rule), 1000).bins;
        EXPECT_EQ(first, toy_trials(models, unfiltered(5), branching(rule), 1000).bins);
        EXPECT_NE(first, toy_trials(models, unfiltered(5000), branching(rule), 1000).bins);
    }
    // Point masses are accepted where the target's own draw falls on them, so they never change a text.
    const auto plain = toy_trials(
                           models, unfiltered(5), [](ToyPass&) {}, 1000)
                           .bins;
    EXPECT_EQ(toy_trials(models, unfiltered(5), merged, 1000).bins, plain);
}

TEST(RejectionVerifier, EndTokensAndLengthEndIt) {
    TokenTree tree;
    tree.reset(0);
    TreeNode node = kTreeRoot;
    for (const TokenId token : {1, 2, 3}) node = tree.add(node, token);
    std::vector<float> logits(4 * kToyVocab, -50.0F);
    for (std::size_t i = 0; i < 4; ++i) logits[i * kToyVocab + i + 1] = 50.0F;  // 1 2 3 4
    Sampler sampler(unfiltered(1), kToyVocab);
    RejectionVerifier walk(sampler, kToyVocab, nullptr);
    const auto walked = [&](const VerifyLimits& limits) {
        std::vector<TokenId> text{0};
        std::vector<TreeNode> accepted;
        walk.verify(tree, matrix_view(std::as_const(logits).data(), 4, kToyVocab), limits, text, accepted);
        EXPECT_EQ(text.size(), accepted.size() + 1);
        return text;
    };
    EXPECT_EQ(walked({.max_new_tokens = 10}), (std::vector<TokenId>{0, 1, 2, 3, 4}));
    EXPECT_EQ(walked({.max_new_tokens = 2}), (std::vector<TokenId>{0, 1, 2}));
    const TokenId end = 3;
    EXPECT_EQ(walked({.max_new_tokens = 10, .end_tokens = {&end, 1}}), (std::vector<TokenId>{0, 1, 2, 3}));
}

/// The same answer for every node.
class FixedDraws final : public DraftDistributions {
public:
    [[nodiscard]] DrawnChildren drawn(TreeNode) const override { return {.q = q, .draws = draws}; }
    std::vector<Candidate> q;
    std::vector<TokenId> draws;
};

// q differs from p by less than rounding can tell, and still by a token that the target never says.
TEST(RejectionVerifier, RoundingNeverLetsAForeignTokenIn) {
    FixedDraws drafts;
    drafts.q = {{3, 0.0F, 1.0}, {1, 0.0F, 1e-17}};
    drafts.draws = {1, 1};
    const std::vector<float> logits{0.0F, 0.0F, 0.0F, 9.0F, 0.0F};
    TokenTree tree;
    tree.reset(0);
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Sampler greedy({.temperature = 0.0, .seed = seed}, kToyVocab);
        RejectionVerifier walk(greedy, kToyVocab, &drafts);
        std::vector<TokenId> text{0};
        std::vector<TreeNode> accepted;
        walk.verify(tree, matrix_view(logits.data(), 1, kToyVocab), {.max_new_tokens = 5}, text, accepted);
        EXPECT_EQ(text, (std::vector<TokenId>{0, 3}));
    }
}

TEST(RejectionUniform, IsUniformAndNeverRepeats) {
    std::vector<std::int64_t> bins(64);
    std::set<double> seen;
    for (std::int64_t position = 0; position < 200; ++position) {
        for (std::uint32_t index = 0; index < 200; ++index) {
            const double u = rejection_uniform(9, position, index);
            ASSERT_GT(u, 0.0);
            ASSERT_LT(u, 1.0);
            ++bins[static_cast<std::size_t>(u * 64.0)];
            EXPECT_TRUE(seen.insert(u).second) << position << ", " << index;
        }
    }
    EXPECT_GT(chi_square_p_value(bins, std::vector<double>(64, 1.0 / 64)), kLeastPValue);
    EXPECT_NE(rejection_uniform(9, 1, 0), rejection_uniform(10, 1, 0));
}

TEST(ChiSquare, TailsAreThoseOfTheTables) {
    EXPECT_NEAR(upper_gamma(0.5, 0.5 * 3.841459), 0.05, 1e-6);  // 1 degree of freedom
    EXPECT_NEAR(upper_gamma(2.0, 0.5 * 9.487729), 0.05, 1e-6);
    EXPECT_NEAR(upper_gamma(50.0, 0.5 * 124.3421), 0.05, 1e-6);
    EXPECT_NEAR(upper_gamma(50.0, 0.5 * 77.92947), 0.95, 1e-6);
    EXPECT_NEAR(upper_gamma(50.0, 0.5 * 149.4493), 0.001, 1e-7);
}

}  // namespace
}  // namespace slipstream::draft
