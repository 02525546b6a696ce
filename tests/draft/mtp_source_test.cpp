// The head as a draft source: with heads that are always right and always wrong, tokens per pass are those of
// arithmetic; with any head, any placement and any sampling, the text is that of plain decoding. Cuts, other texts,
// cancelled passes and gaps in the hidden states cost draft tokens at most.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/models/mtp_source.h"
#include "draft/source_set.h"
#include "kernels/base/error.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/pass/hidden_tail.h"
#include "tests/support/error_text.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_head.h"

namespace slipstream::draft {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kLayers = 4;  // delta net, delta net, attention, delta net

std::unique_ptr<ModelFiles> hybrid(std::int64_t n_experts = 0) {
    return make_tiny_model({.n_layers = kLayers, .head_norms = true, .delta_nets = true, .n_experts = n_experts});
}

DraftOptions only_mtp() {
    DraftOptions options;
    options.sources = {SourceKind::Mtp};
    options.max_budget = SplitEngine::kBudget;
    options.adapt_budget = false;
    return options;
}
DraftOptions chain_of(std::int64_t length) {
    DraftOptions options = only_mtp();
    options.shape = TreeShape::Chain;
    options.gamma = length;
    return options;
}

/// A target with its head and the drafter of `options`.
struct Drafted {
    Drafted(SplitEngine& engine, const HeadSource& source, const DraftOptions& options, const SamplerOptions& sampling,
            std::int64_t n_kept = kHiddenRows)
        : target(engine.target),
          head(source, engine.own.front()->device, {.context_tokens = SplitEngine::kContext},
               ProposingHead::LmHead::Own),
          tail(engine.target->hidden_device(), source.config().d_model, n_kept,
               SelfCheck::scratch_nodes_for(SplitEngine::kBudget)) {
        DraftContext context;
        context.vocab = source.config().vocab;
        context.sampling = sampling;
        context.head = &head;
        drafter = make_drafter(options, context);
        drafter->attach_hidden(tail);
        target->keep_hidden_in(&tail);
    }
    ~Drafted() { target->keep_hidden_in(nullptr); }
    Drafted(const Drafted&) = delete;
    Drafted& operator=(const Drafted&) = delete;

    RankTarget* target;
    ProposingHead head;
    HiddenTail tail;
    std::unique_ptr<Drafter> drafter;
};

// Tokens of each pass of a text after `prompt`.
std::vector<std::int64_t> tokens_by_pass(Drafted& drafted, const SamplerOptions& sampling,
                                         const std::vector<TokenId>& prompt, std::int64_t n_passes,
                                         std::vector<TokenId>& text) {
    Sampler sampler(sampling, kTinyVocab);
    ExactVerifier verifier(sampler);
    Sequence sequence(*drafted.target);
    GenerationLoop loop(sequence, verifier, *drafted.drafter, {.budget = SplitEngine::kBudget, .end_tokens = {}});
    loop.begin(prompt);
    std::vector<std::int64_t> counts;
    for (std::int64_t pass = 0; pass < n_passes; ++pass) counts.push_back(std::ssize(loop.step(100)));
    text = loop.text();
    return counts;
}

std::vector<TokenId> plain_text(RankTarget& target, const SamplerOptions& sampling, const std::vector<TokenId>& prompt,
                                std::int64_t n_tokens) {
    NoProposer nothing;
    return logged_generation(target, prompt, n_tokens, nothing, 1, sampling, kTinyVocab).text;
}

const SamplerOptions kGreedy{.temperature = 0.0};
const SamplerOptions kSampled{.temperature = 0.8, .top_k = 0, .top_p = 0.95, .seed = 4};

// The first pass has no hidden state to draft from. After it a chain of n that is always right gives n + 1 tokens a
// pass, one that is always wrong 1.
TEST(MtpSource, TokensPerPassOfAHeadThatIsRightAndOfOneThatIsWrongAreThoseOfArithmetic) {
    const EchoFiles files(hybrid());
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        SplitEngine engine(files, {kLayers}, streams);
        for (const SamplerOptions& sampling : {kGreedy, kSampled}) {
            for (const std::int64_t n_prompt : {1, 7, 600}) {
                engine.target->truncate(0);
                const std::vector<TokenId> plain = plain_text(*engine.target, sampling, prompt_of(n_prompt), 80);
                for (const std::int64_t length : {1, 2, 4, 7}) {
                    SCOPED_TRACE(
                        fmt::format("T {}, a prompt of {}, chains of {}", sampling.temperature, n_prompt, length));
                    for (const TinyHeadKind kind : {TinyHeadKind::Right, TinyHeadKind::Wrong}) {
                        const TinyHead source(files, kind);
                        Drafted drafted(engine, source, chain_of(length), sampling);
                        engine.target->truncate(0);
                        std::vector<TokenId> text;
                        std::vector<std::int64_t> counts =
                            tokens_by_pass(drafted, sampling, prompt_of(n_prompt), 8, text);
                        EXPECT_EQ(counts.front(), 1);
                        counts.erase(counts.begin());
                        EXPECT_THAT(counts, Each(kind == TinyHeadKind::Right ? length + 1 : 1));
                        EXPECT_TRUE(std::ranges::equal(text, std::span(plain).first(text.size())));
                        const SourceFigures figures = drafted.drafter->figures().front();
                        EXPECT_EQ(figures.name, "mtp");
                        EXPECT_EQ(figures.accepted, kind == TinyHeadKind::Right ? 7 * length : 0);
                    }
                }
            }
        }
    }
}

