// Models with delta nets: what a prompt reuses of earlier texts gives the text and logits of an empty cache, on one
// device and several, streamed and resident, with draft tokens, dense and as mixtures.
#include <atomic>
#include <memory>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"
#include "tools/engine/prefix_store.h"

namespace slipstream::tools {
namespace {

constexpr std::int64_t kLayers = 4;  // delta net, delta net, attention, delta net

std::unique_ptr<ModelFiles> hybrid(std::int64_t n_experts = 0) {
    return make_tiny_model({.n_layers = kLayers,
                            .context_tokens = SplitEngine::kContext,
                            .weight_type = DType::BF16,
                            .head_norms = true,
                            .delta_nets = true,
                            .n_experts = n_experts});
}

/// A conversation on an engine, which other conversations have used before.
class Talk {
public:
    Talk(SplitEngine& engine, std::size_t limit_bytes)
        : sequence_(*engine.target),
          sampler_(kTinySampling, kTinyVocab),
          verifier_(sampler_),
          store_(sequence_, limit_bytes) {
        engine.target->truncate(0);
    }

    /// Generates `n_tokens` over trees whose draft tokens are often those of `expected`; plainly if it is empty. The
    /// prompt is cancelled when it has reported progress `cancel_in` times (0: never).
    Generated turn(const std::vector<TokenId>& prompt, std::int64_t n_tokens, std::vector<TokenId> expected = {},
                   int cancel_in = 0) {
        const std::int64_t budget = expected.empty() ? 1 : SplitEngine::kBudget;
        NoProposer nothing;
        ScriptedProposer scripted(std::move(expected), 0.7, 3);
        LogitLog log(budget > 1 ? static_cast<Proposer&>(scripted) : nothing);
        GenerationLoop loop(sequence_, verifier_, log, {.budget = budget, .end_tokens = {}});
        std::atomic<bool> cancel = false;
        n_reused = store_.reuse(prompt);
        loop.begin(prompt);
        const PromptProgress progress = [&](std::int64_t, std::int64_t) {
            if (cancel_in > 0 && --cancel_in == 0) cancel = true;
            store_.keep();
        };
        while (n_tokens > 0) {
            const auto fresh = loop.step(n_tokens, &cancel, progress);
            if (fresh.empty()) break;
            n_tokens -= std::ssize(fresh);
            store_.keep();
        }
        return {loop.text(), log.rows};
    }
    [[nodiscard]] KeptFigures kept() const { return store_.figures(); }

