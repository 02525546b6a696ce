// MTP heads on emulated GPUs: logits near the golden ones, one text with and without draft tokens wherever target and
// head are, tokens per pass of arithmetic, and no wait that a pass does not have anyway.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/models/mtp_source.h"
#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "runner_on_cards.h"
#include "runtime/pass/head_pass.h"
#include "runtime/ranks/layer_split.h"
#include "tests/support/head_logits.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_head.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;
using testing::Each;

constexpr std::int64_t kLayers = 4;  // delta net, delta net, attention, delta net

std::unique_ptr<ModelFiles> hybrid(std::int64_t n_experts = 0) {
    return make_tiny_model({.n_layers = kLayers,
                            .head_dim = 64,
                            .weight_type = DType::BF16,
                            .head_norms = true,
                            .delta_nets = true,
                            .n_experts = n_experts});
}

enum class Devices : std::uint8_t { Card, TwoCards, CardAndCpu, CpuAndCard };

/// A target over devices, with a context of 1600 positions; its head is on the first of them.
struct Engine {
    Engine(const ModelFiles& files, Devices which, Streams streams, Timing timing)
        : machine({.n_cards = 2, .timing = timing}) {
        if (which == Devices::CpuAndCard) add_cpu();
        devices.push_back(emulation::small_card(machine, 0));
        if (which == Devices::TwoCards) devices.push_back(emulation::small_card(machine, 1));
        if (which == Devices::CardAndCpu) add_cpu();
        Device* locker = which == Devices::CpuAndCard ? devices.back().get() : devices.front().get();
        arena.emplace(PinnedArenaOptions{.limit_bytes = std::size_t{64} << 20, .device = locker});
        std::vector<ModelShard> shards{whole_shard(files.config())};
        if (devices.size() == 2) shards = deal_layers(files.config(), std::vector<std::int64_t>{1, 3});
        std::vector<Device*> pointers;
        for (const auto& device : devices) pointers.push_back(device.get());
        on_cards.emplace(files, pointers, shards, *arena, streams, nullptr, std::nullopt, 1600);
    }
    [[nodiscard]] RankTarget& target() { return on_cards->runner->target(); }

    Machine machine;
    std::vector<std::unique_ptr<Device>> devices;
    std::optional<PinnedArena> arena;
    std::optional<RunnerOnCards> on_cards;

private:
    void add_cpu() { devices.push_back(std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1})); }
};

const SamplerOptions kGreedy{.temperature = 0.0};
const SamplerOptions kSeeded{.temperature = 0.8, .top_k = 0, .top_p = 0.95, .seed = 4};

draft::DraftOptions sources(std::vector<draft::SourceKind> kinds) {
    draft::DraftOptions options;
    options.sources = std::move(kinds);
    options.max_budget = emulation::kBudget;
    options.adapt_budget = false;
    return options;
}
draft::DraftOptions chain_of(std::int64_t length) {
    draft::DraftOptions options = sources({draft::SourceKind::Mtp});
    options.shape = draft::TreeShape::Chain;
    options.gamma = length;
    return options;
}

/// A head and its drafter beside the target of an engine.
struct Drafted {
    Drafted(Engine& of, const HeadSource& source, const draft::DraftOptions& options, const SamplerOptions& sampling)
        : engine(&of),
          head(source, *of.devices.front(), {.context_tokens = 1600},
               of.devices.size() == 1 ? ProposingHead::LmHead::OfTarget : ProposingHead::LmHead::Own),
          tail(of.target().hidden_device(), source.config().d_model, draft::kHiddenRows,
               SelfCheck::scratch_nodes_for(emulation::kBudget)) {
        if (!head.has_lm_head()) {
            // A target of which a part streams may not keep its LM head: a copy is used then, as the engine does.
            const Model& model = *of.on_cards->models.front();
            if (head.can_use_lm_head_of(model)) {
                head.use_lm_head_of(model);
            } else {
                own.emplace(source, *of.devices.front(), LoadOptions{.context_tokens = 1600},
                            ProposingHead::LmHead::Own);
            }
        }
        draft::DraftContext context;
        context.vocab = source.config().vocab;
        context.sampling = sampling;
        context.head = own ? &*own : &head;
        drafter = draft::make_drafter(options, context);
        drafter->attach_hidden(tail);
        of.target().keep_hidden_in(&tail);
    }
    ~Drafted() { engine->target().keep_hidden_in(nullptr); }
    Drafted(const Drafted&) = delete;
    Drafted& operator=(const Drafted&) = delete;

