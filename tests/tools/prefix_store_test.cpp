// Conversations at random: each prompt begins with a part of a text before. What a prompt reuses is what it would have
// computed, and no more is computed again than that asks for.
#include "tools/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/loop/generation_loop.h"
#include "tests/support/fake_target.h"

namespace slipstream::tools {
namespace {

class Conversation {
public:
    explicit Conversation(const FakeOptions& options, std::size_t limit_bytes = 0)
        : kv_{.options = options},
          target_(kv_),
          sequence_(target_),
          sampler_({.temperature = 0.9, .seed = 3}, options.vocab),
          verifier_(sampler_),
          loop_(sequence_, verifier_, none_, {.budget = 1, .end_tokens = {}}),
          store_(sequence_, limit_bytes) {
        target_.on_begin = [this](const TargetPass& pass) {
            if (passes_left_ > 0 && --passes_left_ == 0) cancel_ = true;
            if (!cancel_) n_computed_tokens += std::ssize(pass.prompt) + std::ssize(pass.tokens);
        };
    }

    /// Reuses, begins and generates; the number of positions that were reused. The pass number `cancel_in` is cancelled
    /// (0: none).
    std::int64_t turn(const std::vector<TokenId>& prompt, std::int64_t n_tokens, std::int64_t cancel_in = 0) {
        n_computed_tokens = 0;
        cancel_ = false;
        passes_left_ = cancel_in;
        const std::int64_t n_reused = store_.reuse(prompt, [&](std::int64_t n_same) { losses.push_back(n_same); });
        EXPECT_EQ(n_reused, sequence_.n_computed());
        EXPECT_LT(n_reused, std::ssize(prompt));
        loop_.begin(prompt);
        while (n_tokens > 0) {
            const auto fresh = loop_.step(n_tokens, &cancel_, [&](std::int64_t, std::int64_t) { store_.keep(); });
            if (fresh.empty()) break;
            n_tokens -= std::ssize(fresh);
            store_.keep();
        }
        return n_reused;
    }
    /// The next call of read_chunk() but n throws.
    void fail_in(std::int64_t n) { kv_.chunks_until_failure = n; }
    /// Removes the last tokens of the text, as a stop rule does.
    void cut(std::int64_t n_tokens) { loop_.truncate(std::ssize(text()) - n_tokens); }
    [[nodiscard]] bool was_cancelled() const { return cancel_; }
    [[nodiscard]] KeptFigures kept() const { return store_.figures(); }
    /// Whether the KV is that of feeding the text to an empty cache.
    [[nodiscard]] bool is_exact() const {
        std::vector<std::uint32_t> states = kv_.reference(sequence_.tokens(), sequence_.n_prompt());
        states.resize(kv_.committed.size());
        return kv_.committed == states;
    }
    [[nodiscard]] const std::vector<TokenId>& text() const { return sequence_.tokens(); }
    [[nodiscard]] std::int64_t n_computed() const { return sequence_.n_computed(); }