    std::int64_t n_reused = 0;  // positions of the last prompt that were not computed

private:
    Sequence sequence_;
    Sampler sampler_;
    ExactVerifier verifier_;
    PrefixStore store_;
};

/// Engines of a model, and one that computes each prompt from its start.
struct Engines {
    explicit Engines(std::int64_t n_experts) : files(hybrid(n_experts)) {
        all.push_back(std::make_unique<SplitEngine>(*files, std::vector{kLayers}, Streams::Nothing));
        all.push_back(std::make_unique<SplitEngine>(*files, std::vector<std::int64_t>{1, 3}, Streams::Nothing));
        all.push_back(std::make_unique<SplitEngine>(*files, std::vector{kLayers}, Streams::Both));
        all.push_back(std::make_unique<SplitEngine>(*files, std::vector<std::int64_t>{2, 2}, Streams::Both,
                                                    std::vector<CpuDeviceOptions>{}, std::size_t{2} << 20));
        if (n_experts > 0)
            all.push_back(
                std::make_unique<SplitEngine>(*files, std::vector{kLayers}, Streams::Weights, ExpertSlots(2)));
    }
    Generated fresh(const std::vector<TokenId>& prompt, std::int64_t n_tokens) {
        whole.target->truncate(0);
        return plainly(*whole.target, prompt, n_tokens);
    }
    std::unique_ptr<ModelFiles> files;
    SplitEngine whole{*files, {kLayers}, Streams::Nothing};
    std::vector<std::unique_ptr<SplitEngine>> all{};
};

// Each prompt is the text before with a question; between two, a title is asked for. Tokens that were drafted may not
// be in the states yet, so these are computed again.
TEST(PrefixStoreHybrid, TitlesBetweenTurnsLeaveTheConversation) {
    for (const std::int64_t n_experts : {0, 5}) {
        Engines engines(n_experts);
        for (std::size_t which = 0; which < engines.all.size(); ++which) {
            SCOPED_TRACE(testing::Message() << n_experts << " experts, engine " << which);
            for (const bool drafts : {false, true}) {
                Talk talk(*engines.all[which], std::size_t{16} << 20);
                std::vector<TokenId> prompt = prompt_of(600);
                std::int64_t n_before = 0;
                for (int turn = 0; turn < 5; ++turn) {
                    const Generated expected = engines.fresh(prompt, 30);
                    EXPECT_EQ(talk.turn(prompt, 30, drafts ? expected.text : std::vector<TokenId>{}), expected) << turn;
                    // What is computed again are an answer, if it is short, and the end of a prompt.
                    EXPECT_GE(talk.n_reused, n_before == 0 ? 0 : n_before - 30 - 17) << turn;
                    EXPECT_EQ(talk.kept().restored_texts, turn);
                    std::vector<TokenId> title(static_cast<std::size_t>(280 + turn), static_cast<TokenId>(turn + 1));
                    EXPECT_EQ(talk.turn(title, 3), engines.fresh(title, 3));
                    EXPECT_EQ(talk.n_reused, 0);
                    prompt = expected.text;
                    n_before = std::ssize(prompt);
                    for (int i = 0; i < 20; ++i) prompt.push_back(static_cast<TokenId>(turn * 7 + i));
                }
            }
        }
    }
}

// Branches of earlier texts, cancelled prompts, cuts and evictions. Each answer, and the logits of all its tokens, are
// those of an empty cache.
TEST(PrefixStoreHybrid, WhatIsKeptChangesNoBit) {
    std::int64_t n_restored = 0;
    std::int64_t n_dropped = 0;
    Engines dense(0);
    Engines mixture(5);
    const int n_histories = 300;
    for (unsigned seed = 0; seed < n_histories; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](std::int64_t n) {
            return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
        };
        Engines& engines = below(3) == 0 ? mixture : dense;
        SplitEngine& engine = *engines.all[below(std::ssize(engines.all))];
        const auto limit = static_cast<std::size_t>(below(2) == 0 ? std::int64_t{16} << 20 : 40'000 * below(16));
        const std::int64_t n_ids = below(2) > 0 ? kTinyVocab : 2;
        Talk talk(engine, limit);
        std::vector<std::vector<TokenId>> texts{{}};
        for (int turn = 0; turn < 7; ++turn) {
            const std::string where = fmt::format("history {}, turn {}", seed, turn);
            // Mostly a text before the last one.
            const std::int64_t n_texts = std::max<std::int64_t>(std::ssize(texts) - (below(4) > 0 ? 1 : 0), 1);
            const std::vector<TokenId>& base = texts[below(n_texts)];
            const std::int64_t n_same = below(3) > 0 ? std::ssize(base) : below(std::ssize(base) + 1);
            std::vector<TokenId> prompt(base.begin(), base.begin() + n_same);
            for (std::int64_t i = n_same < 200 ? 200 + below(400) : below(60); i >= 0; --i)
                prompt.push_back(static_cast<TokenId>(below(n_ids)));
            if (std::ssize(prompt) > 1200) prompt.resize(1200);
            const std::int64_t n_tokens = 1 + below(12);
            const Generated expected = engines.fresh(prompt, n_tokens);
            if (below(6) == 0) {
                const Generated part = talk.turn(prompt, n_tokens, {}, 1 + static_cast<int>(below(6)));
                texts.push_back(part.text);
                if (std::ssize(part.text) < std::ssize(expected.text)) continue;
            }
            const Generated found = talk.turn(prompt, n_tokens, below(2) > 0 ? expected.text : std::vector<TokenId>{});
            ASSERT_EQ(found.text, expected.text) << where;
            ASSERT_TRUE(same_bits(found.logits, expected.logits)) << where;
            ASSERT_LE(talk.kept().bytes, limit) << where;
            texts.push_back(found.text);
        }
        n_restored += talk.kept().restored_texts;
        n_dropped += talk.kept().dropped_states;
    }
    EXPECT_GT(n_restored, n_histories / 2);
    EXPECT_GT(n_dropped, n_histories / 2);
}

}  // namespace
}  // namespace slipstream::tools
