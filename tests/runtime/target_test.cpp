// What stands on the interface Target, over one without a model: the loop, verification, the self-check, and what is
// kept of a text. Then the target of one device: in which order it may be called.
#include "runtime/loop/target.h"

#include <algorithm>
#include <optional>
#include <random>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/self_check.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/fake_target.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

const SamplerOptions kSampled{.temperature = 0.9, .top_p = 0.9, .repeat_penalty = 1.2, .seed = 3};

std::vector<TokenId> prompt_of(std::int64_t n, std::int64_t step = 31) {
    std::vector<TokenId> prompt;
    for (std::int64_t i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>((i * step + 7) % 97));
    return prompt;
}

/// A fake, and a loop over it.
struct FakeRun {
    explicit FakeRun(const FakeOptions& options, std::int64_t budget = 1, std::vector<TokenId> future = {},
                     double hit = 0.7)
        : kv{.options = options},
          target(kv),
          sampler(kSampled, options.vocab),
          verifier(sampler),
          proposer(std::move(future), hit, 5),
          sequence(target),
          loop(sequence, verifier, budget > 1 ? static_cast<Proposer&>(proposer) : none, {.budget = budget}) {}

    const std::vector<TokenId>& generate(std::int64_t n_tokens) {
        const std::int64_t end = std::ssize(loop.text()) + n_tokens;
        while (std::ssize(loop.text()) < end)
            if (loop.step(end - std::ssize(loop.text())).empty()) break;
        return loop.text();
    }
    /// Whether what is committed is what feeding the text afresh makes.
    [[nodiscard]] bool is_exact(std::int64_t n_prompt) const {
        std::vector<std::uint32_t> states = kv.reference(loop.text(), n_prompt);
        states.resize(kv.committed.size());
        return kv.committed == states && kv.nodes.empty() && kv.n_extended < 0;
    }

    FakeKv kv;
    FakeTarget target;
    Sampler sampler;
    ExactVerifier verifier;
    NoProposer none;
    ScriptedProposer proposer;
    Sequence sequence;
    GenerationLoop loop;
};

TEST(FakeTarget, AnyProposerGivesThePlainTextAndItsRows) {
    for (const bool has_prompt_kernels : {false, true}) {
        for (const bool takes_prompts : {false, true}) {
            const FakeOptions options{.has_prompt_kernels = has_prompt_kernels, .takes_prompts = takes_prompts};
            for (const std::int64_t n_prompt : {1, 511, 512, 513, 1400}) {
                FakeRun plain(options);
                plain.loop.begin(prompt_of(n_prompt));
                const std::vector<TokenId> text = plain.generate(150);
                EXPECT_TRUE(plain.is_exact(n_prompt)) << n_prompt;
                EXPECT_EQ(plain.target.n_passes, 150 + (takes_prompts ? 0 : (n_prompt - 1) / 512));
                for (const std::int64_t budget : {2, 7, 64}) {
                    FakeRun run(options, budget, text);
                    run.loop.begin(prompt_of(n_prompt));
                    EXPECT_EQ(run.generate(150), text) << "budget " << budget << ", prompt " << n_prompt;
                    EXPECT_TRUE(run.is_exact(n_prompt)) << "budget " << budget << ", prompt " << n_prompt;
                    EXPECT_LT(run.target.n_passes, plain.target.n_passes);
                }
            }
        }
    }
}

// A conversation at random: texts that go on, are cut back and go on otherwise. What is kept never shows.
TEST(FakeTarget, WhatIsKeptOfATextIsWhatAFreshRunMakes) {
    std::mt19937 random(9);
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 60; ++round) {
        const FakeOptions options{.has_prompt_kernels = below(4) > 0, .takes_prompts = below(2) > 0};
        FakeRun run(options, 1 + below(9));
        for (int turn = 0; turn < 6; ++turn) {
            // The beginning of the text so far, then something else.
            const std::int64_t n_same = below(std::min(run.target.n_committed(), std::ssize(run.loop.text())) + 1);
            std::vector<TokenId> prompt(run.loop.text().begin(), run.loop.text().begin() + n_same);
            const std::vector<TokenId> more = prompt_of(1 + below(900), 13 + turn);
            prompt.insert(prompt.end(), more.begin(), more.end());
            if (std::ssize(prompt) > 3800) break;
            run.sequence.keep_computed(run.sequence.n_reusable(n_same, std::ssize(prompt)));
            std::int64_t n_prompt = std::ssize(prompt);
            run.loop.begin(prompt);
            run.generate(1 + below(40));
            ASSERT_TRUE(run.is_exact(n_prompt)) << "round " << round << ", turn " << turn;
            if (below(2) == 0) continue;
            const std::int64_t n_left = 1 + below(std::ssize(run.loop.text()));
            n_prompt = std::min(n_prompt, n_left);
            run.loop.truncate(n_left);
            run.generate(1 + below(5));
            ASSERT_TRUE(run.is_exact(n_prompt)) << "round " << round << ", turn " << turn << ", cut to " << n_left;
        }
    }
}

