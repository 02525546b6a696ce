// The loop: any guesser gives the plain output, greedily and sampled, and every limit holds in the middle of a pass.
#include "runtime/generation_loop.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

// Proposes random trees, seeded with what plain decoding said (right with probability `hit`).
class ScriptedGuesser final : public Guesser {
public:
    ScriptedGuesser(std::vector<TokenId> future, double hit, std::uint32_t seed)
        : future_(std::move(future)), hit_(hit), random_(seed) {}
    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        std::uniform_real_distribution<double> uniform;
        for (int attempt = 0; attempt < 500 && tree.size() < limits.budget && limits.max_depth > 0; ++attempt) {
            const auto parent = static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(tree.size()));
            if (tree.depth(parent) >= limits.max_depth) continue;
            const std::size_t at = n_text_ + static_cast<std::size_t>(tree.depth(parent));
            const bool right = at < future_.size() && uniform(random_) < hit_;
            tree.add(parent, right ? future_[at] : static_cast<TokenId>(random_() % 97));
        }
    }
    void observe(const Observation& observation) override {
        n_text_ = observation.text.size();
        n_observed += observation.n_new;
        if (observation.tree != nullptr) {
            EXPECT_EQ(observation.logits.rows(), observation.tree->size());
            for (std::size_t i = 0; i < observation.accepted.size(); ++i)
                EXPECT_EQ(observation.text[n_text_ - static_cast<std::size_t>(observation.n_new) - 1 + i],
                          observation.tree->token(observation.accepted[i]));
        }
    }
    std::int64_t n_observed = 0;

private:
    std::vector<TokenId> future_;  // prompt and what follows
    double hit_;
    std::mt19937 random_;
    std::size_t n_text_ = 0;
};

struct Generated {
    std::vector<TokenId> text;
    int passes = 0;
};

Generated generate(const std::vector<TokenId>& prompt, std::int64_t n_tokens, const SamplerOptions& sampling,
                   Guesser& guesser, std::int64_t budget, std::vector<TokenId> end_tokens = {},
                   std::int64_t context = 2048) {
    const auto files = make_tiny_model({.context_tokens = context});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_shape(), model.config().n_layers, context, scratch_nodes_for(budget));
    Forward forward(model, forward_limits_for(budget));
    Sampler sampler(sampling, model.config().vocab);
    GenerationLoop loop(forward, cache, sampler, guesser, {.budget = budget, .end_tokens = std::move(end_tokens)});
    loop.begin(prompt);
    Generated run;
    for (std::int64_t left = n_tokens; left > 0;) {
        const auto fresh = loop.step(left);
        if (fresh.empty()) break;
        EXPECT_LE(static_cast<std::int64_t>(fresh.size()), left);
        EXPECT_EQ(cache.n_committed() + 1, static_cast<std::int64_t>(loop.text().size()));
        left -= static_cast<std::int64_t>(fresh.size());
        ++run.passes;
    }
    run.text = loop.text();
    return run;
}

std::vector<TokenId> prompt_of(std::size_t n) {
    std::vector<TokenId> prompt(n);
    for (std::size_t i = 0; i < n; ++i) prompt[i] = static_cast<TokenId>((i * 31 + 7) % 97);
    return prompt;
}

TEST(GenerationLoop, AnyGuesserGivesThePlainOutput) {
    const SamplerOptions settings[] = {
        {.temperature = 0.0},
        {.temperature = 0.8, .seed = 5},
        {.temperature = 1.2, .top_k = 0, .top_p = 0.9, .repeat_penalty = 1.3, .seed = 6}};
    for (const SamplerOptions& sampling : settings) {
        for (const std::size_t n_prompt : {std::size_t{1}, std::size_t{255}, std::size_t{520}}) {
            NoGuesser none;
            const Generated plain = generate(prompt_of(n_prompt), 60, sampling, none, 1);
            ASSERT_EQ(plain.text.size(), n_prompt + 60);
            EXPECT_EQ(plain.passes, 60);
            for (const std::int64_t budget : {2, 9, 64}) {
                for (const double hit : {0.0, 0.5, 1.0}) {
                    ScriptedGuesser guesser(plain.text, hit, 3);
                    const Generated guessed = generate(prompt_of(n_prompt), 60, sampling, guesser, budget);
                    EXPECT_EQ(guessed.text, plain.text)
                        << "T " << sampling.temperature << ", budget " << budget << ", hit " << hit;
                    EXPECT_EQ(guesser.n_observed, static_cast<std::int64_t>(guessed.text.size()));
                    if (hit == 1.0) {
                        EXPECT_LT(guessed.passes, plain.passes) << "guesses that are right must save passes";
                    }
                }
            }
        }
    }
}

