// Token Recycling: step by step against the plain reference of tests/golden/recycling, and its rules one by one.
#include "draft/sources/recycling.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/sources/recycling_tree.h"
#include "kernels/base/error.h"
#include "runtime/loop/verify.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A row of logits whose best tokens are `best`, in that order, a step apart.
std::vector<float> logits_of(std::size_t vocab, std::span<const TokenId> best, float step = 1.0F) {
    std::vector<float> logits(vocab, -100.0F);
    for (std::size_t i = 0; i < best.size(); ++i) logits[best[i]] = 10.0F - static_cast<float>(i) * step;
    return logits;
}

/// Observes a tree of `tokens` (node 0 first, each below the one before) with a row of logits each.
void teach(Recycling& source, const std::vector<TokenId>& tokens, const std::vector<std::vector<float>>& rows) {
    TokenTree tree;
    tree.reset(tokens.front());
    for (std::size_t i = 1; i < tokens.size(); ++i) tree.add(TreeNode(static_cast<std::int32_t>(i) - 1), tokens[i]);
    std::vector<float> logits;
    for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
    const std::vector<TokenId> text(2, 0);
    const TreeNode accepted[] = {kTreeRoot};
    source.observe({.text = text,
                    .n_new = 1,
                    .tree = &tree,
                    .logits = matrix_view(std::as_const(logits).data(), std::ssize(rows), std::ssize(rows[0])),
                    .accepted = accepted});
}

std::vector<TokenId> proposed(Recycling& source, TokenId token, const PathNoise& noise = {},
                              std::int64_t position = 1) {
    std::vector<Proposal> out(8);
    const TokenId text[] = {2, 2, token};  // behind tokens that were never in front of it
    const std::size_t n = source.propose(source.root(text), position, noise, out);
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < n; ++i) {
        tokens.push_back(out[i].token);
        EXPECT_EQ(out[i].bin % Recycling::kCandidates, i);
    }
    return tokens;
}

TEST(Recycling, WhatWasSaidBehindTheSameTokensStandsBeforeTheSameToken) {
    constexpr std::size_t vocab = 64;
    Recycling source({.vocab = vocab});
    const auto row = [&](TokenId first) { return logits_of(vocab, std::vector<TokenId>{first, first + 1}); };
    const std::vector<float> other = row(50);
    teach(source, {5, 6, 7}, {other, other, row(20)});
    teach(source, {8, 9, 7}, {other, other, row(30)});
    const auto best_behind = [&](const std::vector<TokenId>& text) {
        std::vector<Proposal> out(1);
        EXPECT_EQ(source.propose(source.root(text), std::ssize(text), {}, out), 1U);
        return out[0];
    };
    EXPECT_EQ(best_behind({1, 5, 6, 7}).token, 20);
    EXPECT_EQ(best_behind({1, 8, 9, 7}).token, 30);
    EXPECT_EQ(best_behind({1, 4, 6, 7}).token, 20) << "behind two of them";
    EXPECT_EQ(best_behind({1, 2, 3, 7}).token, 30) << "behind the token alone: what was said last";
    EXPECT_EQ(best_behind({1, 5, 6, 7}).bin, 2 * Recycling::kCandidates);
    EXPECT_EQ(best_behind({1, 2, 3, 7}).bin, 0);
    source.reset();
    std::vector<Proposal> out(1);
    EXPECT_EQ(source.propose(source.root(std::vector<TokenId>{5, 6, 7}), 3, {}, out), 0U);
}

