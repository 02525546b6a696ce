// Heads as files have them: with experts, and that of glm4_moe with an embedding and an LM head of its own, beside a
// target whose first layer is dense. Every text is that of plain decoding.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/models/mtp_source.h"
#include "runtime/formats/head_files.h"
#include "runtime/pass/hidden_tail.h"
#include "tests/support/golden_head.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

constexpr std::size_t kRing = std::size_t{1} << 20;  // bytes: the least expert and the largest item fit twice
constexpr std::int64_t kNew = 24;

class HeadsOfFiles : public testing::TestWithParam<const char*> {};

TEST_P(HeadsOfFiles, NeverChangeTheText) {
    const GoldenHead golden = load_golden_head(GetParam());
    const TempFolder folder;
    write_hugging_face(golden.model, folder.path());
    const auto files = ModelFiles::open(folder.path());
    const std::unique_ptr<HeadSource> source = open_head(*files);
    const std::vector<TokenId> prompt(golden.model.tokens.begin(), golden.model.tokens.begin() + 9);
    const std::int64_t n_layers = files->config().n_layers();
    DraftOptions options;
    options.sources = {SourceKind::Mtp};
    options.max_budget = SplitEngine::kBudget;
    options.adapt_budget = false;
    for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{n_layers}, {1, n_layers - 1}}) {
        for (const Streams streams : {Streams::Nothing, Streams::Both}) {
            SplitEngine engine(*files, split, streams, {}, kRing);
            const ProposingHead head(*source, engine.own.front()->device, {.context_tokens = SplitEngine::kContext},
                                     ProposingHead::LmHead::Own);
            for (const SamplerOptions& sampling :
                 {SamplerOptions{.temperature = 0.0}, {.temperature = 0.8, .top_k = 0, .top_p = 0.95, .seed = 4}}) {
                SCOPED_TRACE(fmt::format("{} devices, {}, T {}", split.size(),
                                         streams == Streams::Nothing ? "resident" : "streamed", sampling.temperature));
                const auto text = [&](Proposer& proposer, std::int64_t budget) {
                    engine.target->truncate(0);
                    return logged_generation(*engine.target, prompt, kNew, proposer, budget, sampling,
                                             golden.model.vocab);
                };
                NoProposer nothing;
                const Generated plain = text(nothing, 1);
                HiddenTail tail(engine.target->hidden_device(), source->config().d_model, kHiddenRows,
                                SelfCheck::scratch_nodes_for(SplitEngine::kBudget));
                DraftContext context;
                context.vocab = golden.model.vocab;
                context.sampling = sampling;
                context.head = &head;
                const std::unique_ptr<Drafter> drafter = make_drafter(options, context);
                drafter->attach_hidden(tail);
                engine.target->keep_hidden_in(&tail);
                EXPECT_EQ(text(*drafter, SplitEngine::kBudget), plain);
                EXPECT_GT(drafter->figures().front().offered, 0);
                engine.target->keep_hidden_in(nullptr);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, HeadsOfFiles, testing::Values("qwen35_moe", "glm4_moe", "glm4_moe_plain"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace slipstream::draft