    Engine* engine;
    ProposingHead head;
    std::optional<ProposingHead> own;
    HiddenTail tail;
    std::unique_ptr<draft::Drafter> drafter;
};

Generated plain_text(Engine& engine, const SamplerOptions& sampling, const std::vector<TokenId>& prompt,
                     std::int64_t n_tokens) {
    NoProposer nothing;
    engine.target().truncate(0);
    return logged_generation(engine.target(), prompt, n_tokens, nothing, 1, sampling, kTinyVocab);
}

class GoldenHeadOnCard : public testing::TestWithParam<const char*> {};

// Activations of F32 models are rounded to halves that make up about TF32. Copies of the LM head have the same bits.
TEST_P(GoldenHeadOnCard, GivesLogitsNearTheGoldenOnes) {
    const GoldenHead golden = load_golden_head(GetParam());
    const TempFolder folder;
    write_hugging_face(golden.model, folder.path());
    const auto files = ModelFiles::open(folder.path());
    Machine machine({.n_cards = 1, .timing = Timing::Latest});
    const auto card = emulation::small_card(machine, 0);
    const std::vector<float> whole = head_logits(*files, golden, *card, 64, ProposingHead::LmHead::Own);
    ASSERT_EQ(whole.size(), golden.logits.size());
    EXPECT_LT(nmse(whole, golden.logits), 1e-5);
    EXPECT_TRUE(same_bits(head_logits(*files, golden, *card, 3, ProposingHead::LmHead::OfTarget), whole));
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenHeadOnCard,
                         testing::Values("qwen35", "qwen35_interval", "qwen35_moe", "glm4_moe", "glm4_moe_plain"),
                         [](const auto& test) { return std::string(test.param); });

class HeadOnCards : public testing::TestWithParam<Timing> {};

// The first pass has no hidden state to draft from. After it a chain of n that is always right gives n + 1 tokens a
// pass, one that is always wrong 1.
TEST_P(HeadOnCards, TokensPerPassAreThoseOfArithmetic) {
    const EchoFiles files(hybrid());
    for (const auto& [devices, streams] : {std::pair(Devices::Card, Streams::Nothing),
                                           {Devices::Card, Streams::Both},
                                           {Devices::TwoCards, Streams::Both},
                                           {Devices::CardAndCpu, Streams::Nothing},
                                           {Devices::CpuAndCard, Streams::Nothing}}) {
        Engine engine(files, devices, streams, GetParam());
        for (const SamplerOptions& sampling : {kGreedy, kSeeded}) {
            const std::vector<TokenId> plain = plain_text(engine, sampling, prompt_of(9), 24).text;
            for (const TinyHeadKind kind : {TinyHeadKind::Right, TinyHeadKind::Wrong}) {
                SCOPED_TRACE(fmt::format("devices {}, streams {}, T {}, {}", static_cast<int>(devices),
                                         static_cast<int>(streams), sampling.temperature,
                                         kind == TinyHeadKind::Right ? "right" : "wrong"));
                const TinyHead source(files, kind);
                Drafted drafted(engine, source, chain_of(3), sampling);
                engine.target().truncate(0);
                Sampler sampler(sampling, kTinyVocab);
                ExactVerifier verifier(sampler);
                Sequence sequence(engine.target());
                GenerationLoop loop(sequence, verifier, *drafted.drafter,
                                    {.budget = emulation::kBudget, .end_tokens = {}});
                loop.begin(prompt_of(9));
                EXPECT_EQ(loop.step(100).size(), 1U);
                std::vector<std::size_t> counts;
                for (int pass = 0; pass < 4; ++pass) counts.push_back(loop.step(100).size());
                EXPECT_THAT(counts, Each(kind == TinyHeadKind::Right ? 4U : 1U));
                EXPECT_TRUE(std::ranges::equal(loop.text(), std::span(plain).first(loop.text().size())));
            }
        }
    }
}

