// The self-check: silent where passes over trees are exact, for every tree; loud at a single wrong bit of a logit or of
// a row of keys and values; and a pass that failed it leaves no trace.
#include "runtime/loop/self_check.h"
#include "runtime/loop/loop_needs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/device_self_check.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

/// The walk of E2, with a hand in the works: `tamper` is called between the pass and the check.
class TamperedVerifier final : public Verifier {
public:
    using Tamper = std::function<void(const TokenTree&, const ConstTensorView&, std::span<const TreeNode>)>;

    explicit TamperedVerifier(Sampler& sampler) : verifier_(sampler) {}
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override {
        verifier_.verify(tree, logits, limits, text, accepted);
        if (tamper) tamper(tree, logits.view(), accepted);
    }

    Tamper tamper;

private:
    ExactVerifier verifier_;
};

class SelfChecked {
public:
    SelfChecked(std::int64_t budget, const SamplerOptions& sampling, std::vector<TokenId> future, double hit,
                DType weight_type = DType::F32, std::int64_t check_tokens = kPrefillChunkTokens,
                DType kv_dtype = DType::F16)
        : files_(make_tiny_model({.weight_type = weight_type, .kv_dtype = kv_dtype})),
          device_({.n_threads = 1}),
          model_(*files_, device_, {}),
          cache_(device_, model_.kv_layouts(), 2048, SelfCheck::scratch_nodes_for(budget)),
          forward_(model_, forward_limits_for(budget)),
          sampler_(sampling, model_.config().vocab),
          verifier_(sampler_),
          proposer_(std::move(future), hit, 7),
          target_(forward_, cache_),
          sequence_(target_),
          loop_(sequence_, verifier_, budget > 1 ? static_cast<Proposer&>(proposer_) : none_, {.budget = budget}),
          check_(model_, cache_, nullptr, check_tokens) {
        loop_.check_with(check_);
    }

    /// Tokens behind `prompt`; counts passes.
    const std::vector<TokenId>& generate(std::vector<TokenId> prompt, std::int64_t n_tokens) {
        const auto end = std::ssize(prompt) + n_tokens;
        loop_.begin(std::move(prompt));
        for (; std::ssize(loop_.text()) < end; ++n_passes)
            if (loop_.step(end - std::ssize(loop_.text())).empty()) break;
        return loop_.text();
    }

    [[nodiscard]] GenerationLoop& loop() { return loop_; }
    [[nodiscard]] KvCache& cache() { return cache_; }
    [[nodiscard]] TamperedVerifier& verifier() { return verifier_; }
    [[nodiscard]] const SelfCheckFigures& figures() const { return check_.figures(); }

    std::int64_t n_passes = 0;

private:
    std::unique_ptr<ModelFiles> files_;
    CpuDevice device_;
    Model model_;
    KvCache cache_;
    Forward forward_;
    Sampler sampler_;
    TamperedVerifier verifier_;
    NoProposer none_;
    ScriptedProposer proposer_;
    RankTarget target_;
    Sequence sequence_;
    GenerationLoop loop_;
    DeviceSelfCheck check_;
};

std::vector<TokenId> prompt_of(std::size_t n) {
    std::vector<TokenId> prompt(n);
    for (std::size_t i = 0; i < n; ++i) prompt[i] = static_cast<TokenId>((i * 31 + 7) % 97);
    return prompt;
}

TEST(SelfCheck, PassesOverTreesAreThoseOfPlainDecoding) {
    const SamplerOptions sampling{.temperature = 0.9, .repeat_penalty = 1.2, .seed = 3};
    for (const DType type : {DType::F32, DType::BF16, DType::Q8_0}) {
        for (const std::size_t n_prompt : {std::size_t{1}, std::size_t{250}, std::size_t{700}}) {
            SelfChecked plain(1, sampling, {}, 0.0, type);
            const std::vector<TokenId> text = plain.generate(prompt_of(n_prompt), 40);
            EXPECT_EQ(plain.figures().tokens, 40);
            for (const std::int64_t budget : {2, 9, 64}) {
                for (const double hit : {0.3, 0.9}) {
                    SelfChecked run(budget, sampling, text, hit, type);
                    EXPECT_EQ(run.generate(prompt_of(n_prompt), 40), text);
                    EXPECT_EQ(run.figures().passes, run.n_passes);
                    EXPECT_EQ(run.figures().tokens, 40) << "budget " << budget << ", hit " << hit;
                    EXPECT_GT(run.loop().seconds().check, 0.0);
                }
            }
        }
    }
}

