// Conversations at random: each prompt begins with a part of the text before. What a prompt reuses is what it would
// have computed, and no more is computed again than that asks for.
#include "tools/engine/engine.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/loop/generation_loop.h"
#include "tests/support/fake_target.h"

namespace slipstream::tools {
namespace {

class Conversation {
public:
    explicit Conversation(const FakeOptions& options)
        : kv_{.options = options},
          target_(kv_),
          sequence_(target_),
          sampler_({.temperature = 0.9, .seed = 3}, options.vocab),
          verifier_(sampler_),
          loop_(sequence_, verifier_, none_, {.budget = 1, .end_tokens = {}}) {}

    /// Reuses, begins and generates; the number of positions that were reused.
    std::int64_t turn(const std::vector<TokenId>& prompt, std::int64_t n_tokens) {
        const std::int64_t n_reused =
            PrefixStore(sequence_).reuse(prompt, [&](std::int64_t n_same) { losses.push_back(n_same); });
        EXPECT_EQ(n_reused, sequence_.n_computed());
        loop_.begin(prompt);
        while (n_tokens > 0) n_tokens -= std::ssize(loop_.step(n_tokens));
        return n_reused;
    }
    /// Whether the KV is that of feeding the text to an empty cache.
    [[nodiscard]] bool is_exact() const {
        std::vector<std::uint32_t> states = kv_.reference(sequence_.tokens(), sequence_.n_prompt());
        states.resize(kv_.committed.size());
        return kv_.committed == states;
    }
    [[nodiscard]] const std::vector<TokenId>& text() const { return sequence_.tokens(); }
    [[nodiscard]] std::int64_t n_computed() const { return sequence_.n_computed(); }

    std::vector<std::int64_t> losses;  // lengths of prefixes that a target with windows could not keep

private:
    FakeKv kv_;
    FakeTarget target_;
    Sequence sequence_;
    Sampler sampler_;
    ExactVerifier verifier_;
    NoProposer none_;
    GenerationLoop loop_;
};

TEST(PrefixStore, AnEmptyCacheGivesNothing) {
    Conversation talk({});
    EXPECT_EQ(talk.turn({1, 2, 3}, 2), 0);
    EXPECT_TRUE(talk.is_exact());
}

// A target whose windowed layers have given up what a prefix needs says so before, and computes it again.
TEST(PrefixStore, ADeepCutOfATargetWithWindowsKeepsNothing) {
    for (const bool has_prompt_kernels : {false, true}) {
        Conversation talk({.has_prompt_kernels = has_prompt_kernels, .max_cut = 10});
        std::vector<TokenId> prompt(1100, 5);
        talk.turn(prompt, 3);
        prompt.resize(1093);
        EXPECT_EQ(talk.turn(prompt, 3), 1092);
        EXPECT_THAT(talk.losses, testing::IsEmpty());
        prompt.resize(1050);
        EXPECT_EQ(talk.turn(prompt, 3), 0);
        EXPECT_THAT(talk.losses, testing::ElementsAre(1049));
        EXPECT_TRUE(talk.is_exact());
        EXPECT_EQ(talk.turn(prompt, 3), 1049);
        EXPECT_TRUE(talk.is_exact());
    }
}

TEST(PrefixStore, ThePromptsLastTokenIsComputedAlways) {
    Conversation talk({});
    talk.turn({1, 2, 3, 4}, 5);
    EXPECT_EQ(talk.turn({1, 2, 3, 4}, 1), 3);
    EXPECT_EQ(talk.turn({1, 2}, 1), 1);
    EXPECT_EQ(talk.turn({1}, 1), 0);
    EXPECT_TRUE(talk.is_exact());
}

TEST(PrefixStore, WhatIsReusedIsWhatThePromptWouldCompute) {
    std::mt19937 random(7);
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 60; ++round) {
        const FakeOptions options{.has_prompt_kernels = below(2) > 0, .takes_prompts = below(2) > 0};
        Conversation talk(options);
        for (int turn = 0; turn < 6; ++turn) {
            const std::int64_t n_same = below(std::ssize(talk.text()) + 1);
            std::vector<TokenId> prompt(talk.text().begin(), talk.text().begin() + n_same);
            // A token that the text does not have there.
            const TokenId before = n_same < std::ssize(talk.text()) ? talk.text()[static_cast<std::size_t>(n_same)] : 0;
            prompt.push_back((before + 1) % static_cast<TokenId>(options.vocab));
            for (std::int64_t i = below(700); i > 0; --i) prompt.push_back(static_cast<TokenId>(below(options.vocab)));
            if (std::ssize(prompt) > 3800) break;
            const std::int64_t most = std::min({n_same, talk.n_computed(), std::ssize(prompt) - 1});
            const std::int64_t n_reused = talk.turn(prompt, 1 + below(40));
            // Prompts with kernels of their own are computed in whole prefill chunks of 512.
            EXPECT_LE(n_reused, most);
            EXPECT_TRUE(options.has_prompt_kernels || n_reused == most) << n_reused << " of " << most;
            ASSERT_TRUE(talk.is_exact()) << "round " << round << ", turn " << turn;
        }
    }
}

}  // namespace
}  // namespace slipstream::tools