TEST(Recycling, StaticTreeIsThePapers) {
    // Nodes of each depth, and how many children each depth's nodes have.
    std::map<int, int> n_at_depth;
    std::vector<int> depth(kRecyclingTree.size(), 0);
    for (std::size_t i = 1; i < kRecyclingTree.size(); ++i) {
        ASSERT_LT(kRecyclingTree[i].parent, static_cast<int>(i));
        depth[i] = depth[kRecyclingTree[i].parent] + 1;
        ++n_at_depth[depth[i]];
    }
    EXPECT_EQ(n_at_depth, (std::map<int, int>{{1, 8}, {2, 21}, {3, 25}, {4, 15}, {5, 8}, {6, 3}}));
    const auto children_of = [](std::size_t node) {
        return std::ranges::count(kRecyclingTree, static_cast<std::int16_t>(node), &StaticNode::parent);
    };
    EXPECT_EQ(children_of(1), 8);  // rank path 0
    EXPECT_EQ(children_of(2), 4);  // 1
    EXPECT_EQ(children_of(9), 8);  // 00
}

std::vector<std::int32_t> numbers_of(const std::string& line) {
    std::istringstream in(line.substr(1));
    std::vector<std::int32_t> numbers;
    for (std::int32_t number = 0; in >> number; in.ignore(1)) numbers.push_back(number);
    return numbers;
}

TEST(Recycling, AgreesWithTheReferenceStepByStep) {
    constexpr std::size_t vocab = 4096;
    std::ifstream in(SLIPSTREAM_GOLDEN_DIR "/recycling/steps.txt");
    ASSERT_TRUE(in);
    Recycling source({.vocab = vocab});
    std::vector<std::vector<TokenId>> rows;
    std::vector<TokenId> text;
    TokenTree tree;
    std::vector<float> logits;
    std::vector<TreeNode> accepted;
    Sampler greedy({.temperature = 0.0}, vocab);
    int n_steps = 0;
    int n_nodes = 0;
    for (std::string line; std::getline(in, line);) {
        if (line[0] == 'r') {
            rows.emplace_back(8);
            for (std::size_t i = 0; i < 8; ++i)
                std::from_chars(line.data() + 2 + 3 * i, line.data() + 5 + 3 * i, rows.back()[i], 16);
            continue;
        }
        const std::vector<std::int32_t> numbers = numbers_of(line);
        switch (line[0]) {
            case 'p':
                text = {1, numbers.at(0)};
                source.observe({.text = text, .n_new = 2});
                break;
            case 't':
                tree.reset(text.back());
                source.propose_shape(tree, {.text = text, .budget = 81, .max_depth = 6});
                ASSERT_EQ(2 * (tree.size() - 1), std::ssize(numbers)) << "step " << n_steps;
                for (const TreeNode node : tree.draft_nodes()) {
                    ASSERT_EQ(tree.token(node), numbers[2 * static_cast<std::size_t>(node.index) - 2])
                        << "step " << n_steps;
                    ASSERT_EQ(tree.parent(node).index, numbers[2 * static_cast<std::size_t>(node.index) - 1])
                        << "step " << n_steps;
                }
                n_nodes += tree.size();
                break;
            case 'l':
                ASSERT_EQ(std::ssize(numbers), tree.size());
                logits.clear();
                for (const std::int32_t row : numbers) {
                    const std::vector<float> values = logits_of(vocab, rows.at(static_cast<std::size_t>(row)));
                    logits.insert(logits.end(), values.begin(), values.end());
                }
                break;
            case 'a': {
                const ConstTensorView view = matrix_view(std::as_const(logits).data(), tree.size(), vocab);
                verify_tree(tree, view, greedy, {.max_new_tokens = 100}, text, accepted);
                EXPECT_TRUE(std::ranges::equal(accepted, numbers, {}, &TreeNode::index)) << "step " << n_steps;
                source.observe(
                    {.text = text, .n_new = std::ssize(accepted), .tree = &tree, .logits = view, .accepted = accepted});
                break;
            }
            case 'n':
                ASSERT_EQ(text.back(), numbers.at(0)) << "step " << n_steps;
                ++n_steps;
                break;
            default:
                FAIL() << line;
        }
    }
    EXPECT_EQ(n_steps, 120);
    EXPECT_GT(n_nodes, 5000);
}

