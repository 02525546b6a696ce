// Experts that stream are copied on demand: a pass brings those that its tokens chose, each once, and computes those
// that are on the device while they arrive. A prompt by layers brings all of them, once.
#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"
#include "offload/trace_file.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/model_pass.h"
#include "runtime/pass/pass_schedule.h"
#include "tests/support/error_text.h"
#include "tests/support/feed_chain.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kLayers = 4;  // the first is dense
constexpr std::int64_t kExperts = 9;
constexpr std::int64_t kChosen = 3;
constexpr std::int64_t kContext = 2048;
constexpr std::size_t kItemBytes = 8192;  // an expert in BF16 is larger, and one item

std::unique_ptr<ModelFiles> mixture(DType type, std::int64_t n_chosen = kChosen, bool shared_expert = false) {
    return make_tiny_model({.n_layers = kLayers,
                            .weight_type = type,
                            .n_experts = kExperts,
                            .n_chosen = n_chosen,
                            .shared_expert = shared_expert});
}

using Which = std::function<bool(const WeightItem&)>;
bool is_of_an_expert(const WeightItem& item) {
    return item.expert != kNoExpert;
}

/// A model of which some items stream, and a forward over it.
class Engine {
public:
    Engine(const ModelFiles& files, const Which& streams, std::size_t ring_bytes = std::size_t{1} << 18,
           bool kv_streams = false)
        : model(files, device, {.context_tokens = kContext, .placement = placement(files, streams)}),
          cache(device, model.kv_layouts(), kContext, scratch_nodes_for(kPrefillChunkTokens),
                {.resident_chunks = std::vector<std::int64_t>(kv_streams ? kLayers : 0, 0), .arena = &arena_}) {
        const PassReads reads{&model, &cache};
        if (reads.streams()) pass = std::make_unique<PassStream>(std::vector{reads}, arena_, ring_bytes);
        forward = std::make_unique<Forward>(
            model, ForwardLimits{.max_tokens = kPrefillChunkTokens, .max_logit_rows = 1}, pass.get());
    }

    std::vector<float> feed(std::span<const TokenId> tokens) { return feed_chain(*forward, cache, tokens); }
    /// Returns the bytes that came over the link, as the link counts them.
    [[nodiscard]] std::uint64_t link_bytes() const { return device.link_in().bytes; }
    [[nodiscard]] std::uint64_t expert_bytes() const { return model.items()[model.expert_item(kLayers - 1, 0)].bytes; }

private:
    WeightPlacement placement(const ModelFiles& files, const Which& streams) {
        WeightPlacement placement{.max_item_bytes = kItemBytes, .arena = &arena_};
        for (const WeightItem& item : cut_weight_items(files.weights(), WeightRounding::None, kItemBytes))
            placement.streams.push_back(streams(item));
        return placement;
    }

    PinnedArena arena_{{.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}};

public:
    CpuDevice device{{.n_threads = 2}};
    Model model;
    KvCache cache;
    std::unique_ptr<PassStream> pass;
    std::unique_ptr<Forward> forward;
};

ExpertFigures sum_of(const Forward& forward) {
    ExpertFigures sum;
    for (const ExpertFigures& layer : forward.expert_figures()) sum += layer;
    return sum;
}

TEST(ExpertCopies, APassCopiesTheExpertsThatItsTokensChose) {
    for (const DType type : {DType::BF16, DType::Q8_0}) {
        const auto files = mixture(type);
        Engine resident(*files, [](const WeightItem&) { return false; });
        Engine engine(*files, is_of_an_expert);
        const std::vector<TokenId> text = prompt_of(60);
        std::size_t at = 0;
        for (const std::size_t n : {1, 1, 9, 1, 40, 8}) {
            const std::uint64_t counted = engine.pass->figures().weights_bytes;
            const std::uint64_t over_link = engine.link_bytes();
            const ExpertFigures streamed = sum_of(*engine.forward);
            const ExpertFigures whole = sum_of(*resident.forward);
            const auto tokens = std::span(text).subspan(at, n);
            EXPECT_TRUE(same_bits(engine.feed(tokens), resident.feed(tokens)));
            at += n;
            const std::uint64_t bytes = engine.pass->figures().weights_bytes - counted;
            EXPECT_EQ(bytes, engine.link_bytes() - over_link);
            const ExpertFigures found = sum_of(*engine.forward) - streamed;
            const ExpertFigures chosen = sum_of(*resident.forward) - whole;
            EXPECT_EQ(found.needed, chosen.needed);
            EXPECT_EQ(chosen.hits, chosen.needed);
            EXPECT_EQ(found.hits, 0U);
            EXPECT_EQ(found.copied_bytes, bytes);
            EXPECT_EQ(chosen.copied_bytes, 0U);
            EXPECT_EQ(bytes, found.needed * engine.expert_bytes());
            if (n == 1) {
                EXPECT_EQ(found.needed, (kLayers - 1) * kChosen);
            } else {
                EXPECT_GT(found.needed, (kLayers - 1) * kChosen);
                EXPECT_LE(found.needed, (kLayers - 1) * kExperts);
            }
        }
        EXPECT_EQ(engine.forward->expert_figures().front().needed, 0U) << "the first layer is dense";
    }
}