TEST(FakeTarget, ATextThatIsResumedHasTheSameRows) {
    for (const bool takes_prompts : {false, true}) {
        const FakeOptions options{.has_prompt_kernels = true, .takes_prompts = takes_prompts};
        FakeRun first(options);
        first.loop.begin(prompt_of(1300));
        const std::vector<TokenId> text = first.generate(700);
        for (const std::int64_t n_held : {0, 512, 1024, 1300, 1536}) {
            FakeRun second(options, 8, text);
            second.kv.committed.assign(first.kv.committed.begin(), first.kv.committed.begin() + n_held);
            second.loop.resume({text.begin(), text.begin() + 1800}, 1300);
            EXPECT_EQ(second.generate(200), text) << n_held;
            EXPECT_TRUE(second.is_exact(1300)) << n_held;
        }
    }
}

// A pass that is given up, or fails when it is begun or finished, leaves text and target as they were.
TEST(FakeTarget, APassThatComesToNothingLeavesNoTrace) {
    for (const bool takes_prompts : {false, true}) {
        const FakeOptions options{.has_prompt_kernels = true, .takes_prompts = takes_prompts};
        FakeRun plain(options);
        plain.loop.begin(prompt_of(1400));
        const std::vector<TokenId> text = plain.generate(40);
        FakeRun run(options, 5, text);
        run.loop.begin(prompt_of(1400));
        std::mt19937 random(4);
        std::atomic<bool> cancel{false};
        int n_failed = 0;
        while (std::ssize(run.loop.text()) < std::ssize(text)) {
            const auto held = run.target.n_committed();
            const std::size_t n_text = run.loop.text().size();
            const unsigned kind = random() % 6;
            run.target.on_begin = [&](const TargetPass&) {
                if (kind == 0) cancel = true;
                if (kind == 1) throw std::runtime_error("begin");
            };
            run.target.on_finish = [&] {
                if (kind == 2) throw std::runtime_error("finish");
            };
            cancel = false;
            try {
                static_cast<void>(run.loop.step(std::ssize(text) - std::ssize(run.loop.text()), &cancel));
                if (kind > 0) continue;
            } catch (const std::runtime_error&) {
                EXPECT_THAT(kind, testing::AnyOf(1, 2));
            }
            ++n_failed;
            EXPECT_EQ(run.loop.text().size(), n_text);
            EXPECT_EQ(run.target.n_committed(), held);
            EXPECT_TRUE(run.is_exact(1400));
        }
        EXPECT_EQ(run.loop.text(), text);
        EXPECT_GT(n_failed, 5);
    }
}

TEST(FakeTarget, TheSelfCheckSeesATargetWhoseTreesCountWrong) {
    FakeRun plain({});
    plain.loop.begin(prompt_of(20));
    const std::vector<TokenId> text = plain.generate(80);
    for (const std::int64_t wrong_token : {-1, 0, 2}) {
        FakeRun run({}, 8, text, 1.0);
        FakeTarget alone(run.kv);
        SelfCheck check(alone);
        run.loop.check_with(check);
        run.loop.begin(prompt_of(20));
        run.generate(1);
        run.target.wrong_token = wrong_token;
        if (wrong_token < 0) {
            EXPECT_EQ(run.generate(79), text);
            EXPECT_EQ(check.figures().tokens, 80);
            continue;
        }
        std::string message;
        std::int64_t n_text = 0;
        try {
            for (int i = 0; i < 40; ++i) {
                n_text = std::ssize(run.loop.text());
                static_cast<void>(run.loop.step(100));
            }
        } catch (const SelfCheckFailure& error) {
            message = error.what();
        }
        EXPECT_THAT(message, testing::HasSubstr(fmt::format("(node {} of a tree of ", wrong_token)));
        EXPECT_EQ(std::ssize(run.loop.text()), n_text);
        EXPECT_TRUE(run.is_exact(20));
    }
}

// A prompt is there once its pass was begun, also where that does not end well.
TEST(FakeTarget, RowsOfAPromptAreKnownAsSuchWhereTheirPassFailsToFinish) {
    FakeRun run({.has_prompt_kernels = true, .takes_prompts = true});
    run.target.on_finish = [] { throw std::runtime_error("finish"); };
    run.loop.begin(prompt_of(1400));
    EXPECT_THROW(static_cast<void>(run.loop.step(1)), std::runtime_error);
    EXPECT_EQ(run.target.n_committed(), 1024);
    EXPECT_EQ(run.sequence.n_prefilled(), 1024);
    EXPECT_EQ(run.sequence.n_reusable(1000, 1300), 1000);
    run.target.on_finish = nullptr;
    run.generate(3);
    EXPECT_TRUE(run.is_exact(1400));
}

