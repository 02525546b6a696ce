// A model whose layers differ in heads and head size: each layer has a KV layout of its own, and texts, logits and KV
// are those of the resident model wherever weights and KV are.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/pass/prompt_kv_areas.h"
#include "runtime/plan/pass_items.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/error_text.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensor_engine.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"

namespace slipstream {
namespace {

// Rows of 64, 256, 256, 20 and 64 bytes: two layers in a row are alike, and one row is not whole vectors.
const std::vector<LayerHeads> kHeads{{4, 2, 16}, {4, 4, 32}, {4, 4, 32}, {3, 1, 10}, {6, 2, 16}};
constexpr std::int64_t kLayers = 5;
constexpr std::size_t kRing = std::size_t{1} << 19;  // four of the largest KV chunk

std::unique_ptr<ModelFiles> mixed_model(std::int64_t window = 0) {
    return make_tiny_model({.n_layers = kLayers, .heads = kHeads, .window = window, .weight_type = DType::BF16});
}

TEST(MixedLayers, EveryLayerHasItsOwnLayout) {
    const auto files = mixed_model();
    const std::vector<KvLayout> layouts = files->config().kv_layouts(DType::F16);
    ASSERT_EQ(layouts.size(), kHeads.size());
    std::size_t of_chunks = 0;
    for (std::size_t layer = 0; layer < layouts.size(); ++layer) {
        EXPECT_EQ(layouts[layer], (KvLayout{kHeads[layer].n_kv_heads, kHeads[layer].head_dim, DType::F16}));
        of_chunks += layouts[layer].chunk_bytes();
    }
    EXPECT_EQ(kv_bytes(files->config(), DType::F16, 257), 2 * of_chunks);
    EXPECT_EQ(largest_chunk_bytes(layouts), layouts[1].chunk_bytes());
}

// Rows of a layer go to its own chunks, whatever the layers before it have.
TEST(MixedLayers, ACommitMovesTheRowsOfEveryLayer) {
    const auto files = mixed_model();
    const std::vector<KvLayout> layouts = files->config().kv_layouts(DType::F16);
    CpuDevice device({.n_threads = 1});
    const std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    const ExecRef exec{device, *stream};
    KvCache cache(device, layouts, 300, 3);
    EXPECT_EQ(device.budget().used_bytes(MemoryTag::Kv), KvCache::device_bytes(layouts, 300, 3));
    std::vector<NodeId> nodes;
    for (int i = 0; i < 3; ++i) nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
    std::vector<std::vector<std::byte>> expected;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const std::size_t bytes = 3 * layouts[layer].scratch_row_bytes();
        std::fill_n(cache.scratch_k(layer), bytes, static_cast<std::byte>(16 * layer + 1));
        std::fill_n(cache.scratch_v(layer), bytes, static_cast<std::byte>(16 * layer + 2));
    }
    // The same rows in a cache of that layer alone.
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const KvLayout& layout = layouts[layer];
        KvCache alone(device, {&layout, 1}, 300, 3);
        std::vector<NodeId> path;
        for (int i = 0; i < 3; ++i) path.push_back(alone.add_node(i == 0 ? kCommittedTip : path.back()));
        std::copy_n(cache.scratch_k(layer), 3 * layout.scratch_row_bytes(), alone.scratch_k(0));
        std::copy_n(cache.scratch_v(layer), 3 * layout.scratch_row_bytes(), alone.scratch_v(0));
        std::fill_n(alone.chunks(0)[0], layout.chunk_bytes(), std::byte{0x55});
        std::fill_n(cache.chunks(layer)[0], layout.chunk_bytes(), std::byte{0x55});
        alone.commit(exec, path);
        expected.emplace_back(layout.chunk_bytes());
        alone.read_chunk(exec, 0, 0, expected.back().data());
    }
    cache.commit(exec, nodes);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        std::vector<std::byte> found(expected[layer].size());
        cache.read_chunk(exec, layer, 0, found.data());
        EXPECT_TRUE(found == expected[layer]) << "layer " << layer;
    }
}

// Weights, KV or both streamed; on one device or split by layers; plainly or over trees that a self-check computes
// again.
TEST(MixedLayers, EverySplitAndPlacementGivesTheTextLogitsAndKvOfOneDevice) {
    const auto files = mixed_model(300);
    for (const std::int64_t n_prompt : {3, 700}) {
        const std::int64_t n_tokens = n_prompt == 3 ? 300 : 60;
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
        const std::vector<std::byte> kv = kv_of(*whole.target);
        ASSERT_FALSE(kv.empty());
        for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {3, 2}, {1, 4}}) {
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                SplitEngine engine(*files, split, streams, {}, kRing);
                for (const std::int64_t budget : {1, 9}) {
                    engine.target->truncate(0);
                    NoProposer nothing;
                    ScriptedProposer scripted(one.text, 0.7, 3);
                    Proposer& proposer = budget > 1 ? static_cast<Proposer&>(scripted) : nothing;
                    const Generated found = generate(*engine.target, prompt_of(n_prompt), n_tokens, proposer, budget,
                                                     budget > 1 ? engine.plain : nullptr);
                    EXPECT_EQ(found.text, one.text) << n_prompt << " " << testing::PrintToString(split);
                    EXPECT_TRUE(same_bits(found.logits, one.logits)) << static_cast<int>(streams);
                    EXPECT_EQ(kv_of(*engine.target), kv) << testing::PrintToString(split);
                }
            }
        }
    }
}