// Where other weights and KV stream as well, what is counted of experts is the rest.
TEST(ExpertCopies, FiguresAreThoseOfExpertsAlone) {
    const auto files = mixture(DType::BF16);
    SplitEngine engine(*files, {1, 3}, Streams::Both);
    static_cast<void>(plainly(*engine.target, prompt_of(3), 30));
    std::uint64_t scheduled = 0;  // of one pass
    for (const auto& model : engine.models)
        for (std::int32_t i = 0; i < std::ssize(model->items()); ++i)
            if (model->streams(i) && !model->is_on_demand(i)) scheduled += model->items()[i].bytes;
    const std::vector<ExpertFigures> layers = engine.runner->expert_figures();
    ASSERT_EQ(std::ssize(layers), kLayers);
    std::uint64_t copied = 0;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        EXPECT_LE(layers[layer].hits, layers[layer].needed);
        // 30 passes, the first of three tokens.
        EXPECT_GE(layers[layer].needed, layer == 0 ? 0U : 30U * kChosen);
        EXPECT_LE(layers[layer].needed, layer == 0 ? 0U : 32U * kChosen);
        copied += layers[layer].copied_bytes;
    }
    EXPECT_GT(copied, 0U);
    EXPECT_EQ(copied, engine.runner->streamed().weights_bytes - 30 * scheduled);
}

// In pinned memory the experts of a layer that stream follow one another.
TEST(ExpertCopies, TheExpertsOfALayerAreOneBuffer) {
    const auto files = mixture(DType::BF16);
    Engine engine(*files, [](const WeightItem& item) { return item.expert % 2 == 1 || item.layer == 2; });
    const Model& model = engine.model;
    for (std::int64_t layer = 1; layer < kLayers; ++layer) {
        const std::byte* next = nullptr;
        for (std::int32_t expert = 0; expert < kExperts; ++expert) {
            const std::int32_t item = model.expert_item(layer, expert);
            EXPECT_EQ(model.items()[item].expert, expert);
            EXPECT_EQ(model.is_on_demand(item), expert % 2 == 1 || layer == 2);
            if (!model.is_on_demand(item)) continue;
            if (next != nullptr) {
                EXPECT_EQ(model.item_data(item), next);
            }
            next = model.item_data(item) + model.items()[item].bytes;
        }
    }
}

// Copies of KV do not hold up a long time what a pass waits for.
TEST(ExpertCopies, CopiesOfKvAreSmallBesideExpertsOnDemand) {
    const auto files = mixture(DType::BF16);
    const Engine resident(*files, [](const WeightItem&) { return false; });
    const Engine engine(*files, is_of_an_expert);
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    EXPECT_EQ(chunks_per_copy(resident.model, 64 * kMiB, kMiB), 16);
    EXPECT_EQ(chunks_per_copy(engine.model, 64 * kMiB, kMiB), 4);
    EXPECT_EQ(chunks_per_copy(engine.model, 8 * kMiB, kMiB), 2);
    EXPECT_EQ(chunks_per_copy(engine.model, 64 * kMiB, 5 * kMiB), 1);
}

TEST(ExpertCopies, WhereEachTokenChoosesAllAllAreCopied) {
    const auto files = mixture(DType::BF16, kExperts, true);
    Engine engine(*files, is_of_an_expert);
    static_cast<void>(engine.feed(prompt_of(1)));
    EXPECT_EQ(engine.pass->figures().weights_bytes, (kLayers - 1) * kExperts * engine.expert_bytes());
}