// In which order a target may be called, whatever it is: one that takes 512 tokens of prompt along with a pass.
void check_order_of_calls(Target& target) {
    const std::vector<TokenId> prompt = prompt_of(512);
    const TokenId token = 5;
    const std::int32_t row = 0;
    EXPECT_DEATH(static_cast<void>(target.finish()), "no pass was begun");
    EXPECT_DEATH(target.extend(500), "a prompt from 0 to 500");
    EXPECT_DEATH(target.extend(0), "a prompt from 0 to 0");
    static_cast<void>(target.add_node(kCommittedTip));
    EXPECT_DEATH(target.extend(512), "512 positions after 0");
    target.forget();
    target.extend(512);
    EXPECT_DEATH(target.extend(1024), "the sequence changes before an announced prompt");
    EXPECT_DEATH(target.truncate(0), "the sequence changes before an announced prompt");
    const NodeId node = target.add_node(kCommittedTip);
    EXPECT_EQ(target.position(node), 512);
    EXPECT_DEATH(target.commit({&node, 1}), "the sequence changes before an announced prompt");
    TargetPass pass{.tokens = {&token, 1}, .nodes = {&node, 1}, .logit_tokens = {&row, 1}};
    EXPECT_DEATH(target.begin(pass), "a prompt of 0 tokens, announced from 0");
    pass.prompt = prompt;
    EXPECT_DEATH(target.begin(pass), "a pass with a prompt requires");
    pass.needs = LogitRequest{};
    target.begin(pass);
    EXPECT_DEATH(target.begin(pass), "a pass is under way");
    EXPECT_DEATH(target.forget(), "forgotten in a pass");
    EXPECT_DEATH(target.commit({&node, 1}), "the sequence changes in a pass");
    EXPECT_DEATH(target.truncate(0), "the sequence changes in a pass");
    EXPECT_EQ(target.finish().rows(), 1);
    target.commit({&node, 1});
    EXPECT_EQ(target.n_committed(), 513);
    target.truncate(300);
    EXPECT_EQ(target.n_committed(), 300);
}

TEST(FakeTarget, MayBeCalledInTheOrderOfTheInterface) {
    FakeKv kv{.options = {.takes_prompts = true}};
    FakeTarget target(kv);
    check_order_of_calls(target);
}

TEST(RankTarget, MayBeCalledInTheOrderOfTheInterface) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    PinnedArena arena({.limit_bytes = 64U << 20, .page_lock = PageLock::Pageable});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), 2048, 512, {.resident_chunks = {0, 0}, .arena = &arena});
    PassStream pass(std::vector{PassReads{&model, &cache}}, arena, std::size_t{1} << 20);
    Forward forward(model, {.max_tokens = 512, .max_logit_rows = 4}, &pass);
    RankTarget target(forward, cache);
    check_order_of_calls(target);
}

TEST(RankTarget, PassesAreBegunAndFinishedInTurn) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), 2048, 16);
    Forward forward(model, {.max_tokens = 16, .max_logit_rows = 4});
    RankTarget target(forward, cache);
    const std::vector<TokenId> tokens{5, 9, 11};
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < 3; ++i) nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back()));
    const std::int32_t last = 2;
    const TargetPass pass{.tokens = tokens, .nodes = nodes, .logit_tokens = {&last, 1}};
    EXPECT_DEATH(static_cast<void>(target.finish()), "no pass was begun");
    target.begin(pass);
    EXPECT_DEATH(target.begin(pass), "a pass is under way");
    const LogitRows logits = target.finish();
    ASSERT_EQ(logits.rows(), 1);
    const std::vector<float> found(logits.row(0).begin(), logits.row(0).end());

    // The same rows and logits as the forward pass by itself; rows as the whole model has them.
    std::vector<std::byte> rows(2 * static_cast<std::size_t>(target.shape().n_layers) *
                                target.shape().kv.front().scratch_row_bytes());
    target.read_rows(nodes[1], rows.data());
    const std::size_t row_bytes = cache.layout(1).scratch_row_bytes();
    EXPECT_TRUE(std::equal(rows.begin() + static_cast<std::ptrdiff_t>(3 * row_bytes), rows.end(),
                           cache.scratch_v(1) + row_bytes));
    target.commit(nodes);
    EXPECT_EQ(target.n_committed(), 3);
    KvCache again(device, model.kv_layouts(), 2048, 16);
    for (std::size_t i = 0; i < 3; ++i) static_cast<void>(again.add_node(NodeId(static_cast<std::int32_t>(i) - 1)));
    const ConstTensorView direct = forward.run(again, tokens, nodes, {&last, 1});
    EXPECT_TRUE(std::equal(found.begin(), found.end(), float_row(direct, 0)));
}

}  // namespace
}  // namespace slipstream