TEST(Recycling, EveryNodeTeachesAndTheLastOccurrenceWins) {
    Recycling source({.vocab = 50});
    const TokenId first[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const TokenId second[] = {20, 21, 22, 23, 24, 25, 26, 27};
    EXPECT_TRUE(proposed(source, 9).empty());
    teach(source, {9, 11, 9}, {logits_of(50, first), logits_of(50, first), logits_of(50, second)});
    EXPECT_THAT(proposed(source, 9), ElementsAre(20, 21, 22, 23, 24, 25, 26, 27));
    EXPECT_THAT(proposed(source, 11), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT_TRUE(proposed(source, 12).empty());
    // A row is overwritten whole.
    teach(source, {9}, {logits_of(50, std::span(first).first(2))});
    EXPECT_THAT(proposed(source, 9), ElementsAre(1, 2, 0, 3, 4, 5, 6, 7)) << "equal logits: the lowest ids";
    source.reset();
    EXPECT_TRUE(proposed(source, 9).empty());
}

TEST(Recycling, PrefillAndReplayTeachNothing) {
    Recycling source({.vocab = 50});
    const std::vector<TokenId> text = {1, 2, 3};
    source.observe({.text = text, .n_new = 3});
    TokenTree tree;
    tree.reset(3);
    source.observe({.text = text, .n_new = 1, .tree = &tree});
    source.propose_shape(tree, {.text = text, .budget = 81, .max_depth = 6});
    EXPECT_EQ(tree.size(), 1);
}

TEST(Recycling, ProbabilitiesAreTheTargetsAtItsTemperature) {
    constexpr std::size_t vocab = 300;
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 2.0F);
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = normal(random);
    for (const double temperature : {0.0, 0.5, 1.0, 1.5}) {
        Recycling source({.vocab = vocab, .temperature = temperature});
        teach(source, {5}, {logits});
        std::vector<Proposal> out(8);
        ASSERT_EQ(source.propose(5, 1, {}, out), 8U);
        const double t = temperature > 0.0 ? temperature : 1.0;
        double sum = 0.0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit) / t);
        for (const Proposal& proposal : out) {
            const double p = std::exp(static_cast<double>(logits[proposal.token]) / t) / sum;
            EXPECT_NEAR(proposal.probability / p, 1.0, 2e-3);
        }
    }
}

TEST(Recycling, NoiseRanksTheCandidates) {
    Recycling source({.vocab = 50, .temperature = 1.0});
    const TokenId best[] = {3, 14, 15, 9, 2, 6, 5, 35};
    teach(source, {7}, {logits_of(50, best, 0.3F)});
    const PathNoise noise(42);
    std::vector<Proposal> plain(8);
    ASSERT_EQ(source.propose(7, 1, {}, plain), 8U);
    int n_reordered = 0;
    for (std::int64_t position = 1; position < 20; ++position) {
        std::vector<Proposal> sorted = plain;
        std::ranges::sort(sorted, std::greater{}, [&](const Proposal& proposal) {
            return noise.rank(proposal.probability, position, proposal.token);
        });
        std::vector<TokenId> expected;
        for (const Proposal& proposal : sorted) expected.push_back(proposal.token);
        EXPECT_EQ(proposed(source, 7, noise, position), expected);
        if (expected.front() != 3) ++n_reordered;
        // The tree's ranks are those behind the noise; its children stand at the text's length.
        const std::vector<TokenId> text(static_cast<std::size_t>(position), 7);
        TokenTree tree;
        tree.reset(7);
        source.propose_shape(tree, {.text = text, .budget = 4, .max_depth = 6, .noise = &noise});
        ASSERT_EQ(tree.size(), 4);
        EXPECT_THAT(tree.tokens().subspan(1), ElementsAre(expected[0], expected[1], expected[2]));
    }
    EXPECT_GT(n_reordered, 5);
}

