// The draft model's guesses against the sampler, and its limits.
#include "draft/models/draft_model.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/papers/chain_shape.h"
#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "tests/support/error_text.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

TEST(DraftModel, GuessesAreTheSamplersOwnOnThePath) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    const SamplerOptions sampling{.temperature = 0.9, .top_k = 30, .top_p = 0.9, .repeat_penalty = 1.5, .seed = 77};
    DraftModel draft(model, 97, sampling, {.max_nodes = 8, .rows = DraftRows::Whole});
    const std::vector<TokenId> text = {5, 6, 7, 8, 9};
    TokenTree tree;
    tree.reset(9);
    const TreeNode child = tree.add(kTreeRoot, 40);
    const TreeNode nodes[] = {kTreeRoot, child};
    draft.expand(tree, text, nodes);
    Sampler sampler(sampling, 97);
    std::vector<TokenId> path = text;
    for (const TreeNode node : nodes) {
        if (node != kTreeRoot) path.push_back(40);
        const auto logits = draft.logits(node);
        Proposal out[97];
        // With the noise the best guess is what the sampler draws.
        for (std::int64_t position = 5; position < 60; ++position) {
            ASSERT_EQ(draft.propose(node, position, PathNoise(77), out), 64U);
            EXPECT_EQ(out[0].token, sampler.sample(logits, position, path))
                << "node " << node.index << " at " << position;
        }
        const auto expected = sampler.distribution(logits, path);
        const auto distribution = draft.distribution(node);
        ASSERT_EQ(distribution.size(), expected.size());
        // Without, guesses come by their probability; the filters' survivors first, then others, none twice.
        const std::size_t n = draft.propose(node, 6, PathNoise(), out);
        ASSERT_GT(n, expected.size());
        std::vector<TokenId> tokens;
        for (std::size_t i = 0; i < n; ++i) {
            tokens.push_back(out[i].token);
            EXPECT_LT(out[i].bin, draft.n_bins());
            EXPECT_GT(out[i].probability, 0.0F);
            EXPECT_LT(out[i].probability, 1.0F);
            if (i >= expected.size()) continue;
            EXPECT_EQ(out[i].token, expected[i].id);
            EXPECT_EQ(distribution[i].id, expected[i].id);
            EXPECT_NEAR(out[i].probability, expected[i].probability, 1e-5);
        }
        std::ranges::sort(tokens);
        EXPECT_EQ(std::ranges::adjacent_find(tokens), tokens.end());
    }
    EXPECT_GT(draft.expand_seconds(1), 0.0);
    EXPECT_EQ(draft.propose(kTreeRoot, 6, PathNoise(77), {}), 0U);
}

TEST(DraftModel, IdsBeyondTheNarrowerVocabularyAreNeitherProposedNorFed) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    Proposal out[97];
    TokenTree tree;
    DraftModel of_narrow(model, 60, {.temperature = 0.0}, {.rows = DraftRows::Whole});
    tree.reset(3);
    of_narrow.expand(tree, std::vector<TokenId>{1, 2, 3}, {&kTreeRoot, 1});
    EXPECT_EQ(of_narrow.logits(kTreeRoot).size(), 60U);
    const std::size_t n = of_narrow.propose(kTreeRoot, 3, PathNoise(), out);
    for (std::size_t i = 0; i < n; ++i) EXPECT_LT(out[i].token, 60);
    DraftModel of_wide(model, 150, {.temperature = 0.8, .repeat_penalty = 1.1});
    tree.reset(140);
    of_wide.expand(tree, std::vector<TokenId>{1, 120, 140}, {&kTreeRoot, 1});
    EXPECT_GT(of_wide.propose(kTreeRoot, 3, PathNoise(1), out), 0U);
    of_wide.observe({.text = std::vector<TokenId>{1, 120, 140, 149, 2}, .n_new = 2});
    tree.reset(2);
    of_wide.expand(tree, std::vector<TokenId>{1, 120, 140, 149, 2}, {&kTreeRoot, 1});
    EXPECT_EQ(of_wide.window().n_tokens(), 3) << "node 0 of the first tree was committed, its children are not known";
}