// A ring that holds no layer; the dense weights stream as well, every other expert, or KV.
TEST(ExpertCopies, SmallRingsGiveTheBitsOfTheResidentModel) {
    const auto files = mixture(DType::BF16, kChosen, true);
    Engine resident(*files, [](const WeightItem&) { return false; });
    const std::vector<TokenId> text = prompt_of(700);
    const auto logits_of = [&](Engine& engine) {
        std::vector<std::vector<float>> logits;
        std::size_t at = 0;
        for (const std::size_t n : {1, 300, 2, 250, 17, 1, 64})
            logits.push_back(engine.feed(std::span(text).subspan(std::exchange(at, at + n), n)));
        return logits;
    };
    const auto expected = logits_of(resident);
    int turn = 0;
    const Which every_other = [&](const WeightItem& item) { return is_of_an_expert(item) && turn++ % 2 == 0; };
    for (const Which& streams : std::vector<Which>{is_of_an_expert, every_other, [](const WeightItem&) { return true; },
                                                   [](const WeightItem& item) { return !is_of_an_expert(item); }}) {
        for (const bool kv_streams : {false, true}) {
            const auto least = [&] {
                Engine probe(*files, streams, std::size_t{4} << 20, kv_streams);
                return ring_slots({&probe.model, &probe.cache}).least_ring_bytes();
            }();
            for (const std::size_t ring : {least, least + 64, 3 * least}) {
                turn = 0;
                Engine engine(*files, streams, ring, kv_streams);
                EXPECT_EQ(logits_of(engine), expected) << ring;
            }
            turn = 0;
            EXPECT_THAT(error_text<OutOfBudget>([&] { Engine(*files, streams, least - 64, kv_streams); }),
                        AllOf(HasSubstr("does not hold two of the largest item that streams"), HasSubstr("--ring")));
        }
    }
}

// The prefill chunks choose nearly all experts, the token after them three per layer: each expert is copied once, and
// leaves the ring in time for the next layer.
TEST(ExpertCopies, APromptByLayersCopiesEachExpertOnce) {
    for (const std::int64_t n_prompt : {1025, 1100}) {
        const auto files = mixture(DType::BF16, 1);
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        // The least ring that holds a layer.
        std::size_t ring = std::size_t{1} << 16;
        const auto engine_with = [&](std::size_t bytes) {
            return std::make_unique<SplitEngine>(*files, std::vector<std::int64_t>{kLayers}, Streams::Weights,
                                                 std::vector<CpuDeviceOptions>{}, bytes);
        };
        const auto takes = [&](std::size_t bytes) {
            const auto engine = engine_with(bytes);
            return engine->runner->forward().runs_by_layer(engine->runner->cache(), 0, 1024, kPrefillChunkTokens);
        };
        while (!takes(ring)) ring += 4096;
        for (const std::size_t bytes : {ring, 2 * ring}) {
            const auto engine = engine_with(bytes);
            const Generated found = plainly(*engine->target, prompt_of(n_prompt), 1);
            EXPECT_EQ(found, plainly(*whole.target, prompt_of(n_prompt), 1));
            EXPECT_EQ(engine->runner->streamed().weights_bytes, engine->models.front()->streamed_bytes());
            whole.target->truncate(0);
        }
    }
}