TEST(Recycling, TreeKeepsToBudgetAndDepth) {
    constexpr std::size_t vocab = 40;
    Recycling source({.vocab = vocab});
    std::mt19937 random(5);
    std::vector<TokenId> tokens(vocab);
    std::vector<std::vector<float>> rows(vocab, std::vector<float>(vocab));
    for (std::size_t i = 0; i < vocab; ++i) {
        tokens[i] = static_cast<TokenId>(i);
        for (float& logit : rows[i]) logit = static_cast<float>(random() % 1000);
    }
    teach(source, tokens, rows);
    const std::vector<TokenId> text = {4};
    for (const std::int64_t budget : {1, 2, 9, 50, 80, 81, 200}) {
        for (const std::int64_t depth : {0, 1, 3, 6, 9}) {
            TokenTree tree;
            tree.reset(4);
            source.propose_shape(tree, {.text = text, .budget = budget, .max_depth = depth});
            EXPECT_LE(tree.size(), budget);
            std::int32_t deepest = 0;
            for (const TreeNode node : tree.nodes()) deepest = std::max(deepest, tree.depth(node));
            EXPECT_LE(deepest, depth);
            if (budget >= 81 && depth >= 6) {
                EXPECT_EQ(tree.size(), 81);
                EXPECT_EQ(deepest, 6);
            }
        }
    }
}

struct Saved {
    TableWriter writer;
    explicit Saved(const Recycling& source) { source.save(writer); }
    [[nodiscard]] TableReader reader() const { return {writer.bytes(), "test: recycling"}; }
};

TEST(Recycling, SavedRowsComeBack) {
    Recycling source({.vocab = 50, .temperature = 1.0});
    EXPECT_TRUE(Saved(source).writer.empty());
    const TokenId best[] = {3, 14, 15, 9, 2, 6, 5, 35};
    std::vector<float> narrow(50, -std::numeric_limits<float>::infinity());
    narrow[8] = 1.0F;
    narrow[30] = 1.5F;
    teach(source, {49, 0}, {logits_of(50, best), narrow});
    const Saved saved(source);
    Recycling other({.vocab = 50, .temperature = 1.0});
    TableReader reader = saved.reader();
    other.load(reader);
    EXPECT_THAT(proposed(other, 49), ElementsAre(3, 14, 15, 9, 2, 6, 5, 35));
    EXPECT_THAT(proposed(other, 0), ElementsAre(30, 8));
    EXPECT_TRUE(proposed(other, 1).empty());
    const Saved again(other);
    EXPECT_TRUE(std::ranges::equal(again.writer.bytes(), saved.writer.bytes()));

    // At half the temperature the ratio of two candidates is squared, their sum stays.
    Recycling colder({.vocab = 50, .temperature = 0.5});
    reader = saved.reader();
    colder.load(reader);
    std::vector<Proposal> before(2);
    std::vector<Proposal> after(2);
    ASSERT_EQ(source.propose(0, 1, {}, before), 2U);
    ASSERT_EQ(colder.propose(0, 1, {}, after), 2U);
    const float ratio = before[0].probability / before[1].probability;
    EXPECT_NEAR(after[0].probability / after[1].probability, ratio * ratio, 0.01);
    EXPECT_NEAR(after[0].probability + after[1].probability, 1.0, 0.002);
}

TEST(Recycling, FollowsTheTemperatureAndLosesNothing) {
    const TokenId best[] = {3, 14, 15, 9, 2, 6, 5, 35};
    Recycling source({.vocab = 50, .temperature = 0.8});
    teach(source, {7, 9}, {logits_of(50, best, 0.7F), logits_of(50, best, 0.3F)});
    // Row 9 is also behind the two tokens 7 and 9.
    const std::vector<std::vector<TokenId>> paths = {{2, 2, 7}, {2, 7, 9}};
    const auto probabilities = [&](Recycling& of, const std::vector<TokenId>& path) {
        std::vector<Proposal> out(8);
        EXPECT_EQ(of.propose(of.root(path), 1, {}, out), 8U);
        std::vector<float> p;
        for (const Proposal& proposal : out) p.push_back(proposal.probability);
        return p;
    };
    for (const std::vector<TokenId>& path : paths) {
        const std::vector<float> learnt = probabilities(source, path);
        for (const double temperature : {0.4, 0.02, 0.0, 1.6, 0.8}) {
            const Saved saved(source);
            source.set_temperature(temperature);
            const std::vector<float> now = probabilities(source, path);
            // p^power, their sum as it was.
            const double power = 0.8 / (temperature > 0.0 ? temperature : 1.0);
            double mass = 0.0;
            double sum = 0.0;
            for (const float p : learnt) mass += p;
            for (const float p : learnt) sum += std::pow(static_cast<double>(p / learnt[0]), power);
            for (std::size_t i = 0; i < now.size(); ++i) {
                const double expected = mass * std::pow(static_cast<double>(learnt[i] / learnt[0]), power) / sum;
                EXPECT_NEAR(now[i], std::clamp(expected, 0x1p-24, 0x1.ffcp-1), 1e-3 * expected + 0x1p-24);
            }
            EXPECT_EQ(now == learnt, temperature == 0.8);
        }
    }
}