// A prompt layer by layer: the KV of a layer in an area of the ring, or read again for each prefill chunk.
TEST(MixedLayers, APromptByLayersGivesTheBitsOfTheResidentModel) {
    for (const std::int64_t window : {0, 700}) {
        const auto files = mixed_model(window);
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        const Generated one = plainly(*whole.target, prompt_of(2300), 3);
        const std::vector<std::byte> kv = kv_of(*whole.target);
        const auto by_layers = [&](SplitEngine& engine, std::int64_t begin) {
            return engine.runner->forward().runs_by_layer(engine.runner->cache(), begin, 2048, kPrefillChunkTokens);
        };
        std::size_t least = kRing;
        for (;; least += std::size_t{1} << 13) {
            SplitEngine engine(*files, {kLayers}, Streams::Both, {}, least);
            if (by_layers(engine, 0)) break;
        }
        for (const bool is_small : {false, true}) {
            const std::size_t ring = is_small ? least : std::size_t{2} << 20;
            SplitEngine engine(*files, {kLayers}, Streams::Both, {}, ring);
            ASSERT_TRUE(by_layers(engine, 0));
            const std::size_t area = PromptKvAreas::area_bytes(engine.runner->cache(), 2048 / kChunkTokens);
            ASSERT_EQ(is_small, area > ring) << "an area of " << area;
            const Generated found = plainly(*engine.target, prompt_of(2300), 3);
            EXPECT_EQ(found.text, one.text);
            EXPECT_TRUE(same_bits(found.logits, one.logits)) << "window " << window << ", small " << is_small;
            EXPECT_EQ(kv_of(*engine.target), kv) << "window " << window << ", small " << is_small;
            // On from inside a KV chunk.
            engine.target->truncate(700);
            ASSERT_TRUE(by_layers(engine, 700));
            EXPECT_TRUE(same_bits(plainly(*engine.target, prompt_of(2300), 3).logits, one.logits));
            EXPECT_EQ(kv_of(*engine.target), kv);
        }
    }
}

TEST(MixedLayers, ATextMayBeCutBackAnywhere) {
    const auto files = mixed_model(300);
    std::mt19937 random(5);
    for (const Streams streams : {Streams::Kv, Streams::Both}) {
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        SplitEngine streamed(*files, {kLayers}, streams, {}, kRing);
        std::vector<TokenId> text = prompt_of(800);
        for (int turn = 0; turn < 6; ++turn) {
            NoProposer nothing;
            const Generated expected = generate(*whole.target, text, 20, nothing, 1);
            const Generated found = generate(*streamed.target, text, 20, nothing, 1);
            ASSERT_EQ(found.text, expected.text) << "turn " << turn;
            ASSERT_TRUE(same_bits(found.logits, expected.logits)) << "turn " << turn;
            const auto kept = static_cast<std::int64_t>(random() % static_cast<unsigned>(whole.target->n_committed()));
            text = found.text;
            text.resize(static_cast<std::size_t>(kept));
            whole.target->truncate(kept);
            streamed.target->truncate(kept);
            for (const TokenId token : prompt_of(1 + static_cast<std::int64_t>(random() % 300))) text.push_back(token);
        }
    }
}

// Blocks of a session have one size; those of smaller layers are padded.
TEST(MixedLayers, ASessionGoesOnOnAnotherSplit) {
    const auto files = mixed_model(300);
    SplitEngine whole(*files, {kLayers}, Streams::Nothing);
    const Generated all = plainly(*whole.target, prompt_of(600), 60);
    const TempFolder folder;
    const auto path = folder.path() / "session";
    SplitEngine first(*files, {2, 3}, Streams::Both, {}, kRing);
    const Generated begun = plainly(*first.target, prompt_of(600), 30);
    {
        SessionBegin begin = sample_begin();
        begin.context_tokens = SplitEngine::kContext;
        begin.kv_bytes = session_kv_bytes(first.target->shape().kv);
        begin.prompt = prompt_of(600);
        SessionFile session = SessionFile::create(path, begin);
        session.append_tokens(std::span(begun.text).subspan(600));
        EXPECT_EQ(SessionKv(session, *first.target, std::size_t{1} << 30).save(), std::nullopt);
        EXPECT_EQ(session.n_kv_blocks(), 2 * kLayers);
    }
    for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {4, 1}}) {
        for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
            SplitEngine second(*files, split, streams, {}, kRing);
            auto session = SessionFile::open(path);
            EXPECT_EQ(SessionKv(*session, *second.target, std::size_t{1} << 30).restore(), 2 * kChunkTokens);
            std::vector<std::byte> kept = kv_of(*first.target);
            EXPECT_EQ(kv_of(*second.target), kept);
            NoProposer nothing;
            EXPECT_EQ(generate(*second.target, begun.text, 30, nothing, 1).text, all.text);
        }
    }
}