// Target and draft model, say: what one needed is no concern of the other, and the schedules of both are dropped.
TEST(ExpertCopies, TwoModelsTakeTurnsWithOneRing) {
    const std::unique_ptr<ModelFiles> files[] = {
        mixture(DType::BF16),
        make_tiny_model({.n_layers = 2, .weight_type = DType::Q8_0, .n_experts = 5, .n_chosen = 2, .seed = 9})};
    for (const bool all_stream : {false, true}) {
        PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable});
        CpuDevice device({.n_threads = 2});
        std::vector<std::unique_ptr<Model>> models;
        std::vector<std::unique_ptr<KvCache>> caches;
        std::vector<PassReads> reads;
        for (const auto& each : files) {
            WeightPlacement placement{.max_item_bytes = kItemBytes, .arena = &arena};
            for (const WeightItem& item : cut_weight_items(each->weights(), WeightRounding::None, kItemBytes))
                placement.streams.push_back(all_stream || is_of_an_expert(item));
            models.push_back(std::make_unique<Model>(
                *each, device, LoadOptions{.context_tokens = kContext, .placement = std::move(placement)}));
            caches.push_back(std::make_unique<KvCache>(device, models.back()->kv_layouts(), kContext,
                                                       scratch_nodes_for(kPrefillChunkTokens)));
            reads.push_back({models.back().get(), caches.back().get()});
        }
        PassStream pass(reads, arena, std::size_t{1} << 17);
        std::vector<std::unique_ptr<Forward>> forwards;
        std::vector<std::unique_ptr<Engine>> resident;
        for (std::size_t i = 0; i < 2; ++i) {
            forwards.push_back(std::make_unique<Forward>(
                *models[i], ForwardLimits{.max_tokens = kPrefillChunkTokens, .max_logit_rows = 1}, &pass));
            resident.push_back(std::make_unique<Engine>(*files[i], [](const WeightItem&) { return false; }));
        }
        const std::vector<TokenId> text = prompt_of(40);
        std::size_t at[2] = {};
        for (const auto& [turn, n] : std::vector<std::pair<std::size_t, std::size_t>>{
                 {0, 3}, {1, 1}, {1, 7}, {0, 1}, {1, 2}, {0, 9}, {0, 1}, {1, 1}}) {
            const auto tokens = std::span(text).subspan(std::exchange(at[turn], at[turn] + n), n);
            EXPECT_TRUE(same_bits(feed_chain(*forwards[turn], *caches[turn], tokens), resident[turn]->feed(tokens)));
        }
    }
}

// The failed copy's part of the ring is lent to the prompt.
TEST(ExpertCopies, APromptByLayersAfterACopyThatFailed) {
    const auto files = mixture(DType::BF16);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated expected = plainly(*whole.target, prompt_of(1100), 1);
    CpuFaults faults;
    SplitEngine engine(*files, {kLayers}, Streams::Weights, {{.faults = &faults}}, std::size_t{1} << 20);
    ASSERT_TRUE(engine.runner->forward().runs_by_layer(engine.runner->cache(), 0, 1024, kPrefillChunkTokens));
    int of_experts = 0;
    // Scheduled copies run ahead, so it depends on the machine which copy is the first one of an expert.
    for (std::int64_t nth = 1; nth <= 400 && of_experts < 4; ++nth) {
        faults.copies_until_failure = nth;
        const std::string told =
            error_text<IoError>([&] { static_cast<void>(plainly(*engine.target, prompt_of(5), 1)); });
        faults.copies_until_failure = 0;
        engine.target->forget();
        engine.target->truncate(0);
        if (told.find("experts: ") == std::string::npos) {
            // A copy of the schedule, perhaps of the next one: then the next pass tells.
            static_cast<void>(
                error_text<IoError>([&] { static_cast<void>(plainly(*engine.target, prompt_of(5), 1)); }));
            engine.target->forget();
            engine.target->truncate(0);
            continue;
        }
        ++of_experts;
        EXPECT_EQ(plainly(*engine.target, prompt_of(1100), 1), expected) << told;
        engine.target->truncate(0);
    }
    EXPECT_GT(of_experts, 0);
}

TEST(ExpertCopies, ATraceHasATrackOfThem) {
    const auto files = mixture(DType::BF16);
    TempFolder folder;
    Engine engine(*files, is_of_an_expert);
    std::uint64_t copied = 0;
    {
        TraceFile trace(folder.path() / "trace.json");
        PassProfile profile(engine.device, {}, StageEnd::Enqueued, &trace);
        engine.pass->profile_with(&profile);
        static_cast<void>(engine.feed(prompt_of(7)));
        engine.pass->profile_with(nullptr);
        copied = engine.pass->figures().weights_bytes;
    }
    std::ifstream file(folder.path() / "trace.json");
    const nlohmann::json events = nlohmann::json::parse(file);
    std::uint64_t traced = 0;
    nlohmann::json track;
    for (const nlohmann::json& event : events)
        if (event["ph"] == "M" && event["args"]["name"].get<std::string>().ends_with(" copies on demand"))
            track = event["tid"];
    ASSERT_FALSE(track.is_null());
    for (const nlohmann::json& event : events)
        if (event["ph"] == "X" && event["tid"] == track) {
            EXPECT_EQ(event["cat"], "copy");
            EXPECT_GE(event["args"]["layer"], 1);
            traced += event["args"]["bytes"].get<std::uint64_t>();
        }
    EXPECT_EQ(traced, copied);
    EXPECT_GT(copied, 0U);
}

