// The loop: any proposer gives the plain output, greedily and sampled, and every limit holds in the middle of a pass.
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "tests/support/error_text.h"
#include "tests/support/fake_target.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

struct Generated {
    std::vector<TokenId> text;
    int passes = 0;
};

Generated generate(const std::vector<TokenId>& prompt, std::int64_t n_tokens, const SamplerOptions& sampling,
                   Proposer& proposer, std::int64_t budget, std::vector<TokenId> end_tokens = {},
                   std::int64_t context = 2048) {
    const auto files = make_tiny_model({.context_tokens = context});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), context, scratch_nodes_for(budget));
    Forward forward(model, forward_limits_for(budget));
    Sampler sampler(sampling, model.config().vocab);
    ExactVerifier verifier(sampler);
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, proposer, {.budget = budget, .end_tokens = std::move(end_tokens)});
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

TEST(GenerationLoop, AnyProposerGivesThePlainOutput) {
    const SamplerOptions settings[] = {
        {.temperature = 0.0},
        {.temperature = 0.8, .seed = 5},
        {.temperature = 1.2, .top_k = 0, .top_p = 0.9, .repeat_penalty = 1.3, .seed = 6},
        // What a node's own path holds counts, never the committed text alone (E4).
        {.temperature = 0.0, .repeat_window = 8, .presence_penalty = 2.0, .frequency_penalty = 1.5},
        {.temperature = 0.9,
         .presence_penalty = 0.5,
         .frequency_penalty = 0.7,
         .bias = {{5, 3.0F}, {7, -std::numeric_limits<float>::infinity()}},
         .seed = 8}};
    for (const SamplerOptions& sampling : settings) {
        for (const std::size_t n_prompt : {std::size_t{1}, std::size_t{255}, std::size_t{520}}) {
            NoProposer none;
            const Generated plain = generate(prompt_of(n_prompt), 60, sampling, none, 1);
            ASSERT_EQ(plain.text.size(), n_prompt + 60);
            EXPECT_EQ(plain.passes, 60);
            for (const std::int64_t budget : {2, 9, 64}) {
                for (const double hit : {0.0, 0.5, 1.0}) {
                    ScriptedProposer proposer(plain.text, hit, 3);
                    const Generated guessed = generate(prompt_of(n_prompt), 60, sampling, proposer, budget);
                    EXPECT_EQ(guessed.text, plain.text)
                        << "T " << sampling.temperature << ", budget " << budget << ", hit " << hit;
                    EXPECT_EQ(proposer.n_observed, static_cast<std::int64_t>(guessed.text.size()));
                    if (hit == 1.0) {
                        EXPECT_LT(guessed.passes, plain.passes) << "guesses that are right must save passes";
                    }
                }
            }
        }
    }
}

/// Keeps the pass times that the loop reports.
class TimedProposer final : public Proposer {
public:
    explicit TimedProposer(Proposer& proposer) : proposer_(proposer) {}
    void propose(TokenTree& tree, const ProposalLimits& limits) override { proposer_.propose(tree, limits); }
    void observe(const Observation& observation) override {
        pass_seconds.push_back(observation.pass_seconds);
        proposer_.observe(observation);
    }

    std::vector<double> pass_seconds;

private:
    Proposer& proposer_;
};

TEST(GenerationLoop, TellsTheProposerWhatAPassTook) {
    NoProposer none;
    const Generated plain = generate(prompt_of(30), 30, {.temperature = 0.0}, none, 1);
    ScriptedProposer scripted(plain.text, 0.8, 3);
    TimedProposer timed(scripted);
    const Generated guessed = generate(prompt_of(30), 30, {.temperature = 0.0}, timed, 8);
    ASSERT_EQ(std::ssize(timed.pass_seconds), guessed.passes + 1);
    EXPECT_EQ(timed.pass_seconds[0], 0.0) << "the prompt as such";
    EXPECT_EQ(timed.pass_seconds[1], 0.0) << "a pass over the prompt and a tree says nothing of trees";
    for (std::size_t i = 2; i < timed.pass_seconds.size(); ++i) {
        EXPECT_GT(timed.pass_seconds[i], 0.0);
        EXPECT_LT(timed.pass_seconds[i], 10.0);
    }
}