TEST(SelfCheck, PassesOverTreesAreThoseOfPlainDecodingWithQ8Rows) {
    const SamplerOptions sampling{.temperature = 0.9, .seed = 3};
    SelfChecked plain(1, sampling, {}, 0.0, DType::F32, kPrefillChunkTokens, DType::Q8_0);
    const std::vector<TokenId> text = plain.generate(prompt_of(300), 40);
    for (const std::int64_t budget : {9, 64}) {
        SelfChecked run(budget, sampling, text, 0.6, DType::F32, kPrefillChunkTokens, DType::Q8_0);
        EXPECT_EQ(run.generate(prompt_of(300), 40), text);
        EXPECT_EQ(run.figures().tokens, 40) << "budget " << budget;
    }
}

TEST(SelfCheck, SmallPassesSayTheSame) {
    SelfChecked plain(1, {.temperature = 0.0}, {}, 0.0);
    const std::vector<TokenId> text = plain.generate(prompt_of(700), 12);
    for (const std::int64_t check_tokens : {1, 7, 8, 200}) {
        SelfChecked run(9, {.temperature = 0.0}, text, 0.9, DType::F32, check_tokens);
        EXPECT_EQ(run.generate(prompt_of(700), 12), text);
        EXPECT_EQ(run.figures().tokens, 12) << check_tokens;
    }
}

/// A run that is tampered with once, in the first pass of at least four tokens behind that of the prompt.
class SelfCheckFault : public testing::Test {
protected:
    SelfCheckFault() {
        SelfChecked plain(1, {.temperature = 0.0}, {}, 0.0);
        text_ = plain.generate(prompt_of(20), 60);
        run_.emplace(16, SamplerOptions{.temperature = 0.0}, text_, 0.9);
        run_->loop().begin(prompt_of(20));
    }

    /// Steps until something is thrown, and returns what it says; then mends, and goes on as if nothing had been.
    std::string failure(const TamperedVerifier::Tamper& damage, const std::function<void()>& reset) {
        run_->verifier().tamper = [&](const TokenTree& tree, const ConstTensorView& logits,
                                      std::span<const TreeNode> accepted) {
            if (accepted.size() < 4 || run_->cache().n_committed() == 0) return;
            n_text_ = std::ssize(run_->loop().text()) - std::ssize(accepted);
            accepted_.assign(accepted.begin(), accepted.end());
            damage(tree, logits, accepted);
            run_->verifier().tamper = nullptr;
        };
        std::string message;
        try {
            for (int i = 0; i < 30 && std::ssize(run_->loop().text()) < 70; ++i)
                static_cast<void>(run_->loop().step(10));
            ADD_FAILURE() << "not detected";
        } catch (const SelfCheckFailure& error) {
            message = error.what();
        }
        EXPECT_EQ(std::ssize(run_->loop().text()), n_text_) << "the pass that failed is taken back";
        EXPECT_EQ(run_->cache().n_nodes(), 0);
        const std::int64_t n_checked = run_->figures().tokens;
        EXPECT_EQ(n_checked, n_text_ - 20) << "and not counted";
        reset();
        while (run_->loop().text().size() < text_.size())
            if (run_->loop().step(std::ssize(text_) - std::ssize(run_->loop().text())).empty()) break;
        EXPECT_EQ(run_->loop().text(), text_);
        EXPECT_EQ(run_->figures().tokens, 60);
        return message;
    }

    std::vector<TokenId> text_;
    std::optional<SelfChecked> run_;
    std::int64_t n_text_ = 0;         // before the pass
    std::vector<TreeNode> accepted_;  // in it
};

