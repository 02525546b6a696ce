// The engine with `--draft mtp` on emulated GPUs, from files to a text: by name and as a part of `auto`, on one GPU, on
// two, on a GPU beside the CPU, and where KV streams. Every text is that of plain decoding there.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "draft/models/mtp_source.h"
#include "draft/source_set.h"
#include "emulated_machine.h"
#include "kernels/base/error.h"
#include "runtime/formats/head_files.h"
#include "runtime/pass/hidden_tail.h"
#include "runtime/plan/split_plan.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/golden_head.h"
#include "tests/support/temp_folder.h"
#include "tools/engine/engine.h"
#include "tools/engine/engine_drafter.h"
#include "tools/engine/planner.h"
#include "tools/machine/compute_device.h"

namespace slipstream::tools {
namespace {

using draft::SourceKind;
using emulation::Machine;
using emulation::Timing;

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Text {
    std::string text;
    std::int64_t offered = 0;              // by the head
    std::vector<std::size_t> draft_bytes;  // [devices]
    // In a pass at full context.
    std::size_t streamed_weights = 0;
    std::size_t streamed_kv = 0;
};

// Parameter: a golden head. That of GLM-4.5 has experts, and an embedding and an LM head of its own.
class MtpEngineOnCards : public testing::TestWithParam<const char*> {
protected:
    MtpEngineOnCards() : golden_(load_golden_head(GetParam())) {
        write_hugging_face(golden_.model, folder_.path());
        options_.compute.context_tokens = 64;
        options_.compute.offload.host_memory = 64 * kMiB;
        // A GPU is measured once, not by each generator.
        options_.compute.rates.file = rates_folder_.path() / "rates.txt";
    }
    void use(const std::vector<bool>& are_cards) {
        options_.compute.devices.clear();
        options_.compute.offload.devices.clear();
        options_.compute.offload.shares.clear();
        int n_cards = 0;
        for (const bool is_card : are_cards) {
            DeviceChoice choice;
            if (is_card) choice = {.card = n_cards++, .module = &machine_.table(), .why = ""};
            options_.compute.devices.push_back(choice);
            options_.compute.offload.devices.push_back({.memory_bytes = 64 * kMiB});
            if (are_cards.size() > 1) options_.compute.offload.shares.push_back(1);
        }
    }
    void draft_with(std::vector<SourceKind> sources, bool automatic = false) {
        options_.draft = {};
        options_.draft.list = "test";
        options_.draft.automatic = automatic;
        options_.draft.options.sources = std::move(sources);
        options_.draft.options.max_budget = 8;
        options_.draft.options.adapt_budget = false;  // asked in each pass, whether it pays or not
    }
    [[nodiscard]] Text generate(double temperature) {
        const auto tokenizer =
            make_tokenizer(ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target")->tokenizer_source());
        notes_.clear();
        details_.clear();
        const EngineCallbacks callbacks{
            .on_note = [this](std::string_view line) { notes_.append(line).append("\n"); },
            .on_detail = [this](std::string_view line) { details_.append(line).append("\n"); }};
        TextGenerator generator(options_, OpenedModel(folder_.path()), {.temperature = temperature, .seed = 5}, {},
                                callbacks);
        Text made{.text = "", .draft_bytes = {}};
        EXPECT_EQ(generator.start({golden_.model.tokens.begin(), golden_.model.tokens.begin() + 9}), 0);
        TextGenerationOptions options;
        options.max_tokens = 16;
        static_cast<void>(generator.generate(*tokenizer, StreamingDetokenizer::Start::Continued, options,
                                             {.on_text = [&](std::string_view part) { made.text += part; }}));
        const SourceTotals sources = generator.sources();
        for (const SourceTotal& total : sources.totals())
            if (total.name == "mtp") made.offered += total.offered;
        for (const DeviceMemory& memory : generator.model().device_memory()) made.draft_bytes.push_back(memory.draft);
        const SplitPlan& plan = *generator.model().plan();
        made.streamed_weights = plan.sums().streamed_weights_bytes;
        made.streamed_kv = plan.sums().streamed_kv_bytes;
        return made;
    }

    Machine machine_{{.n_cards = 2, .timing = Timing::Latest}};
    GoldenHead golden_;
    TempFolder folder_, rates_folder_;
    GeneratorOptions options_;
    std::string notes_, details_;
};

TEST_P(MtpEngineOnCards, TheTextIsThatOfPlainDecoding) {
    use({true});
    for (const double temperature : {0.0, 0.8}) {
        options_.draft = {};
        const Text plain = generate(temperature);
        EXPECT_EQ(plain.draft_bytes.front(), 0U);
        for (const bool automatic : {false, true}) {
            draft_with({SourceKind::Context, SourceKind::Mtp}, automatic);
            const Text drafted = generate(temperature);
            EXPECT_EQ(drafted.text, plain.text);
            EXPECT_GT(drafted.offered, 0) << notes_ << details_;
            EXPECT_GT(drafted.draft_bytes.front(), 0U);
        }
    }
}

// With less and less memory, KV streams where there is much of it, and weights where there is little: those of the
// other model are fewer than what streaming itself takes. A head without an LM head of its own has a copy then.
TEST_P(MtpEngineOnCards, WhatStreamsLeavesTheTextThatOfPlainDecoding) {
    use({true});
    for (const std::int64_t context_tokens : {64, 1 << 15}) {  // KV that is smaller, or larger, than the weights
        if (context_tokens == 64 && GetParam() != std::string_view("glm4_moe")) continue;
        options_.compute.context_tokens = context_tokens;
        options_.compute.offload.devices.front().memory_bytes = 64 * kMiB;
        options_.draft = {};
        const Text plain = generate(0.8);
        draft_with({SourceKind::Mtp});
        std::size_t too_few = 0;
        std::size_t enough = 64 * kMiB;
        Text drafted;
        while (enough - too_few > kMiB / 32) {
            const std::size_t bytes = (too_few + enough) / 2;
            options_.compute.offload.devices.front().memory_bytes = bytes;
            try {
                drafted = generate(0.8);
                enough = bytes;
                EXPECT_EQ(drafted.text, plain.text) << bytes;
                EXPECT_GT(drafted.offered, 0) << notes_ << details_;
            } catch (const OutOfBudget&) {
                too_few = bytes;
            }
        }
        EXPECT_GT(context_tokens > 64 ? drafted.streamed_kv : drafted.streamed_weights, 0U) << enough;
    }
}

// Page-locked host memory of the head, and of the hidden states that it reads, is part of a plan's, and of
// --host-memory.
TEST_P(MtpEngineOnCards, HostMemoryOfTheHeadIsCounted) {
    draft_with({SourceKind::Mtp});
    for (const std::vector<bool>& are_cards : {std::vector<bool>{true}, {true, false}, {false, true}, {true, true}}) {
        use(are_cards);
        const PlacedModel placed(OpenedModel(folder_.path()), options_.compute, {});
        const Drafting drafting({&options_.draft, 1}, placed, nullptr, {}, {});
        const RunNeeds needs = drafting.needs(0);
        const std::unique_ptr<HeadSource> head = open_head(placed.files());
        const draft::DraftOptions& options = options_.draft.options;
        const std::int64_t nodes = draft::model_nodes(options, placed.config().vocab);
        const std::size_t passes =
            are_cards.front() ? draft::MtpSource::pinned_bytes(head->config(), nodes) : std::size_t{0};
        EXPECT_EQ(needs.head_pass_bytes, passes);
        const HiddenTail::HostBytes tail =
            HiddenTail::host_bytes(placed.config().d_model, needs.hidden_rows, needs.scratch_nodes);
        EnginePlanRequest asked{.needs = needs};
        const PlacementRequest request = placement_request(placed, asked);
        const HostNeeds host = host_needs(request, SplitPlan(split_plan_request(request)));
        EXPECT_EQ(host.hidden_tail_bytes, tail.all);
        EXPECT_EQ(host.locked_tail_bytes, are_cards.back() ? tail.of_nodes : std::size_t{0});
        EXPECT_EQ(host.needed_locked_bytes(), host.pinned_bytes + host.hidden_bytes + host.locked_tail_bytes + passes);
        if (are_cards.front()) {
            EXPECT_EQ(head_host_bytes(*head, options, placed, ProposingHead::LmHead::Own),
                      tail.all + passes + head->own_embedding_bytes());
        }
    }
    use({true});
    options_.compute.offload.host_memory = 4096;
    EXPECT_THROW(static_cast<void>(generate(0.0)), OutOfBudget);
    draft_with({SourceKind::Context, SourceKind::Mtp}, true);
    EXPECT_EQ(generate(0.0).offered, 0);
    EXPECT_NE(details_.find("auto leaves mtp out: the MTP head takes"), std::string::npos) << details_;
}

// The head is on the first device. On one it uses the LM head of the target; on several it has a copy, or has its own
// anyway.
TEST_P(MtpEngineOnCards, SeveralDevicesGiveTheTextOfPlainDecoding) {
    use({true});
    draft_with({SourceKind::Mtp});
    const std::size_t on_one = generate(0.8).draft_bytes.front();
    const bool has_own = open_head(*ModelFiles::open(folder_.path()))->has_own_lm_head();
    for (const std::vector<bool>& are_cards : {std::vector<bool>{true, true}, {true, false}, {false, true}}) {
        use(are_cards);
        options_.draft = {};
        const Text plain = generate(0.8);
        EXPECT_EQ(plain.draft_bytes, (std::vector<std::size_t>{0, 0}));
        draft_with({SourceKind::Mtp});
        const Text drafted = generate(0.8);
        EXPECT_EQ(drafted.text, plain.text);
        EXPECT_GT(drafted.offered, 0) << notes_ << details_;
        EXPECT_EQ(drafted.draft_bytes.back(), 0U);
        if (are_cards.front() && has_own) {
            EXPECT_EQ(drafted.draft_bytes.front(), on_one);
        } else if (are_cards.front()) {
            EXPECT_GT(drafted.draft_bytes.front(), on_one);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, MtpEngineOnCards, testing::Values("qwen35", "glm4_moe"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace slipstream::tools