TEST(DraftModel, WhatAPassTakesIsPlannedAndThenSeen) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    DraftModel untold(model, 97, {.temperature = 0.0});
    EXPECT_EQ(untold.expand_seconds(1), 0.0);
    DraftModel planned(model, 97, {.temperature = 0.0}, {.planned_seconds = [](std::int64_t n, std::int64_t) {
                           return 100.0 + static_cast<double>(n);
                       }});
    EXPECT_DOUBLE_EQ(planned.expand_seconds(1), 101.0);
    EXPECT_DOUBLE_EQ(planned.expand_seconds(32), 132.0);
    TokenTree tree;
    tree.reset(3);
    for (DraftModel* draft : {&untold, &planned}) {
        draft->expand(tree, std::vector<TokenId>{1, 2, 3}, {&kTreeRoot, 1});
        EXPECT_GT(draft->expand_seconds(1), 0.0);
        EXPECT_LT(draft->expand_seconds(1), 60.0);
        EXPECT_GE(draft->expand_seconds(32), draft->expand_seconds(1));
    }
}

// The first token after a text that was restored must not wait for the draft model to read all of it.
TEST(DraftModel, OfATextThatTheTargetHasOnlyTheEndIsRead) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    std::vector<TokenId> text;
    for (TokenId i = 0; i < 900; ++i) text.push_back(i * i % 97);
    const auto n_read = [&](DraftRows rows, std::int64_t n_computed) {
        DraftModel draft(model, 97, {.temperature = 0.0},
                         {.window = {.sinks = 16, .recent = 500, .slots = 1000}, .rows = rows});
        draft.observe({.text = text, .n_new = std::ssize(text), .n_computed = n_computed});
        TokenTree tree;
        tree.reset(text.back());
        draft.expand(tree, text, {&kTreeRoot, 1});
        // What is in the window, and what goes along with the tree.
        return std::ssize(text) - draft.window().n_dropped();
    };
    EXPECT_EQ(n_read(DraftRows::Best, 0), 900);
    EXPECT_EQ(n_read(DraftRows::Best, 500), 16 + 400 + 1);  // as many as the target computes
    EXPECT_EQ(n_read(DraftRows::Best, 899), 16 + 256 + 1);
    EXPECT_EQ(n_read(DraftRows::Whole, 899), 900);  // draws depend on the text alone
    // A text that goes on is read on.
    DraftModel draft(model, 97, {.temperature = 0.0}, {.window = {.sinks = 16, .recent = 500, .slots = 1000}});
    draft.observe({.text = text, .n_new = std::ssize(text), .n_computed = 899});
    TokenTree tree;
    tree.reset(text.back());
    draft.expand(tree, text, {&kTreeRoot, 1});
    const std::int64_t n_dropped = draft.window().n_dropped();
    for (int i = 0; i < 20; ++i) {
        text.push_back(i);
        draft.observe({.text = text, .n_new = 1});
        tree.reset(text.back());
        draft.expand(tree, text, {&kTreeRoot, 1});
    }
    EXPECT_EQ(draft.window().n_dropped(), n_dropped);
}

TEST(DraftModel, TheModelsOwnContextBoundsTheWindow) {
    const auto files = make_tiny_model({.context_tokens = 128});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    DraftModel draft(model, 97, {.temperature = 0.0}, {.max_nodes = 5, .window = {.slots = 400}});
    EXPECT_EQ(draft.window().shape().slots, 123);
    TokenTree tree;
    tree.reset(3);
    propose_chain(tree, {.text = std::vector<TokenId>(300, 3), .budget = 9, .max_depth = 8}, 4, draft);
    EXPECT_EQ(tree.size(), 5);
}

TEST(DraftModel, LimitsHold) {
    const auto files = make_tiny_model({.context_tokens = 128});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    DraftModel draft(model, 97, {.temperature = 0.0}, {.max_nodes = 5});
    EXPECT_EQ(draft.max_nodes(), 5);
    EXPECT_EQ(draft.window().shape().slots, 123) << "positions of the model, less those of a tree";
    TokenTree tree;
    tree.reset(3);
    const std::vector<TokenId> text(300, 3);
    propose_chain(tree, {.text = text, .budget = 64, .max_depth = 64}, 40, draft);
    EXPECT_EQ(tree.size(), 6) << "children of five nodes";
    const TreeNode last(5);
    EXPECT_DEATH(draft.expand(tree, text, {&last, 1}), "1 nodes after 5, room for 5");
    EXPECT_EQ(DraftModel(model, 97, {}, {.max_nodes = 512}).max_nodes(), 64) << "half the model's positions";
    const auto short_files = make_tiny_model({.context_tokens = 40});
    const Model short_model(*short_files, device, {});
    EXPECT_THAT(
        error_text<RequestError>([&] { const DraftModel none(short_model, 97, {}); }),
        testing::HasSubstr("the draft model has a context of 40 tokens, too few for a window of 16 sink tokens"));
}

}  // namespace
}  // namespace slipstream::draft