/// Finds logits that are no numbers somewhere down the path, as ExactVerifier would: after the text has grown.
class FailingVerifier final : public Verifier {
public:
    explicit FailingVerifier(Sampler& sampler) : verifier_(sampler) {}
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override {
        verifier_.verify(tree, logits, limits, text, accepted);
        if (fails) throw Unsupported("the model's logits are not numbers");
    }

    bool fails = false;

private:
    ExactVerifier verifier_;
};

TEST(GenerationLoop, AWalkThatFailsLeavesTheTextAsItWas) {
    NoProposer none;
    const Generated plain = generate(prompt_of(12), 30, {.temperature = 0.0}, none, 1);
    ScriptedProposer oracle(plain.text, 1.0, 2);
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(16));
    Forward forward(model, forward_limits_for(16));
    Sampler sampler({.temperature = 0.0}, model.config().vocab);
    FailingVerifier verifier(sampler);
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, oracle, {.budget = 16});
    loop.begin(prompt_of(12));
    ASSERT_FALSE(loop.step(5).empty());
    const std::vector<TokenId> before = loop.text();
    verifier.fails = true;
    EXPECT_THROW(static_cast<void>(loop.step(10)), Unsupported);
    EXPECT_EQ(loop.text(), before);
    EXPECT_EQ(cache.n_nodes(), 0);
    verifier.fails = false;
    while (loop.text().size() < plain.text.size())
        ASSERT_FALSE(loop.step(static_cast<std::int64_t>(plain.text.size() - loop.text().size())).empty());
    EXPECT_EQ(loop.text(), plain.text);
}

// Weights may give a draft token no finite numbers that plain decoding never meets. Other errors end the step.
TEST(GenerationLoop, APassThatItsDraftTokensFailIsRunAgainWithoutThem) {
    for (const bool takes_prompts : {false, true}) {
        for (const std::size_t n_prompt : {std::size_t{30}, std::size_t{600}}) {
            FakeKv kv{.options = {.takes_prompts = takes_prompts}};
            FakeTarget target(kv);
            Sampler sampler({.temperature = 0.8, .seed = 5}, kv.options.vocab);
            ExactVerifier verifier(sampler);
            const auto text_of = [&](Proposer& proposer, std::int64_t budget) {
                target.truncate(0);
                Sequence sequence(target);
                GenerationLoop loop(sequence, verifier, proposer, {.budget = budget, .end_tokens = {}});
                loop.begin(prompt_of(n_prompt));
                while (loop.text().size() < n_prompt + 60)
                    if (loop.step(static_cast<std::int64_t>(n_prompt + 60 - loop.text().size())).empty()) break;
                return loop.text();
            };
            NoProposer none;
            const std::vector<TokenId> plain = text_of(none, 1);
            int n_failed = 0;
            target.on_begin = [&](const TargetPass& pass) {
                for (const std::int32_t row : pass.logit_tokens)
                    if (row != pass.logit_tokens.front() && pass.tokens[row] % 16 == 3) {
                        ++n_failed;
                        throw FormatError("numbers that are not finite");
                    }
            };
            ScriptedProposer proposer(plain, 0.5, 3);
            EXPECT_EQ(text_of(proposer, 9), plain);
            EXPECT_GT(n_failed, 5);
            EXPECT_LT(n_failed, proposer.n_proposed);
            target.on_begin = [&](const TargetPass&) { throw FormatError("the text's own"); };
            EXPECT_EQ(error_text<FormatError>([&] { static_cast<void>(text_of(proposer, 9)); }), "the text's own");
            EXPECT_EQ(target.n_nodes(), 0);
            n_failed = 0;
            target.on_begin = [&](const TargetPass& pass) {
                if (pass.logit_tokens.size() < 2) return;
                ++n_failed;
                throw IoError("a copy");
            };
            EXPECT_EQ(error_text<IoError>([&] { static_cast<void>(text_of(proposer, 9)); }), "a copy");
            EXPECT_EQ(n_failed, 1);
        }
    }
}