// Random heads, alone and merged with a table: texts and logits are those of plain decoding, wherever weights and KV
// are. Where the target has the same bits, the head gets the same hidden states, and as many of its tokens are
// accepted.
TEST_P(HeadOnCards, NeverChangeTheText) {
    std::int64_t accepted = 0;
    for (const std::int64_t n_experts : {0, 5}) {
        const auto files = hybrid(n_experts);
        const TinyHead source(*files);
        std::vector<std::int64_t> on_one_card;
        for (const auto& [devices, streams] : {std::pair(Devices::Card, Streams::Nothing),
                                               {Devices::Card, Streams::Weights},
                                               {Devices::TwoCards, Streams::Both},
                                               {Devices::CardAndCpu, Streams::Both},
                                               {Devices::CpuAndCard, Streams::Nothing}}) {
            if (n_experts > 0 && (devices > Devices::TwoCards || GetParam() != Timing::Latest)) continue;
            Engine engine(*files, devices, streams, GetParam());
            std::vector<std::int64_t> counts;
            for (const SamplerOptions& sampling : {kGreedy, kSeeded}) {
                const Generated plain = plain_text(engine, sampling, prompt_of(40), 16);
                for (const draft::DraftOptions& options :
                     {sources({draft::SourceKind::Mtp}),
                      sources({draft::SourceKind::Lookup, draft::SourceKind::Mtp})}) {
                    SCOPED_TRACE(fmt::format("{} experts, devices {}, streams {}, T {}, {} sources", n_experts,
                                             static_cast<int>(devices), static_cast<int>(streams), sampling.temperature,
                                             options.sources.size()));
                    Drafted drafted(engine, source, options, sampling);
                    engine.target().truncate(0);
                    EXPECT_EQ(logged_generation(engine.target(), prompt_of(40), 16, *drafted.drafter,
                                                emulation::kBudget, sampling, kTinyVocab),
                              plain);
                    for (const draft::SourceFigures& figures : drafted.drafter->figures()) {
                        if (figures.name != "mtp") continue;
                        EXPECT_GT(figures.passes.value(), 0);
                        counts.push_back(figures.accepted);
                        counts.push_back(figures.offered);
                        accepted += figures.accepted;
                    }
                }
            }
            if (on_one_card.empty()) on_one_card = counts;
            if (devices == Devices::Card || devices == Devices::TwoCards) {
                EXPECT_EQ(counts, on_one_card);
            }
        }
    }
    EXPECT_GT(accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(Timings, HeadOnCards, testing::ValuesIn(kTimings));

// What is announced is what is taken: of the device, of its workspace, and of page-locked host memory.
TEST(HeadPassOnCard, TakesTheMemoryThatItAnnounces) {
    constexpr std::size_t kPage = 4096;  // to which each page-locked allocation is rounded up
    for (const std::int64_t n_experts : {0, 5}) {
        const auto files = hybrid(n_experts);
        const TinyHead source(*files);
        Machine machine({.n_cards = 1, .timing = Timing::Latest});
        const auto device = emulation::small_card(machine, 0);
        const ProposingHead head(source, *device, {}, ProposingHead::LmHead::Own);
        const DType kv_dtype = head.model().kv_dtype();
        const auto make = [&] { return draft::MtpSource(head, kGreedy, {.max_nodes = 16, .n_slots = 600}); };
        { const draft::MtpSource reserves_workspace = make(); }
        EXPECT_LE(device->budget().used_bytes(MemoryTag::Workspace),
                  workspace_bytes(*device, draft::MtpSource::workspace_shapes(source.config(), kv_dtype, 16)));
        const std::size_t before = device->budget().used_bytes();
        const std::size_t locked_before = machine.locked_bytes();
        const draft::MtpSource drafts = make();
        const std::size_t taken = device->budget().used_bytes() - before;
        const std::size_t announced = draft::MtpSource::device_bytes(source.config(), kv_dtype, 16, 600);
        EXPECT_GE(announced, taken);
        EXPECT_LE(announced, taken + taken / 8);
        const std::size_t locked = machine.locked_bytes() - locked_before;
        const std::size_t pinned = draft::MtpSource::pinned_bytes(source.config(), 16);
        EXPECT_GE(locked, pinned);
        EXPECT_LT(locked, pinned + 8 * kPage);
    }
}

// After a pass of the head that throws, copies may still run. Their host memory must not be freed before they end: the
// emulated driver CHECKs that.
TEST(HeadPassOnCard, AFailedPassIsWaitedFor) {
    const auto files = hybrid();
    const TinyHead source(*files);
    Machine machine({.n_cards = 1, .timing = Timing::Latest});
    const auto device = emulation::small_card(machine, 0);
    const ProposingHead head(source, *device, {}, ProposingHead::LmHead::Own);
    KvCache cache(*device, head.model().kv_layouts(), 16, 8);
    bool passed = false;
    std::int64_t n_failed = 0;
    for (std::int64_t call = 1; !passed; ++call) {
        HeadPass pass(head, {.max_tokens = 8, .max_logit_rows = 4});
        const NodeId node = cache.add_node(kCommittedTip);
        std::ranges::fill(pass.input(0), 1.0F);
        const TokenId token = 3;
        const std::int32_t row = 0;
        machine.fail_in(call);
        try {
            static_cast<void>(pass.run(cache, {&token, 1}, {&node, 1}, 1, {&row, 1}, {.n_best = 4}));
            passed = true;
        } catch (const Error&) {
            ++n_failed;
        }
        machine.fail_in(0);
        cache.forget();
    }
    EXPECT_GT(n_failed, 8);
}

// So are those of a pass of the target that is never finished.
TEST(HeadPassOnCard, AnUnfinishedPassOfTheTargetIsWaitedFor) {
    const auto files = hybrid();
    Machine machine({.n_cards = 1, .timing = Timing::Latest});
    const auto device = emulation::small_card(machine, 0);
    const Model model(*files, *device, {});
    Forward forward(model, forward_limits_for(emulation::kBudget));
    const std::int64_t n_nodes = SelfCheck::scratch_nodes_for(emulation::kBudget);
    KvCache cache(*device, model.kv_layouts(), 64, n_nodes);
    HiddenTail tail(*device, files->config().d_model, 8, n_nodes);
    RankTarget target(forward, cache);
    target.keep_hidden_in(&tail);
    const NodeId node = target.add_node(kCommittedTip, NodeKind::Certain);
    const TokenId token = 3;
    const std::int32_t row = 0;
    target.begin({.tokens = {&token, 1}, .nodes = {&node, 1}, .logit_tokens = {&row, 1}});
    EXPECT_GT(machine.n_waiting(), 0);
}

// The host waits once for a pass of the target, whose hidden states are kept or not, and once for a pass of the head.
TEST(HeadPassOnCard, WaitsOnceForAPass) {
    const auto files = hybrid();
    const TinyHead source(*files);
    Engine engine(*files, Devices::Card, Streams::Nothing, Timing::Latest);
    RankTarget& target = engine.target();
    const auto waits_of = [&](const auto& run) {
        const std::int64_t before = engine.machine.n_waits();
        run();
        return engine.machine.n_waits() - before;
    };
    const std::vector<TokenId> tokens = prompt_of(4);
    const std::int32_t last = 3;
    HiddenTail tail(target.hidden_device(), source.config().d_model, 8,
                    SelfCheck::scratch_nodes_for(emulation::kBudget));
    for (HiddenTail* kept : {static_cast<HiddenTail*>(nullptr), &tail}) {
        target.keep_hidden_in(kept);
        std::vector<NodeId> nodes;
        for (std::size_t i = 0; i < tokens.size(); ++i)
            nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back(), NodeKind::Certain));
        EXPECT_EQ(waits_of([&] {
                      static_cast<void>(target.run({.tokens = tokens,
                                                    .nodes = nodes,
                                                    .logit_tokens = {&last, 1},
                                                    .needs = LogitRequest{.n_best = 4}}));
                  }),
                  1);
        target.commit(nodes);
    }
    target.keep_hidden_in(nullptr);
    ASSERT_EQ(tail.begin(), 4);
    ASSERT_EQ(tail.end(), 8);

    ProposingHead head(source, *engine.devices.front(), {}, ProposingHead::LmHead::OfTarget);
    head.use_lm_head_of(*engine.on_cards->models.front());
    HeadPass pass(head, {.max_tokens = 8, .max_logit_rows = 4});
    KvCache cache(*engine.devices.front(), head.model().kv_layouts(), 16, 8);
    std::vector<NodeId> nodes;
    for (std::int64_t i = 0; i < 3; ++i) {
        nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
        std::ranges::copy(tail.row(4 + i), pass.input(i).begin());
    }
    const std::int32_t row = 2;
    EXPECT_EQ(
        waits_of([&] {
            const LogitRows rows = pass.run(cache, std::span(tokens).first(3), nodes, 3, {&row, 1}, {.n_best = 4});
            EXPECT_EQ(rows.top(0).ids.size(), 4U);
        }),
        1);
    // A chain goes on from hidden states that stay on the GPU: the host sends none.
    const NodeId next = cache.add_node(nodes.back());
    const std::int32_t first = 0;
    EXPECT_EQ(waits_of([&] {
                  static_cast<void>(pass.run(cache, {tokens.data(), 1}, {&next, 1}, 0, {&first, 1}, {.n_best = 4}));
              }),
              1);
}

}  // namespace
}  // namespace slipstream