    std::int64_t n_computed_tokens = 0;  // of the last turn, in passes that were not cancelled
    std::vector<std::int64_t> losses;    // lengths of prefixes that a target with windows could not keep

private:
    FakeKv kv_;
    FakeTarget target_;
    Sequence sequence_;
    Sampler sampler_;
    ExactVerifier verifier_;
    NoProposer none_;
    GenerationLoop loop_;
    PrefixStore store_;
    std::atomic<bool> cancel_{false};
    std::int64_t passes_left_ = 0;  // until the pass that is cancelled; 0: none is
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
            const TokenId before = n_same < std::ssize(talk.text()) ? talk.text()[n_same] : 0;
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

// Texts that are kept in host memory.

constexpr std::size_t kEnough = std::size_t{1} << 24;

std::vector<TokenId> text_of(TokenId first, std::int64_t n_tokens) {
    std::vector<TokenId> text;
    for (std::int64_t i = 0; i < n_tokens; ++i) text.push_back(static_cast<TokenId>((first + i * i / 3) % 97));
    return text;
}

std::vector<TokenId> and_then(std::vector<TokenId> text, TokenId more) {
    text.push_back(more);
    return text;
}

TEST(PrefixStore, TwoTextsInTurnAreBothKept) {
    for (const bool has_prompt_kernels : {false, true}) {
        Conversation talk({.has_prompt_kernels = has_prompt_kernels}, kEnough);
        const std::vector<TokenId> a = text_of(1, 1500);
        const std::vector<TokenId> b = text_of(2, 1300);
        EXPECT_EQ(talk.turn(a, 4), 0);
        EXPECT_EQ(talk.turn(b, 4), 0);
        // All but the last token; with prompt kernels too, since the border of the prompt is the same.
        EXPECT_EQ(talk.turn(a, 4), 1499);
        EXPECT_TRUE(talk.is_exact());
        EXPECT_EQ(talk.turn(b, 4), 1299);
        EXPECT_TRUE(talk.is_exact());
        EXPECT_EQ(talk.kept().restored_texts, 2);
        EXPECT_EQ(talk.kept().dropped_chunks, 0);
    }
}

// With prompt kernels, rows that were computed as generated are not those of a longer prompt.
TEST(PrefixStore, ALongerPromptComputesWhatWasDecodedAgain) {
    Conversation talk({.has_prompt_kernels = true}, kEnough);
    const std::vector<TokenId> a = text_of(1, 1000);  // its first 512 positions are of prompt kernels
    talk.turn(a, 300);
    const std::vector<TokenId> whole = talk.text();
    talk.turn(text_of(2, 700), 1);
    EXPECT_EQ(talk.turn(and_then(whole, 5), 1), 512);
    EXPECT_TRUE(talk.is_exact());
    talk.turn(text_of(3, 700), 1);
    EXPECT_EQ(talk.turn(and_then(whole, 6), 1), 1300);
    EXPECT_TRUE(talk.is_exact());
}

TEST(PrefixStore, AnEndIsKeptOnlyIfEnoughOfItIsLost) {
    Conversation talk({}, kEnough);
    talk.turn(text_of(1, 300), 1);
    talk.turn(text_of(2, 270), 1);
    EXPECT_EQ(talk.turn(text_of(1, 300), 1), 299);
    talk.turn(text_of(2, 270), 1);  // 14 positions after its chunk: they are computed again
    EXPECT_EQ(talk.n_computed_tokens, 270 - 256);
    EXPECT_TRUE(talk.is_exact());
}

TEST(PrefixStore, ACancelledPromptGoesOnAfterAnotherText) {
    Conversation talk({}, kEnough);
    const std::vector<TokenId> a = text_of(1, 3000);
    talk.turn(a, 1, 4);
    EXPECT_TRUE(talk.was_cancelled());
    talk.turn(text_of(2, 700), 1);
    EXPECT_EQ(talk.turn(a, 3), 3 * 512);
    EXPECT_TRUE(talk.is_exact());
}

// The chunk that no text used for the longest time goes first, and a text keeps its beginning if it does not fit.
TEST(PrefixStore, WhatIsKeptStaysBelowTheLimit) {
    Conversation probe({}, kEnough);
    probe.turn(text_of(1, 300), 1);
    const std::size_t chunk = probe.kept().bytes;
    Conversation talk({}, 4 * chunk);
    talk.turn(text_of(1, 513), 1);
    talk.turn(text_of(2, 513), 1);
    EXPECT_EQ(talk.kept().bytes, 4 * chunk);
    EXPECT_EQ(talk.turn(text_of(1, 513), 1), 512);
    talk.turn(text_of(3, 257), 1);  // takes the place of the end of the second text
    EXPECT_EQ(talk.kept().dropped_chunks, 1);
    EXPECT_EQ(talk.turn(text_of(2, 513), 1), 256);
    talk.turn(text_of(4, 2000), 1);
    EXPECT_EQ(talk.kept().bytes, 4 * chunk);
    talk.turn(text_of(5, 20), 1);
    EXPECT_EQ(talk.turn(text_of(4, 2000), 1), 1024);
    EXPECT_TRUE(talk.is_exact());
    EXPECT_EQ(talk.kept().limit_bytes, 4 * chunk);
}

// A layer with a sliding window has given up what a prefix needs; what was copied before is still there.
TEST(PrefixStore, ADeepCutOfATargetWithWindowsIsRestored) {
    Conversation talk({.window = 100}, kEnough);
    std::vector<TokenId> prompt = text_of(1, 3500);
    talk.turn(prompt, 1);
    prompt.resize(900);
    EXPECT_EQ(talk.turn(prompt, 3), 899);
    EXPECT_TRUE(talk.is_exact());
    EXPECT_THAT(talk.losses, testing::IsEmpty());
}

// A prompt that goes along with a pass leaves a windowed layer with its last chunks alone, so a text can be restored
// only near its end.
TEST(PrefixStore, MissingPartsOfWindowsAreComputedAgain) {
    Conversation talk({.takes_prompts = true, .window = 100}, kEnough);
    const std::vector<TokenId> prompt = text_of(1, 3500);
    talk.turn(prompt, 1);
    talk.turn(text_of(2, 600), 1);
    EXPECT_EQ(talk.turn(prompt, 1), 3499);
    EXPECT_TRUE(talk.is_exact());
    talk.turn(text_of(2, 600), 1);
    std::vector<TokenId> begin(prompt.begin(), prompt.begin() + 1800);
    EXPECT_EQ(talk.turn(begin, 1), 0);
    EXPECT_TRUE(talk.is_exact());
    // Now the parts are there.
    talk.turn(text_of(2, 600), 1);
    EXPECT_EQ(talk.turn(begin, 1), 1799);
    EXPECT_TRUE(talk.is_exact());
}

// Branches of earlier texts, cancelled prompts, cuts, failed copies, with little and much memory. Each answer is that
// of a fresh run.
TEST(PrefixStore, WhatIsKeptChangesNoAnswer) {
    std::int64_t n_restored = 0;
    std::int64_t n_dropped = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](std::int64_t n) {
            return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
        };
        const FakeOptions options{.has_prompt_kernels = below(2) > 0,
                                  .takes_prompts = below(2) > 0,
                                  .window = below(3) == 0 ? 50 + below(400) : 0};
        const std::size_t limit = static_cast<std::size_t>(below(4) == 0 ? kEnough : 6000 * below(24));
        const std::int64_t n_ids = below(2) > 0 ? options.vocab : 2;  // with few ids, many chunks are equal
        Conversation talk(options, limit);
        std::vector<std::vector<TokenId>> texts{{}};
        for (int turn = 0; turn < 7; ++turn) {
            const std::vector<TokenId>& base = texts[below(std::ssize(texts))];
            const std::int64_t n_same = below(2) > 0 ? std::ssize(base) : below(std::ssize(base) + 1);
            std::vector<TokenId> prompt(base.begin(), base.begin() + n_same);
            for (std::int64_t i = below(3) > 0 ? below(800) : below(20); i >= 0; --i)
                prompt.push_back(static_cast<TokenId>(below(n_ids)));
            if (std::ssize(prompt) > 3800) prompt.resize(3800);
            const std::int64_t n_tokens = 1 + (below(4) == 0 ? below(300) : below(20));
            const std::int64_t cancel_in = below(4) == 0 ? 1 + below(6) : 0;
            if (below(20) == 0) talk.fail_in(1 + below(8));
            const std::string where = fmt::format("history {}, turn {}", seed, turn);
            std::int64_t n_reused = 0;
            try {
                n_reused = talk.turn(prompt, n_tokens, cancel_in);
            } catch (const IoError&) {
                continue;
            }
            talk.fail_in(0);
            ASSERT_TRUE(talk.is_exact()) << where;
            ASSERT_LE(talk.kept().bytes, limit) << where;
            texts.push_back(talk.text());
            if (talk.was_cancelled()) continue;
            ASSERT_EQ(n_reused + talk.n_computed_tokens, std::ssize(prompt) + n_tokens - 1) << where;
            Conversation fresh(options);
            fresh.turn(prompt, n_tokens);
            ASSERT_EQ(talk.text(), fresh.text()) << where;
            if (below(4) == 0) talk.cut(below(n_tokens));
        }
        n_restored += talk.kept().restored_texts;
        n_dropped += talk.kept().dropped_chunks;
    }
    EXPECT_GT(n_restored, 1000);
    EXPECT_GT(n_dropped, 1000);
}

// Recurrent layers: a text goes on from positions after which their states are kept.

constexpr FakeOptions kRecurrent{.checkpoints = 64};

// Each prompt is the text before with a question; between two, a title is asked for.
TEST(PrefixStore, TitlesBetweenTheTurnsOfARecurrentTextCostNothing) {
    for (const bool has_prompt_kernels : {false, true}) {
        FakeOptions options = kRecurrent;
        options.has_prompt_kernels = has_prompt_kernels;
        Conversation talk(options, kEnough);
        std::vector<TokenId> prompt = text_of(1, 700);
        EXPECT_EQ(talk.turn(prompt, 300), 0);
        for (int turn = 1; turn < 5; ++turn) {
            const std::int64_t n_before = std::ssize(prompt);
            prompt = talk.text();
            const std::int64_t n_text = std::ssize(prompt);
            for (int i = 0; i < 40; ++i) prompt.push_back(static_cast<TokenId>(turn + i));
            EXPECT_EQ(talk.turn(text_of(static_cast<TokenId>(50 + turn), 400), 20), 0);
            const std::int64_t n_reused = talk.turn(prompt, 300);
            if (has_prompt_kernels) {
                EXPECT_EQ(n_reused, (n_before - 1) / 512 * 512);
            } else {
                EXPECT_EQ(n_reused, n_text - 1);
            }
            EXPECT_TRUE(talk.is_exact());
            EXPECT_EQ(n_reused + talk.n_computed_tokens, std::ssize(prompt) + 300 - 1);
        }
        EXPECT_EQ(talk.kept().restored_texts, 4);
        // Two positions of the conversation, and one of each title: its end is near the end of its prompt. With prompt
        // kernels, there is one more, where a longer prompt has other phases.
        EXPECT_EQ(talk.kept().n_states, (has_prompt_kernels ? 3 : 2) + 4);
        EXPECT_EQ(talk.kept().dropped_states, 0);
    }
}

// A prompt that leaves the answer out goes on shortly before the end of the prompt before, in place or restored.
TEST(PrefixStore, AnAnswerOfARecurrentTextIsGeneratedAgain) {
    Conversation talk(kRecurrent, kEnough);
    const std::vector<TokenId> prompt = text_of(1, 1000);
    talk.turn(prompt, 300);
    EXPECT_EQ(talk.turn(prompt, 300), 984);
    EXPECT_EQ(talk.kept().n_states, 0);  // the text goes on
    talk.turn(text_of(2, 300), 1);
    EXPECT_EQ(talk.kept().n_states, 2);
    EXPECT_EQ(talk.turn(prompt, 3), 984);
    EXPECT_EQ(talk.kept().restored_texts, 1);
    EXPECT_TRUE(talk.is_exact());
}

// Texts that begin alike branch where the first of them did.
TEST(PrefixStore, ABranchOfRecurrentTextsIsKept) {
    Conversation talk(kRecurrent, kEnough);
    const auto branch = [](TokenId which) {
        std::vector<TokenId> text = text_of(1, 1400);
        const std::vector<TokenId> more = text_of(which, 900);
        text.insert(text.end(), more.begin(), more.end());
        return text;
    };
    talk.turn(branch(2), 2);
    EXPECT_EQ(talk.turn(branch(3), 2), 1024);
    talk.turn(text_of(5, 900), 2);  // its place in the target is lost
    EXPECT_EQ(talk.turn(branch(4), 2), 1024);
    EXPECT_EQ(talk.kept().restored_texts, 1);
    EXPECT_EQ(talk.turn(branch(3), 2), 2284);
    EXPECT_TRUE(talk.is_exact());
}

TEST(PrefixStore, StatesCountAgainstTheLimit) {
    Conversation probe(kRecurrent, kEnough);
    const std::size_t chunk = probe.kept().chunk_bytes;
    const std::size_t states = probe.kept().states_bytes;
    EXPECT_GT(states, 4096U);
    const std::vector<TokenId> a = text_of(1, 1300);
    const std::vector<TokenId> b = text_of(2, 200);
    for (const auto& [limit, n_again] : std::vector<std::pair<std::size_t, std::int64_t>>{{states - 1, 0},
                                                                                          {states, 0},
                                                                                          {states + chunk - 1, 0},
                                                                                          {states + chunk, 0},
                                                                                          {states + 2 * chunk - 1, 0},
                                                                                          {states + 2 * chunk, 512},
                                                                                          {states + 4 * chunk, 1024},
                                                                                          {states + 7 * chunk, 1284}}) {
        Conversation talk(kRecurrent, limit);
        talk.turn(a, 5);
        EXPECT_LE(talk.kept().bytes, limit - std::min(limit, states)) << limit;  // room is left for states
        talk.turn(b, 5);
        EXPECT_EQ(talk.kept().n_states, n_again > 0 ? 1 : 0) << limit;
        EXPECT_LE(talk.kept().bytes, limit);
        EXPECT_EQ(talk.turn(a, 5), n_again) << limit;
        EXPECT_TRUE(talk.is_exact());
        EXPECT_LE(talk.kept().bytes, limit);
    }
}

// As WhatIsKeptChangesNoAnswer, for recurrent targets with few or many checkpoints.
TEST(PrefixStore, WhatIsKeptOfRecurrentTextsChangesNoAnswer) {
    std::int64_t n_restored = 0;
    std::int64_t n_dropped = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](std::int64_t n) {
            return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
        };
        const FakeOptions options{.has_prompt_kernels = below(2) > 0,
                                  .takes_prompts = below(2) > 0,
                                  .window = below(5) == 0 ? 50 + below(400) : 0,
                                  .checkpoints = below(2) > 0 ? 64 : below(4)};
        const std::size_t limit = static_cast<std::size_t>(below(4) == 0 ? kEnough : 6000 * below(24));
        const std::int64_t n_ids = below(2) > 0 ? options.vocab : 2;
        Conversation talk(options, limit);
        std::vector<std::vector<TokenId>> texts{{}};
        for (int turn = 0; turn < 9; ++turn) {
            const std::vector<TokenId>& base = texts[below(std::ssize(texts))];
            const std::int64_t n_same = below(2) > 0 ? std::ssize(base) : below(std::ssize(base) + 1);
            std::vector<TokenId> prompt(base.begin(), base.begin() + n_same);
            for (std::int64_t i = below(3) > 0 ? below(900) : below(20); i >= 0; --i)
                prompt.push_back(static_cast<TokenId>(below(n_ids)));
            if (std::ssize(prompt) > 3700) prompt.resize(3700);
            const std::int64_t n_tokens = 1 + (below(3) == 0 ? below(350) : below(20));
            const std::int64_t cancel_in = below(4) == 0 ? 1 + below(6) : 0;
            if (below(20) == 0) talk.fail_in(1 + below(8));
            const std::string where = fmt::format("history {}, turn {}", seed, turn);
            std::int64_t n_reused = 0;
            try {
                n_reused = talk.turn(prompt, n_tokens, cancel_in);
            } catch (const IoError&) {
                continue;
            }
            talk.fail_in(0);
            ASSERT_TRUE(talk.is_exact()) << where;
            ASSERT_LE(talk.kept().bytes, limit) << where;
            texts.push_back(talk.text());
            if (talk.was_cancelled()) continue;
            ASSERT_EQ(n_reused + talk.n_computed_tokens, std::ssize(prompt) + n_tokens - 1) << where;
            Conversation fresh(options);
            fresh.turn(prompt, n_tokens);
            ASSERT_EQ(talk.text(), fresh.text()) << where;
            if (below(4) == 0) talk.cut(below(n_tokens));
        }
        n_restored += talk.kept().restored_texts;
        n_dropped += talk.kept().dropped_states;
    }
    EXPECT_GT(n_restored, 1000);
    EXPECT_GT(n_dropped, 1000);
}

}  // namespace
}  // namespace slipstream::tools