/// Items as they are in host memory, which a CPU device reads.
class HostItems final : public WeightStream {
public:
    HostItems(const Model& model, const PassProfile& profile) : model_(&model), profile_(&profile) {}
    [[nodiscard]] bool holds_item(std::int32_t) const override { return false; }
    std::int64_t need_items(std::span<ItemNeed> items, const PassChoices&, Stream&) override {
        EXPECT_EQ(n_used, needed.size());
        needed.clear();
        for (const ItemNeed& need : items) needed.push_back(need.item);
        EXPECT_TRUE(std::ranges::is_sorted(needed));
        n_used = 0;
        is_first_ = true;
        before_ = profile_->total(PassStage::Down).bytes;
        return 0;
    }
    const std::byte* acquire_item(std::int32_t item, Stream&) override {
        if (needed.empty() || item != needed[n_used]) ADD_FAILURE() << "item " << item;
        if (std::exchange(is_first_, false)) computed.push_back(profile_->total(PassStage::Down).bytes - before_);
        return model_->item_data(item);
    }
    void release_item(std::int32_t item, Stream&) override {
        EXPECT_EQ(item, needed[n_used]);
        ++n_used;
    }
    std::vector<std::int32_t> needed;
    std::size_t n_used = 0;
    std::vector<std::uint64_t> computed;  // at the first call for a layer: bytes that its down products have read

private:
    const Model* model_;
    const PassProfile* profile_;
    std::uint64_t before_ = 0;
    bool is_first_ = false;
};

TEST(ExpertCopies, ExpertsOnTheDeviceAreComputedBeforeOthersAreWaitedFor) {
    const auto files = mixture(DType::Q8_0, kExperts);
    for (const std::int32_t period : {1, 2, 3}) {  // every so many-th expert streams
        Engine engine(*files,
                      [&](const WeightItem& item) { return is_of_an_expert(item) && item.expert % period == 0; });
        const auto stream = engine.device.make_stream(StreamKind::Compute);
        PassProfile profile(engine.device, {}, StageEnd::Enqueued, nullptr);
        ModelPass pass(engine.model, *stream, {.n_tokens = 4, .n_logit_rows = 1, .streams = true}, nullptr);
        pass.profile_with(&profile);
        HostItems items(engine.model, profile);
        pass.read_from(&items, nullptr);
        const std::vector<TokenId> tokens = prompt_of(2);
        std::vector<NodeId> nodes{engine.cache.add_node(kCommittedTip)};
        nodes.push_back(engine.cache.add_node(nodes.back()));
        const PassRows rows{&engine.cache, tokens, nodes};
        pass.trace(engine.cache, nodes);
        pass.activations().use_hidden(pass.activations().memory(Activation::Hidden).data());
        pass.rope_angles(2);
        pass.embed(rows);
        for (std::int64_t layer = 0; layer < kLayers; ++layer) pass.run_layer(layer, rows, LayerPart::Whole);
        std::size_t resident = 0;
        for (std::int32_t expert = 0; expert < kExperts; ++expert)
            if (expert % period > 0)
                for (const MatrixPart& part : engine.model.parts(1, TensorRole::Down, expert))
                    resident += rows_bytes(part.packed);
        EXPECT_EQ(items.computed, std::vector<std::uint64_t>(kLayers - 1, resident)) << period;
        EXPECT_EQ(items.n_used, items.needed.size());
    }
}

TEST(ExpertCopiesDeathTest, AnItemThatWasNotNeededIsABug) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork alone has no thread that copies
    const auto files = mixture(DType::Q8_0);
    Engine engine(*files, is_of_an_expert);
    Stream& compute = engine.forward->exec().stream;
    engine.pass->begin_pass({&engine.model, &engine.cache}, compute);
    std::vector<ItemNeed> items{{engine.model.expert_item(1, 2)}, {engine.model.expert_item(1, 4)}};
    static_cast<void>(engine.pass->need_items(items, {}, compute));
    EXPECT_DEATH(static_cast<void>(engine.pass->acquire_item(items[1].item, compute)), "was not needed next");
    EXPECT_DEATH(static_cast<void>(engine.pass->need_items(items, {}, compute)), "2 items are needed, 0 of 2 used");
    EXPECT_DEATH(engine.pass->end_pass(compute), "a pass ends with 0 of 2 needed items used");
    engine.pass->abandon(compute);
}

}  // namespace
}  // namespace slipstream
