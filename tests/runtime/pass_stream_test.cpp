// Weights and KV stream apart, and passes of several forwards take turns: over one model and several caches, over one
// cache by several models, through one ring.
#include "runtime/pass/pass_stream.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/pass/forward.h"
#include "tests/support/feed_chain.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = 3072;
constexpr std::int64_t kChunk = 512;

std::vector<TokenId> random_tokens(std::size_t n) {
    std::mt19937 random(7);
    std::vector<TokenId> tokens(n);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 97);
    return tokens;
}

// A model twice, its weights streamed or resident, and a cache whose chunks stream beside one whose chunks do not.
class Engine {
public:
    explicit Engine(const ModelFiles& files)
        : arena_({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}),
          streamed_model(files, device_, {.context_tokens = kContext, .placement = all_stream(files)}),
          resident_model(files, device_, {.context_tokens = kContext}),
          streamed_kv(device_, resident_model.kv_layouts(), kContext, kChunk,
                      {.resident_chunks = {0, 2, 1}, .arena = &arena_}),
          resident_kv(device_, resident_model.kv_layouts(), kContext, kChunk),
          pass({{&streamed_model, &streamed_kv}, {&resident_model, &streamed_kv}, {&streamed_model, &resident_kv}},
               arena_, std::size_t{512} << 10),
          streamed(streamed_model, {.max_tokens = kChunk, .max_logit_rows = 1}, &pass),
          resident(resident_model, {.max_tokens = kChunk, .max_logit_rows = 1}, &pass) {}

private:
    WeightPlacement all_stream(const ModelFiles& files) {
        const std::size_t n_items = cut_weight_items(files.weights(), WeightRounding::None, 16384).size();
        return {.max_item_bytes = 16384, .streams = std::vector<bool>(n_items, true), .arena = &arena_};
    }
    PinnedArena arena_;
    CpuDevice device_{{.n_threads = 2}};

public:
    Model streamed_model, resident_model;
    KvCache streamed_kv, resident_kv;
    PassStream pass;
    Forward streamed, resident;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Logits of each position of `tokens`, all resident.
std::vector<std::vector<float>> plain_logits(const ModelFiles& files, const std::vector<TokenId>& tokens) {
    CpuDevice device({.n_threads = 2});
    const Model model(files, device, {.context_tokens = kContext});
    KvCache cache(device, model.kv_layouts(), kContext, kChunk);
    Forward forward(model, {.max_tokens = 1, .max_logit_rows = 1});
    std::vector<std::vector<float>> logits;
    for (const TokenId& token : tokens) logits.push_back(feed_chain(forward, cache, {&token, 1}));
    return logits;
}

TEST(PassStream, ForwardsTakeTurnsOverOneCache) {
    const auto files = make_tiny_model({.n_layers = 3});
    const std::vector<TokenId> tokens = random_tokens(2400);
    const std::vector<std::vector<float>> plain = plain_logits(*files, tokens);
    std::mt19937 random(3);
    for (int round = 0; round < 3; ++round) {
        Engine engine(*files);
        const StreamFigures& figures = engine.pass.figures();
        std::int64_t at[2] = {0, 0};
        while (at[0] < std::ssize(tokens) || at[1] < std::ssize(tokens)) {
            // Weights stream, KV streams, both.
            const unsigned way = random() % 3;
            KvCache& cache = way == 0 ? engine.resident_kv : engine.streamed_kv;
            Forward& forward = way == 1 ? engine.resident : engine.streamed;
            std::int64_t& done = at[way == 0 ? 0 : 1];
            const std::int64_t left = std::ssize(tokens) - done;
            if (left == 0) continue;
            const auto n = std::min<std::int64_t>(left, 1 + static_cast<std::int64_t>(random() % 90));
            const StreamFigures before = figures;
            const auto row = feed_chain(
                forward, cache, std::span(tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(n)));
            done += n;
            ASSERT_TRUE(same_bits(row, plain[done - 1])) << "position " << done - 1;
            EXPECT_EQ(figures.weights_bytes > before.weights_bytes, way != 1);
            if (way == 0) {
                EXPECT_EQ(figures.kv_bytes, before.kv_bytes);
            }
            if (random() % 40 == 0) {  // cut back, sometimes into a chunk that is on the host
                done -= static_cast<std::int64_t>(random() % static_cast<unsigned>(std::min<std::int64_t>(done, 400)));
                cache.truncate(forward.exec(), done);
            }
        }
        EXPECT_GT(figures.kv_bytes, 0U);
    }
}

// A prompt by layers through the same ring, between passes of the other forward.
TEST(PassStream, PromptsByLayerTakeTurns) {
    const auto files = make_tiny_model({.n_layers = 3});
    const std::vector<TokenId> tokens = random_tokens(2200);
    const std::vector<std::vector<float>> plain = plain_logits(*files, tokens);
    Engine engine(*files);
    const auto part = [&](std::int64_t begin, std::int64_t end) {
        return std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    };
    EXPECT_FALSE(engine.resident.runs_by_layer(engine.resident_kv, 0, 1024, kChunk)) << "nothing streams";
    std::int64_t at = 0;
    for (const bool weights_stream : {false, true, false}) {
        Forward& forward = weights_stream ? engine.streamed : engine.resident;
        Forward& other = weights_stream ? engine.resident : engine.streamed;
        const std::int64_t border = (at / kChunk + 1) * kChunk;
        ASSERT_TRUE(forward.runs_by_layer(engine.streamed_kv, at, border, kChunk));
        const std::uint64_t weights = engine.pass.figures().weights_bytes;
        engine.streamed_kv.reserve(border);
        std::vector<NodeId> nodes;
        for (int i = 0; i < 60; ++i)
            nodes.push_back(engine.streamed_kv.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
        const std::int32_t last = 59;
        const LogitRows logits = forward.run_by_layer(engine.streamed_kv, at, kChunk, part(at, border),
                                                      part(border, border + 60), nodes, {&last, 1}, {});
        const std::vector<float> row(logits.row(0).begin(), logits.row(0).end());
        ASSERT_TRUE(same_bits(row, plain[border + 59])) << "from " << at;
        EXPECT_EQ(engine.pass.figures().weights_bytes > weights, weights_stream);
        engine.streamed_kv.commit(forward.exec(), nodes);
        at = border + 60;
        for (int i = 0; i < 3; ++i, at += 100)
            ASSERT_TRUE(same_bits(feed_chain(other, engine.streamed_kv, part(at, at + 100)), plain[at + 99])) << at;
    }
}

TEST(PassStreamDeathTest, NeverOneInsideAnother) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork alone has no thread that copies
    const auto files = make_tiny_model({.n_layers = 3});
    Engine engine(*files);
    static_cast<void>(feed_chain(engine.streamed, engine.streamed_kv, random_tokens(10)));
    class Inside final : public PassHooks {
    public:
        explicit Inside(Engine& engine) : engine_(engine) {}
        void on_rows(ExecRef, std::int64_t, const ConstTensorView&, const ConstTensorView&) override {
            const TokenId token = 1;
            const NodeId node = engine_.streamed_kv.add_node(kCommittedTip);
            static_cast<void>(engine_.resident.run(engine_.streamed_kv, {&token, 1}, {&node, 1}, {}));
        }

    private:
        Engine& engine_;
    } inside(engine);
    const TokenId token = 2;
    const NodeId node = engine.streamed_kv.add_node(kCommittedTip);
    EXPECT_DEATH(static_cast<void>(
                     engine.streamed.run(engine.streamed_kv, {&token, 1}, {&node, 1}, {}, {}, Phase::Decode, &inside)),
                 "a pass within a pass");
}

// Through a ring of its own each would freeze schedules that the other knows nothing of.
TEST(PassStreamDeathTest, ACacheStreamsThroughOneRing) {
    const auto files = make_tiny_model({.n_layers = 3});
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {.context_tokens = kContext});
    KvCache cache(device, model.kv_layouts(), kContext, kChunk, {.resident_chunks = {0, 0, 0}, .arena = &arena});
    const std::vector<PassReads> reads{{&model, &cache}};
    PassStream first(reads, arena, std::size_t{512} << 10);
    PassStream second(reads, arena, std::size_t{512} << 10);
    Forward one(model, {.max_tokens = kChunk}, &first);
    Forward other(model, {.max_tokens = kChunk}, &second);
    static_cast<void>(feed_chain(one, cache, random_tokens(300)));
    EXPECT_DEATH(static_cast<void>(feed_chain(other, cache, random_tokens(10))), "two streams over one KV cache");
}

}  // namespace
}  // namespace slipstream