// Random heads: every split, placement, shape and sampling gives the plain text, checked pass by pass.
TEST(MtpSource, NeverChangesTheText) {
    DraftOptions merged = only_mtp();
    DraftOptions with_tables = only_mtp();
    with_tables.sources = {SourceKind::Context, SourceKind::Suffix, SourceKind::Recycling, SourceKind::Mtp};
    with_tables.adapt_budget = true;
    std::int64_t accepted = 0;
    for (const std::int64_t n_experts : {0, 5}) {
        const auto files = hybrid(n_experts);
        const TinyHead source(*files);
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        for (const std::int64_t n_prompt : {1, 9, 1100}) {
            whole.target->truncate(0);
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), 40);
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}, {2, 2}}) {
                for (const Streams streams : {Streams::Nothing, Streams::Both}) {
                    SplitEngine engine(*files, split, streams, {},
                                       n_prompt > 1000 ? std::size_t{2} << 20 : SplitEngine::kRingBytes);
                    for (const DraftOptions& options : {merged, chain_of(3), with_tables}) {
                        SCOPED_TRACE(fmt::format("{} experts, a prompt of {}, {} devices, {}", n_experts, n_prompt,
                                                 split.size(), streams == Streams::Nothing ? "resident" : "streamed"));
                        Drafted drafted(engine, source, options, kTinySampling);
                        engine.target->truncate(0);
                        const Generated found = generate(*engine.target, prompt_of(n_prompt), 40, *drafted.drafter,
                                                         SplitEngine::kBudget, engine.plain);
                        EXPECT_EQ(found.text, one.text);
                        EXPECT_TRUE(same_bits(found.logits, one.logits));
                        for (const SourceFigures& figures : drafted.drafter->figures()) {
                            if (figures.name != "mtp") continue;
                            EXPECT_GT(figures.passes.value(), 0);
                            accepted += figures.accepted;
                        }
                    }
                }
            }
        }
    }
    EXPECT_GT(accepted, 0);
}