// A view that keeps the whole text is the cache, also one that was filled while KV streamed, or was cut.
TEST(MixedLayers, AViewOfTheWholeTextGivesTheBitsOfTheCache) {
    const auto files = mixed_model();
    const ViewOptions whole{.budget_tokens = ViewedModel::kContext, .rebuild_tokens = 100, .growth_tokens = 128};
    for (const std::vector<std::int64_t>& resident : {std::vector<std::int64_t>{}, {0, 0, 0, 0, 0}, {1, 0, 2, 0, 8}}) {
        CpuDevice device({.n_threads = 1});
        ViewedModel viewed(*files, device, whole, resident);
        viewed.feed(700);
        viewed.run_until_built();
        EXPECT_TRUE(viewed.same_logits());
        viewed.run(6, 3);  // grown by rows of the cache's scratch
        EXPECT_TRUE(viewed.same_logits());
        viewed.target->truncate(viewed.cache.n_committed() - 2);
        EXPECT_TRUE(viewed.same_logits());
    }
}

TEST(MixedLayers, AViewChoosesGroupsOfEachLayersHeads) {
    const auto files = mixed_model();
    CpuDevice device({.n_threads = 1});
    ViewedModel viewed(*files, device,
                       {.budget_tokens = 128, .sink_tokens = 8, .recent_tokens = 32, .growth_tokens = 64}, {});
    viewed.feed(700);
    viewed.run_until_built();
    ASSERT_EQ(viewed.view.n_text(), viewed.cache.n_committed());
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
        EXPECT_EQ(std::ssize(viewed.builder.chosen(layer)), kHeads[layer].n_kv_heads * 128 / kGroupTokens);
}

TEST(MixedLayers, MatricesAreNotSplitIfALayerHasOneKvHead) {
    const auto files = mixed_model();
    const std::vector<double> shares{1.0, 1.0};
    EXPECT_EQ(error_text<Unsupported>([&] {
                  static_cast<void>(parts_by_share(SplitKind::Tensor, files->config(), files->weights(), shares));
              }),
              "layers with 1 to 4 kv heads cannot be shared among devices; split the model by layers");
}

// Head sizes may differ: heads stay together if those of any layer have to.
TEST(MixedLayers, MatricesOfEqualNumbersOfHeadsAreSplit) {
    const auto files =
        make_tiny_model({.n_layers = 3, .heads = {{4, 2, 16}, {4, 2, 32}, {2, 2, 24}}, .weight_type = DType::F32});
    SplitEngine whole(*files, {3}, Streams::Nothing);
    TensorEngine several(*files, {1, 1}, Streams::Both);
    EXPECT_TRUE(std::ranges::equal(several.target->shape().kv, whole.target->shape().kv));
    // Computed again by the self-check, which compares the rows of all layers and heads.
    const Generated plain = plainly(*several.target, prompt_of(300), 30);
    several.target->truncate(0);
    ScriptedProposer scripted(plain.text, 0.7, 3);
    const Generated checked = generate(*several.target, prompt_of(300), 30, scripted, 9, several.plain);
    EXPECT_TRUE(same_bits(checked.logits, plain.logits));
    // Rows of the whole model: those of both ranks are where one device has them.
    const auto row = [](RankTarget& target) {
        std::size_t bytes = 0;
        for (const KvLayout& layout : target.shape().kv) bytes += 2 * layout.scratch_row_bytes();
        std::vector<std::byte> rows(bytes);
        target.truncate(0);
        const NodeId node = target.add_node(kCommittedTip);
        const TokenId token = 5;
        const std::int32_t first = 0;
        static_cast<void>(target.run({.tokens = {&token, 1}, .nodes = {&node, 1}, .logit_tokens = {&first, 1}}));
        target.read_rows(node, rows.data());
        target.forget();
        return rows;
    };
    const std::vector<std::byte> of_several = row(*several.target);
    const std::vector<std::byte> of_one = row(*whole.target);
    // Only layer 0 has the bits of the whole model: later ones read sums over ranks.
    const std::size_t first_layer = 2 * whole.target->shape().kv.front().scratch_row_bytes();
    EXPECT_TRUE(
        std::equal(of_one.begin(), of_one.begin() + static_cast<std::ptrdiff_t>(first_layer), of_several.begin()));
}

}  // namespace
}  // namespace slipstream