TEST(Recycling, DamagedSectionsAreRefusedAndLeaveItAsItWas) {
    const TokenId best[] = {3, 14, 15, 9, 2, 6, 5, 35};
    Recycling source({.vocab = 50, .temperature = 1.0});
    teach(source, {9}, {logits_of(50, best)});
    const auto refused = [&](const TableWriter& fields, const char* why) {
        TableReader reader(fields.bytes(), "test: recycling");
        EXPECT_THAT([&] { source.load(reader); }, testing::ThrowsMessage<FormatError>(HasSubstr(why)));
        EXPECT_EQ(proposed(source, 9).size(), 8U);
    };
    struct Section {
        std::uint64_t vocab = 50;
        std::uint32_t k = 8;
        float sharpness = 1.0F;
        std::vector<std::uint32_t> tokens = {7};
        std::vector<std::int32_t> candidates = {1, 2, 3, -1, -1, -1, -1, -1};
        std::vector<std::uint32_t> probabilities = {0x38003800, 0x3800, 0, 0};
        [[nodiscard]] TableWriter fields() const {
            TableWriter out;
            out.u64(vocab);
            out.u32(k);
            out.f32(sharpness);
            out.u32s(tokens);
            out.i32s(candidates);
            out.u32s(probabilities);
            return out;
        }
    };
    refused(Section{.vocab = 51}.fields(), "51 tokens");
    refused(Section{.k = 4}.fields(), "4 candidates");
    refused(Section{.sharpness = 0.0F}.fields(), "temperature");
    refused(Section{.sharpness = std::nanf("")}.fields(), "temperature");
    refused(Section{.tokens = {50}}.fields(), "token 50");
    refused(Section{.tokens = {7, 7}}.fields(), "2 rows");
    refused(Section{.candidates = {1, 2, 50, -1, -1, -1, -1, -1}}.fields(), "candidate 2");
    refused(Section{.candidates = {1, -2, 3, -1, -1, -1, -1, -1}}.fields(), "candidate 1");
    refused(Section{.candidates = {1, 2, 1, -1, -1, -1, -1, -1}}.fields(), "candidate 2");
    refused(Section{.candidates = {1, -1, 3, -1, -1, -1, -1, -1}}.fields(), "candidate 2");
    refused(Section{.candidates = {-1, -1, -1, -1, -1, -1, -1, -1}}.fields(), "empty");
    refused(Section{.probabilities = {0x3800, 0x3800, 0, 0}}.fields(), "candidate 1");
    refused(Section{.probabilities = {0x7c003800, 0x3800, 0, 0}}.fields(), "candidate 1");
    refused(Section{.probabilities = {0x38003800}}.fields(), "probabilities");
    const TableWriter whole = Section{}.fields();
    TableReader cut(whole.bytes().first(whole.bytes().size() - 4), "test: recycling");
    EXPECT_THROW(source.load(cut), FormatError);
    TableReader right(whole.bytes(), "test: recycling");
    source.load(right);
    EXPECT_THAT(proposed(source, 7), ElementsAre(1, 2, 3));
    EXPECT_TRUE(proposed(source, 9).empty());
}

}  // namespace
}  // namespace slipstream::draft
