// The golden models with delta nets (Qwen3.5, Qwen3.5-MoE, Qwen3-Next) on an emulated GPU. Qwen3.5-MoE multiplies the
// result of its shared expert by a gate; Qwen3-Next computes the inputs of a delta net by two joined matrices. Logits
// are near the golden ones. Texts are the same bits wherever weights and KV are, with draft tokens and without.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runner_on_cards.h"
#include "tests/support/golden_model.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;

struct Engine {
    Engine(const ModelFiles& files, Streams streams)
        : machine({.n_cards = 1, .timing = Timing::Latest}),
          card(emulation::small_card(machine, 0)),
          arena({.limit_bytes = std::size_t{16} << 20, .device = card.get()}),
          on_card(files, {card.get()}, {whole_shard(files.config())}, arena, streams, nullptr, std::nullopt,
                  files.config().context_tokens) {}
    [[nodiscard]] RankTarget& target() { return on_card.runner->target(); }

    Machine machine;
    std::unique_ptr<Device> card;
    PinnedArena arena;
    RunnerOnCards on_card;
};

class GoldenHybridOnCard : public testing::TestWithParam<const char*> {};

TEST_P(GoldenHybridOnCard, HasTheGoldenLogitsAndOneText) {
    const GoldenModel golden = load_golden_model(GetParam());
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    const auto files = ModelFiles::open(folder.path());

    auto resident = std::make_unique<Engine>(*files, Streams::Nothing);  // one machine exists at a time
    RankTarget& target = resident->target();
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < golden.tokens.size(); ++i)
        nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back(), NodeKind::Certain));
    std::vector<std::int32_t> rows(static_cast<std::size_t>(golden.n_rows()));
    std::iota(rows.begin(), rows.end(), static_cast<std::int32_t>(nodes.size() - rows.size()));
    ASSERT_LE(std::ssize(nodes), forward_limits_for(emulation::kBudget).max_tokens);
    double error = 0.0, size = 0.0;
    for (const std::int32_t row : rows) {
        const auto logit_row = static_cast<std::int32_t>(row);
        const LogitRows found = target.run({.tokens = golden.tokens, .nodes = nodes, .logit_tokens = {&logit_row, 1}});
        for (std::int64_t i = 0; i < golden.vocab; ++i) {
            const double expected = golden.logits[(row - rows.front()) * golden.vocab + i];
            error += (found.row(0)[i] - expected) * (found.row(0)[i] - expected);
            size += expected * expected;
        }
    }
    EXPECT_LT(error, 1e-6 * size) << error / size;
    target.forget();

    const auto text_of = [&](RankTarget& on, const std::vector<TokenId>& future) {
        NoProposer nothing;
        ScriptedProposer scripted(future, 0.7, 5, static_cast<std::uint32_t>(golden.vocab));
        Proposer& proposer = future.empty() ? static_cast<Proposer&>(nothing) : scripted;
        return logged_generation(on, golden.tokens, 12, proposer, future.empty() ? 1 : emulation::kBudget,
                                 {.temperature = 0.8, .seed = 3}, golden.vocab);
    };
    const Generated one = text_of(target, {});
    resident.reset();
    for (const Streams streams : {Streams::Nothing, Streams::Kv, Streams::Both})
        for (const bool drafts : {false, true}) {
            Engine engine(*files, streams);
            EXPECT_EQ(text_of(engine.target(), drafts ? one.text : std::vector<TokenId>{}), one);
        }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenHybridOnCard, testing::Values("qwen35", "qwen35_moe", "qwen3_next"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace slipstream
