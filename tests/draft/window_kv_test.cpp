// The window: what it holds after jumps and cuts, to the bit. The model has one layer, whose keys and values depend on
// their own token alone, so that a window must be the cache of its tokens written one behind the other.
#include "draft/models/window_kv.h"

#include <random>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/pass/forward.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

constexpr WindowShape kShape{.sinks = 3, .recent = 9, .slots = 20};

struct Engine {
    explicit Engine(DType kv_dtype = DType::F16, WindowShape shape = kShape)
        : files(make_tiny_model({.n_layers = 1, .kv_dtype = kv_dtype})),
          device({.n_threads = 1}),
          model(*files, device, {}),
          forward(model, {.max_tokens = 64, .max_logit_rows = 1}),
          window(model, shape, {.max_rows = 64, .max_depth = 8}) {}

    static TokenId token_at(std::int64_t position) { return static_cast<TokenId>((position * 31 + position / 7) % 97); }

    // Commits tokens up to text position `end` in one pass; logits of the last.
    std::vector<float> feed(std::int64_t end) {
        std::vector<TokenId> tokens;
        std::vector<NodeId> nodes;
        for (std::int64_t at = window.n_tokens(); at < end; ++at) {
            tokens.push_back(token_at(at));
            nodes.push_back(window.cache().add_node(nodes.empty() ? kCommittedTip : nodes.back()));
        }
        const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
        const ConstTensorView logits = forward.run(window.cache(), tokens, nodes, {&last, 1});
        std::vector<float> row(float_row(logits, 0), float_row(logits, 0) + logits.cols());
        window.cache().commit(forward.exec(), nodes);
        return row;
    }

    // Logits of a token behind the window, and of one behind the window's tokens in a fresh cache.
    std::pair<std::vector<float>, std::vector<float>> probe() {
        const TokenId probed = 5;
        const auto logits_of = [&](KvCache& cache, const std::vector<TokenId>& tokens) {
            std::vector<NodeId> nodes;
            for (std::size_t i = 0; i < tokens.size(); ++i)
                nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
            const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
            const ConstTensorView logits = forward.run(cache, tokens, nodes, {&last, 1});
            cache.forget();
            return std::vector<float>(float_row(logits, 0), float_row(logits, 0) + logits.cols());
        };
        KvCache fresh(device, model.kv_layouts(), 64, 64);
        std::vector<TokenId> held;
        for (std::int64_t slot = 0; slot < window.cache().n_committed(); ++slot)
            held.push_back(token_at(slot < window.shape().sinks ? slot : slot + window.n_dropped()));
        held.push_back(probed);
        return {logits_of(window.cache(), {probed}), logits_of(fresh, held)};
    }

    std::unique_ptr<ModelFiles> files;
    CpuDevice device;
    Model model;
    Forward forward;
    WindowKv window;
};

TEST(WindowKv, ATextThatFitsIsAnOrdinaryCache) {
    Engine engine;
    const std::vector<float> last = engine.feed(18);
    EXPECT_EQ(engine.window.n_dropped(), 0);
    EXPECT_EQ(engine.window.n_tokens(), 18);
    Engine other;
    other.feed(7);
    EXPECT_EQ(other.feed(18), last);
    const auto [kept, fresh] = engine.probe();
    EXPECT_EQ(kept, fresh);
}

TEST(WindowKv, JumpsAndCutsKeepWhatTheySay) {
    Engine engine;
    engine.feed(15);
    engine.window.jump(100);
    EXPECT_EQ(engine.window.n_tokens(), 100);
    EXPECT_EQ(engine.window.n_recent(), 0);
    engine.feed(110);
    EXPECT_EQ(engine.window.n_dropped(), 97);
    engine.window.truncate(107);
    EXPECT_EQ(engine.window.n_tokens(), 107);
    EXPECT_EQ(engine.window.n_recent(), 7);
    const auto [cut, fresh] = engine.probe();
    EXPECT_EQ(cut, fresh);
    engine.window.truncate(50);  // among the dropped
    EXPECT_EQ(engine.window.n_tokens(), kShape.sinks);
    EXPECT_EQ(engine.window.n_dropped(), 0);
    engine.window.truncate(2);
    EXPECT_EQ(engine.window.n_tokens(), 2);
    engine.feed(12);
    const auto [again, fresh_again] = engine.probe();
    EXPECT_EQ(again, fresh_again);
}

// Any order of all that may happen to a window.
TEST(WindowKv, AnyHistoryGivesTheCacheOfItsTokens) {
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
        std::mt19937 random(seed);
        Engine engine(DType::F16, {.sinks = seed == 3 ? 0 : 4, .recent = 6, .slots = 40});
        const auto below = [&](std::int64_t n) { return n > 0 ? static_cast<std::int64_t>(random()) % n : 0; };
        for (int step = 0; step < 300; ++step) {
            WindowKv& window = engine.window;
            const std::int64_t room = window.shape().slots - window.cache().n_committed();
            if (room > 0) engine.feed(window.n_tokens() + 1 + below(room));
            if (below(7) == 0) window.truncate(window.n_tokens() - below(std::min<std::int64_t>(window.n_tokens(), 9)));
            if (below(5) == 0 && window.cache().n_committed() >= window.shape().sinks)
                window.jump(std::max(window.shape().sinks, window.n_tokens() - 3));
            const auto [kept, fresh] = engine.probe();
            ASSERT_EQ(kept, fresh) << "seed " << seed << ", step " << step << ", " << window.n_tokens() << " tokens";
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