TEST_F(SelfCheckFault, ALogitThatDiffersByOneBitIsNamed) {
    float was = 0.0F, is = 0.0F;
    const std::string message = failure(
        [&](const TokenTree&, const ConstTensorView& logits, std::span<const TreeNode> accepted) {
            float& logit = const_cast<float*>(float_row(logits, logits_row_of(accepted[2])))[41];
            was = logit;
            logit = is = std::nextafter(logit, 1e9F);
        },
        [] {});
    EXPECT_THAT(message, testing::HasSubstr(
                             fmt::format("after position {} (node {} of a tree of ", n_text_ + 1, accepted_[2].index)));
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("token 41 is {:.9g}", is)));
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("instead of {:.9g}", was)));
}

TEST_F(SelfCheckFault, ANodeOffThePathIsNobodysConcern) {
    // Damage to a refused node changes nothing that is committed.
    run_->verifier().tamper = [](const TokenTree& tree, const ConstTensorView& logits,
                                 std::span<const TreeNode> accepted) {
        for (const TreeNode node : tree.nodes())
            if (std::ranges::find(accepted, node) == accepted.end())
                const_cast<float*>(float_row(logits, logits_row_of(node)))[0] += 1.0F;
    };
    while (run_->loop().text().size() < text_.size())
        ASSERT_FALSE(run_->loop().step(std::ssize(text_) - std::ssize(run_->loop().text())).empty());
    EXPECT_EQ(run_->loop().text(), text_);
}

TEST_F(SelfCheckFault, ARowAboutToBeCommittedIsCompared) {
    const std::string message = failure(
        [&](const TokenTree&, const ConstTensorView&, std::span<const TreeNode> accepted) {
            const auto row = static_cast<std::size_t>(accepted[3].index);  // one token was missing: nodes lie in order
            run_->cache().scratch_v(1)[row * run_->cache().layout(1).scratch_row_bytes() + 5] ^= std::byte{1};
        },
        [] {});
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("the values of position {} (layer 1, byte 5)", n_text_ + 2)));
}

TEST_F(SelfCheckFault, ACacheThatChangedUnderThePassIsSeen) {
    std::byte* damaged = nullptr;
    const std::string message = failure(
        [&](const TokenTree&, const ConstTensorView&, std::span<const TreeNode>) {
            const auto head_row = static_cast<std::size_t>(run_->cache().layout(0).head_dim) * 2;
            damaged = run_->cache().chunks(0)[0] + run_->cache().layout(0).part_bytes() + 2 * head_row + 1;
            *damaged ^= std::byte{0x40};
        },
        [&] { *damaged ^= std::byte{0x40}; });
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("after position {} (node 0 ", n_text_ - 1)));
}

TEST(SelfCheck, GivesUpWhenCancelledAndLeavesTheText) {
    SelfChecked plain(1, {.temperature = 0.0}, {}, 0.0);
    const std::vector<TokenId> text = plain.generate(prompt_of(20), 30);
    SelfChecked run(16, {.temperature = 0.0}, text, 1.0);
    run.loop().begin(prompt_of(20));
    std::atomic<bool> cancel{false};
    run.verifier().tamper = [&](const auto&, const auto&, auto) { cancel = true; };
    EXPECT_TRUE(run.loop().step(30, &cancel).empty());
    EXPECT_EQ(run.loop().text(), prompt_of(20));
    EXPECT_EQ(run.cache().n_nodes(), 0);
    EXPECT_EQ(run.figures().passes, 0);
    run.verifier().tamper = nullptr;
    cancel = false;
    while (run.loop().text().size() < text.size())
        ASSERT_FALSE(run.loop().step(std::ssize(text) - std::ssize(run.loop().text()), &cancel).empty());
    EXPECT_EQ(run.loop().text(), text);
}

TEST(SelfCheckDeathTest, NeedsRoomInScratch) {
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(4));
    Forward forward(model, forward_limits_for(4));
    Sampler sampler({}, model.config().vocab);
    ExactVerifier verifier(sampler);
    NoProposer none;
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, none, {.budget = 4});
    DeviceSelfCheck check(model, cache);
    EXPECT_DEATH(loop.check_with(check), "scratch rows, budget 4");
}

}  // namespace
}  // namespace slipstream
