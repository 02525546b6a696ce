// The engine with `--draft mtp` on emulated cards, from files to a text: by name and as a part of `auto`, on a card,
// two cards, a card beside the CPU, and where weights stream. Every text is that of plain decoding there.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/golden_head.h"
#include "tests/support/temp_folder.h"
#include "tools/engine/engine.h"
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
};

class MtpEngineOnCards : public testing::Test {
protected:
    MtpEngineOnCards() : golden_(load_golden_head("qwen35")) {
        write_hugging_face(golden_.model, folder_.path());
        options_.compute.context_tokens = 64;
        options_.compute.offload.host_memory = 64 * kMiB;
        // A card is measured once, not by each generator.
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
        Text made{.text = "", .offered = 0, .draft_bytes = {}};
        EXPECT_EQ(generator.start({golden_.model.tokens.begin(), golden_.model.tokens.begin() + 9}), 0);
        TextGenerationOptions options;
        options.max_tokens = 16;
        static_cast<void>(generator.generate(*tokenizer, StreamingDetokenizer::Start::Continued, options,
                                             {.on_text = [&](std::string_view part) { made.text += part; }}));
        const SourceTotals sources = generator.sources();
        for (const SourceTotal& total : sources.totals())
            if (total.name == "mtp") made.offered += total.offered;
        for (const DeviceMemory& memory : generator.model().device_memory()) made.draft_bytes.push_back(memory.draft);
        return made;
    }

    Machine machine_{{.n_cards = 2, .timing = Timing::Latest}};
    GoldenHead golden_;
    TempFolder folder_, rates_folder_;
    GeneratorOptions options_;
    std::string notes_, details_;
};

TEST_F(MtpEngineOnCards, TheTextIsThatOfPlainDecoding) {
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

// The head is on the first device. On one it uses the LM head of the target; on several it has a copy.
TEST_F(MtpEngineOnCards, SeveralDevicesGiveTheTextOfPlainDecoding) {
    use({true});
    draft_with({SourceKind::Mtp});
    const std::size_t on_one = generate(0.8).draft_bytes.front();
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
        if (are_cards.front()) {
            EXPECT_GT(drafted.draft_bytes.front(), on_one);
        }
    }
}

}  // namespace
}  // namespace slipstream::tools