// Wherever weights and KV are, the hidden states that a head gets are those of one resident device, bit for bit: of the
// last positions of a prompt that runs chunk by chunk, and of a prompt that runs layer by layer what its last pass has.
TEST(MtpSource, HiddenStatesAreThoseOfOneResidentDevice) {
    const auto files = hybrid();
    constexpr std::int64_t kNew = 20;
    const std::int64_t d = files->config().d_model;
    const std::int64_t max_nodes = SelfCheck::scratch_nodes_for(SplitEngine::kBudget);
    for (const std::int64_t n_prompt : {9, 1100}) {
        const std::int64_t end = n_prompt + kNew - 1;
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        HiddenTail expected(whole.target->hidden_device(), d, kHiddenRows, max_nodes);
        whole.target->keep_hidden_in(&expected);
        const std::vector<TokenId> text = plainly(*whole.target, prompt_of(n_prompt), kNew).text;
        ASSERT_EQ(expected.end(), end);
        EXPECT_EQ(expected.begin(), std::max<std::int64_t>(0, end - kHiddenRows));
        for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}, {2, 2}}) {
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Both}) {
                SCOPED_TRACE(fmt::format("a prompt of {}, {} devices, {}", n_prompt, split.size(),
                                         streams == Streams::Nothing ? "resident" : "streamed"));
                HiddenTail tail(whole.target->hidden_device(), d, kHiddenRows, max_nodes);
                SplitEngine engine(*files, split, streams, {}, std::size_t{2} << 20);
                engine.target->keep_hidden_in(&tail);
                ScriptedProposer scripted(text, 0.7, 3);
                EXPECT_EQ(generate(*engine.target, prompt_of(n_prompt), kNew, scripted, SplitEngine::kBudget).text,
                          text);
                // The last pass may commit positions after the text's end.
                ASSERT_GE(tail.end(), end);
                EXPECT_LE(tail.begin(), n_prompt);
                if (streams != Streams::Nothing && n_prompt > 1000) {
                    EXPECT_EQ(tail.begin(), 1024);
                }
                for (std::int64_t at = std::max(tail.begin(), expected.begin()); at < end; ++at)
                    EXPECT_TRUE(std::ranges::equal(tail.row(at), expected.row(at))) << at;
                engine.target->keep_hidden_in(nullptr);
            }
        }
        whole.target->keep_hidden_in(nullptr);
    }
}

// Texts one after another, cut back, passes given up, and hidden states that come with gaps or not at all.
TEST(MtpSource, GoesOnAfterCutsCancelledPassesAndGaps) {
    const EchoFiles files(hybrid());
    const TinyHead source(files, TinyHeadKind::Right);
    SplitEngine engine(files, {1, 3}, Streams::Nothing);
    for (const std::int64_t n_kept : {std::int64_t{12}, kHiddenRows}) {
        Drafted drafted(engine, source, chain_of(4), kGreedy, n_kept);
        Sampler sampler(kGreedy, kTinyVocab);
        ExactVerifier verifier(sampler);
        Sequence sequence(*engine.target);
        GenerationLoop loop(sequence, verifier, *drafted.drafter, {.budget = SplitEngine::kBudget, .end_tokens = {}});
        SplitEngine alone(files, {kLayers}, Streams::Nothing);
        const std::atomic<bool> cancelled = true;
        for (const std::int64_t n_prompt : {40, 30, 700}) {
            SCOPED_TRACE(n_prompt);
            alone.target->truncate(0);
            const std::vector<TokenId> plain = plain_text(*alone.target, kGreedy, prompt_of(n_prompt), 400);
            engine.target->truncate(0);
            loop.begin(prompt_of(n_prompt));
            const auto expect_plain = [&] {
                EXPECT_TRUE(std::ranges::equal(loop.text(), std::span(plain).first(loop.text().size())));
            };
            EXPECT_EQ(loop.step(100).size(), 1U);
            for (int pass = 0; pass < 6; ++pass) {
                if (pass % 2 == 1) {
                    EXPECT_TRUE(loop.step(100, &cancelled).empty());
                }
                EXPECT_EQ(loop.step(100).size(), 5U) << pass;
            }
            expect_plain();
            // Back into what was generated, and on: the first pass computes what the cut took, if anything.
            loop.truncate(n_prompt + 11);
            EXPECT_FALSE(loop.step(100).empty());
            EXPECT_EQ(loop.step(100).size(), 5U);
            expect_plain();
            // Hidden states of some passes are not kept.
            engine.target->keep_hidden_in(nullptr);
            for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(loop.step(100).size(), pass == 0 ? 5U : 1U);
            engine.target->keep_hidden_in(&drafted.tail);
            EXPECT_EQ(loop.step(100).size(), 1U);
            EXPECT_EQ(loop.step(100).size(), 5U);
            expect_plain();
        }
    }
}