TEST(GenerationLoop, EndTokenStopsInTheMiddleOfAPass) {
    NoGuesser none;
    const Generated plain = generate(prompt_of(5), 40, {.temperature = 0.9, .seed = 1}, none, 1);
    const TokenId end = plain.text[5 + 17];
    const auto first = std::find(plain.text.begin() + 5, plain.text.end(), end);
    const std::vector<TokenId> expected(plain.text.begin(), first + 1);
    ScriptedGuesser oracle(plain.text, 1.0, 2);
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_shape(), 2, 2048, scratch_nodes_for(64));
    Forward forward(model, forward_limits_for(64));
    Sampler sampler({.temperature = 0.9, .seed = 1}, model.config().vocab);
    GenerationLoop loop(forward, cache, sampler, oracle, {.budget = 64, .end_tokens = {end}});
    loop.begin(prompt_of(5));
    while (loop.text().back() != end || loop.text().size() == 5) ASSERT_FALSE(loop.step(100).empty());
    EXPECT_EQ(loop.text(), expected);
}

TEST(GenerationLoop, TheContextIsFilledToItsLastTokenAndNotBeyond) {
    NoGuesser none;
    const Generated plain = generate(prompt_of(250), 1000, {.temperature = 0.0}, none, 1, {}, 300);
    EXPECT_EQ(plain.text.size(), 300U);
    ScriptedGuesser oracle(plain.text, 0.7, 2);
    EXPECT_EQ(generate(prompt_of(250), 1000, {.temperature = 0.0}, oracle, 33, {}, 300).text, plain.text);
    EXPECT_EQ(generate(prompt_of(299), 1000, {.temperature = 0.0}, none, 1, {}, 300).text.size(), 300U);
    try {
        generate(prompt_of(300), 1, {}, none, 1, {}, 300);
        FAIL() << "no room";
    } catch (const RequestError& error) {
        EXPECT_THAT(error.what(),
                    testing::HasSubstr("the prompt is 300 tokens long and needs a context of 301 at least; it is 300"));
    }
    EXPECT_THROW(generate({}, 1, {}, none, 1), RequestError);
}

TEST(GenerationLoop, CancelChangesNothingAndGenerationGoesOn) {
    NoGuesser none;
    const Generated plain = generate(prompt_of(1100), 8, {.temperature = 0.0}, none, 1);
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_shape(), 2, 2048, scratch_nodes_for(1));
    Forward forward(model, forward_limits_for(1));
    Sampler sampler({.temperature = 0.0}, model.config().vocab);
    GenerationLoop loop(forward, cache, sampler, none, {.budget = 1});
    loop.begin(prompt_of(1100));
    std::atomic<bool> cancel{true};
    EXPECT_FALSE(loop.prefill({}, &cancel));
    EXPECT_TRUE(loop.step(8, &cancel).empty());
    cancel = false;
    std::vector<std::int64_t> progress;
    EXPECT_TRUE(loop.prefill([&](std::int64_t done, std::int64_t total) {
        progress.push_back(done);
        EXPECT_EQ(total, 1100);
    }));
    EXPECT_EQ(progress, (std::vector<std::int64_t>{256, 512, 768, 1024})) << "after each of two layers";
    cancel = true;
    EXPECT_TRUE(loop.step(8, &cancel).empty());
    cancel = false;
    while (loop.text().size() < 1108) ASSERT_FALSE(loop.step(8, &cancel).empty());
    EXPECT_EQ(loop.text(), plain.text);
}

}  // namespace
}  // namespace slipstream