TEST(GenerationLoop, EndTokenStopsInTheMiddleOfAPass) {
    NoProposer none;
    const Generated plain = generate(prompt_of(5), 40, {.temperature = 0.9, .seed = 1}, none, 1);
    const TokenId end = plain.text[5 + 17];
    const auto first = std::find(plain.text.begin() + 5, plain.text.end(), end);
    const std::vector<TokenId> expected(plain.text.begin(), first + 1);
    ScriptedProposer oracle(plain.text, 1.0, 2);
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(64));
    Forward forward(model, forward_limits_for(64));
    Sampler sampler({.temperature = 0.9, .seed = 1}, model.config().vocab);
    ExactVerifier verifier(sampler);
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, oracle, {.budget = 64, .end_tokens = {end}});
    loop.begin(prompt_of(5));
    while (loop.text().back() != end || loop.text().size() == 5) ASSERT_FALSE(loop.step(100).empty());
    EXPECT_EQ(loop.text(), expected);
}

TEST(GenerationLoop, TheContextIsFilledToItsLastTokenAndNotBeyond) {
    NoProposer none;
    const Generated plain = generate(prompt_of(250), 1000, {.temperature = 0.0}, none, 1, {}, 300);
    EXPECT_EQ(plain.text.size(), 300U);
    ScriptedProposer oracle(plain.text, 0.7, 2);
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
    NoProposer none;
    const Generated plain = generate(prompt_of(1100), 8, {.temperature = 0.0}, none, 1);
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(1));
    Forward forward(model, forward_limits_for(1));
    Sampler sampler({.temperature = 0.0}, model.config().vocab);
    ExactVerifier verifier(sampler);
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, none, {.budget = 1});
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

// At every cut, into the generated part and into the prompt, in the cached pieces and behind them.
TEST(GenerationLoop, ATruncatedTextGoesOnAsIfItHadNeverBeenLonger) {
    const SamplerOptions sampling{.temperature = 0.9, .repeat_penalty = 1.2, .seed = 4};
    NoProposer none;
    const Generated plain = generate(prompt_of(520), 30, sampling, none, 1);
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    for (const std::size_t keep : {std::size_t{1}, std::size_t{511}, std::size_t{513}, std::size_t{520},
                                   std::size_t{521}, std::size_t{537}, plain.text.size()}) {
        ScriptedProposer oracle(plain.text, 0.9, 8);
        KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(16));
        Forward forward(model, forward_limits_for(16));
        Sampler sampler(sampling, model.config().vocab);
        ExactVerifier verifier(sampler);
        RankTarget target(forward, cache);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, oracle, {.budget = 16});
        loop.begin(prompt_of(520));
        const auto fill = [&] {
            while (loop.text().size() < plain.text.size())
                ASSERT_FALSE(loop.step(static_cast<std::int64_t>(plain.text.size() - loop.text().size())).empty());
        };
        fill();
        ASSERT_EQ(loop.text(), plain.text);
        loop.truncate(static_cast<std::int64_t>(keep));
        EXPECT_EQ(loop.text(),
                  std::vector<TokenId>(plain.text.begin(), plain.text.begin() + static_cast<std::ptrdiff_t>(keep)));
        EXPECT_EQ(cache.n_committed(), static_cast<std::int64_t>(keep) - 1);
        EXPECT_EQ(oracle.n_observed, static_cast<std::int64_t>(keep));
        if (keep < 520) continue;  // the rest of the prompt would be generated
        fill();
        EXPECT_EQ(loop.text(), plain.text) << "cut to " << keep;
    }
}

}  // namespace
}  // namespace slipstream