// A long text fills the slots of the head's cache, which then begins anew with half of them.
TEST(MtpSource, TheCacheBeginsAnewWhenItIsFull) {
    const EchoFiles files(hybrid());
    const TinyHead head_source(files, TinyHeadKind::Right);
    SplitEngine engine(files, {kLayers}, Streams::Nothing);
    ProposingHead head(head_source, engine.own.front()->device, {.context_tokens = SplitEngine::kContext},
                       ProposingHead::LmHead::OfTarget);
    head.use_lm_head_of(*engine.models.front());
    HiddenTail tail(engine.target->hidden_device(), head_source.config().d_model, 20,
                    SelfCheck::scratch_nodes_for(SplitEngine::kBudget));
    engine.target->keep_hidden_in(&tail);
    MtpSource source(head, kGreedy, {.max_nodes = 8, .n_slots = 32});
    source.attach(tail);
    const std::vector<TokenId> text = plain_text(*engine.target, kGreedy, prompt_of(10), 90);
    engine.target->truncate(0);
    source.observe({.text = {}, .n_new = 0});
    std::vector<std::int64_t> firsts;
    for (std::int64_t n = 10; n < 90; ++n) {
        // The target computes the positions before n - 1, in one pass at first.
        std::vector<NodeId> nodes;
        const std::int64_t from = engine.target->n_committed();
        for (std::int64_t at = from; at < n - 1; ++at)
            nodes.push_back(engine.target->add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
        static_cast<void>(engine.target->run({.tokens = std::span(text).subspan(from, nodes.size()), .nodes = nodes}));
        engine.target->commit(nodes);
        const std::span<const TokenId> now = std::span(text).first(n);
        source.observe({.text = now, .n_new = n == 10 ? n : 1});
        ASSERT_TRUE(source.ready(now));
        TokenTree tree;
        tree.reset(now.back());
        source.expand(tree, now, {&kTreeRoot, 1});
        std::vector<Proposal> out(1);
        ASSERT_EQ(source.propose(kTreeRoot, n, PathNoise(), out), 1U);
        EXPECT_EQ(out.front().token, text[n]) << n;
        EXPECT_LE(source.end_cached() - source.first_cached(), 32);
        if (firsts.empty() || firsts.back() != source.first_cached()) firsts.push_back(source.first_cached());
    }
    EXPECT_THAT(firsts, ElementsAre(0, 17, 34, 51, 68));
    engine.target->keep_hidden_in(nullptr);
    // A text that shares a beginning with the last one keeps its rows.
    std::vector<TokenId> other(text.begin(), text.begin() + 80);
    other.back() = (other.back() + 1) % kTinyVocab;
    source.observe({.text = other, .n_new = std::ssize(other)});
    EXPECT_EQ(source.end_cached(), 78);
    other.front() = (other.front() + 1) % kTinyVocab;
    source.observe({.text = other, .n_new = std::ssize(other)});
    EXPECT_EQ(source.end_cached(), source.first_cached());
    EXPECT_FALSE(source.ready(other));
}

// A batch of nodes of several levels gives the logits of passes level by level: a child needs what the head computed
// for its parent.
TEST(MtpSource, SeveralLevelsAtOnceAreComputedOneByOne) {
    const auto files = hybrid();
    const TinyHead head_source(*files);
    SplitEngine engine(*files, {kLayers}, Streams::Nothing);
    const ProposingHead head(head_source, engine.own.front()->device, {.context_tokens = SplitEngine::kContext},
                             ProposingHead::LmHead::Own);
    HiddenTail tail(engine.target->hidden_device(), head_source.config().d_model, 20,
                    SelfCheck::scratch_nodes_for(SplitEngine::kBudget));
    engine.target->keep_hidden_in(&tail);
    const std::vector<TokenId> text = prompt_of(10);
    std::vector<NodeId> nodes;
    for (std::int64_t at = 0; at < 9; ++at)
        nodes.push_back(engine.target->add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
    static_cast<void>(engine.target->run({.tokens = std::span(text).first(9), .nodes = nodes}));
    engine.target->commit(nodes);
    TokenTree tree;
    tree.reset(text.back());
    const TreeNode child = tree.add(kTreeRoot, 11);
    const TreeNode sibling = tree.add(kTreeRoot, 12);
    const TreeNode grandchild = tree.add(child, 13);
    const std::vector<TreeNode> all{kTreeRoot, child, sibling, grandchild};
    const auto proposals = [&](const std::vector<std::vector<TreeNode>>& batches) {
        MtpSource source(head, kGreedy, {.max_nodes = 8, .n_slots = 32});
        source.attach(tail);
        source.observe({.text = text, .n_new = std::ssize(text)});
        for (const std::vector<TreeNode>& batch : batches) source.expand(tree, text, batch);
        std::vector<std::pair<TokenId, float>> found;
        for (const TreeNode node : all) {
            std::vector<Proposal> out(6);
            EXPECT_EQ(source.propose(node, 11, PathNoise(), out), out.size());
            for (const Proposal& proposal : out) found.emplace_back(proposal.token, proposal.probability);
        }
        EXPECT_EQ(source.passes(), batches.size() == 1 ? 3 : 4);
        return found;
    };
    const auto one_by_one = proposals({{kTreeRoot}, {child}, {sibling}, {grandchild}});
    EXPECT_EQ(proposals({all}), one_by_one);
    engine.target->keep_hidden_in(nullptr);
}

TEST(MtpSource, WithoutAHeadOrWithDrawsItIsRefused) {
    DraftContext context;
    context.vocab = kTinyVocab;
    EXPECT_THAT(error_text([&] { static_cast<void>(make_drafter(only_mtp(), context)); }),
                HasSubstr("the source mtp needs a model whose files have an MTP head"));
    const auto files = hybrid();
    const TinyHead source(*files);
    CpuDevice device(CpuDeviceOptions{});
    const ProposingHead head(source, device, {}, ProposingHead::LmHead::Own);
    context.head = &head;
    DraftOptions draws = only_mtp();
    draws.child_rule = ChildRule::Draw;
    EXPECT_THAT(error_text([&] { static_cast<void>(make_drafter(draws, context)); }),
                HasSubstr("the source mtp draws no tokens"));
}

// A long context alone gives the head no larger cache: it knows the end of a prompt and what is generated.
TEST(MtpSource, HasSlotsForATextNotForTheContext) {
    const auto files = hybrid(0);
    const TinyHead source(*files);
    const auto slots = [&](std::size_t window_bytes, std::int64_t text_tokens) {
        return head_slots({.window_bytes = window_bytes}, source.config(), DType::F16, text_tokens);
    };
    EXPECT_EQ(slots(std::size_t{1} << 40, 262144), 8192);
    EXPECT_EQ(slots(std::size_t{1} << 40, 0), 8192);
    EXPECT_EQ(slots(std::size_t{1} << 40, 2000), 2000);
    EXPECT_EQ(slots(0, 262144), kHiddenRows);
}

// What is announced is what is taken.
TEST(MtpSource, TakesTheMemoryThatItAnnounces) {
    for (const std::int64_t n_experts : {0, 5}) {
        const auto files = hybrid(n_experts);
        const TinyHead source(*files);
        CpuDevice device({.memory_bytes = std::size_t{1} << 30});
        const ProposingHead head(source, device, {.rounding = WeightRounding::Q8_0}, ProposingHead::LmHead::Own);
        EXPECT_EQ(device.budget().used_bytes(),
                  ProposingHead::device_bytes(source, WeightRounding::Q8_0, ProposingHead::LmHead::Own));
        const auto used = [&] {
            return device.budget().used_bytes() - device.budget().used_bytes(MemoryTag::Workspace);
        };
        const std::size_t before = used();
        const MtpSource drafts(head, kGreedy, {.max_nodes = 16, .n_slots = 600});
        const std::size_t taken = used() - before;
        const std::size_t announced = MtpSource::device_bytes(source.config(), head.model().kv_dtype(), 16, 600);
        EXPECT_GE(announced, taken);
        EXPECT_LE(announced, taken + taken / 8);
    }
}

}  // namespace
}  // namespace slipstream::draft
