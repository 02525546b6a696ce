// What a pass reads of KV, however that is laid out: slots that are not positions, and what it hands out on its way.
#include "runtime/cache/pass_kv.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_stream.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = 2048;
constexpr std::int64_t kMaxTokens = 64;

// What is left of a cache without its first chunks, which no query behind them looks at: slots are lower than
// positions, and scratch is the cache's, which must have no nodes.
class ShiftedKv final : public PassKv {
public:
    ShiftedKv(KvCache& cache, std::int64_t n_left_out, std::int64_t text_offset)
        : cache_(cache),
          n_left_out_(n_left_out),
          text_offset_(text_offset),
          nodes_(cache.context_tokens() - n_left_out * kChunkTokens, cache.max_nodes()) {
        nodes_.set_committed(cache.n_committed() - n_left_out * kChunkTokens);
    }
    const KvLayout& layout(std::int64_t layer) const override { return cache_.layout(layer); }
    const KvNodes& nodes() const override { return nodes_; }
    KvNodes& nodes() { return nodes_; }
    std::int64_t text_offset() const override { return text_offset_; }
    std::byte* const* chunks(std::int64_t layer) const override { return cache_.chunks(layer) + n_left_out_; }
    std::byte* scratch_k(std::int64_t layer) const override { return cache_.scratch_k(layer); }
    std::byte* scratch_v(std::int64_t layer) const override { return cache_.scratch_v(layer); }
    std::int64_t resident_chunks(std::int64_t layer) const override {
        return cache_.resident_chunks(layer) - n_left_out_;
    }
    HostKv* host() override { return nullptr; }
    RecurrentStates* states() override { return nullptr; }

private:
    KvCache& cache_;
    std::int64_t n_left_out_;
    std::int64_t text_offset_;
    KvNodes nodes_;
};

std::vector<TokenId> random_tokens(std::size_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens(n);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 97);
    return tokens;
}

// A model and its cache, with or without streams.
struct Engine {
    explicit Engine(const ModelFiles& files, std::vector<std::int64_t> resident_chunks = {})
        : arena({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}),
          model(files, device, {.context_tokens = kContext}),
          cache(device, model.kv_layouts(), kContext, kMaxTokens,
                {.resident_chunks = std::move(resident_chunks), .arena = &arena}) {
        if (cache.streams())
            pass = std::make_unique<PassStream>(std::vector{PassReads{&model, &cache}}, arena, std::size_t{64} << 10);
        forward = std::make_unique<Forward>(
            model, ForwardLimits{.max_tokens = kMaxTokens, .max_logit_rows = kMaxTokens}, pass.get());
    }
    void feed(const std::vector<TokenId>& tokens) {
        for (std::size_t at = 0; at < tokens.size(); at += kMaxTokens) {
            const std::size_t n = std::min<std::size_t>(kMaxTokens, tokens.size() - at);
            std::vector<NodeId> nodes;
            for (std::size_t i = 0; i < n; ++i)
                nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
            static_cast<void>(forward->run(cache, std::span(tokens).subspan(at, n), nodes, {}));
            cache.commit(forward->exec(), nodes);
        }
    }

    PinnedArena arena;
    CpuDevice device{{}};
    Model model;
    KvCache cache;
    std::unique_ptr<PassStream> pass;
    std::unique_ptr<Forward> forward;
};

// Logits of a tree of which every third node has two children.
std::vector<float> run_tree(Forward& forward, PassKv& kv, const std::vector<NodeId>& nodes,
                            PassHooks* hooks = nullptr) {
    const std::vector<TokenId> tokens = random_tokens(nodes.size(), 5);
    std::vector<std::int32_t> rows(nodes.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
    const ConstTensorView logits = forward.run(kv, tokens, nodes, rows, {}, Phase::Decode, hooks);
    return {float_row(logits, 0), float_row(logits, 0) + logits.rows() * logits.cols()};
}

template <typename Add>
std::vector<NodeId> tree_of(Add&& add) {
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < 24; ++i)
        nodes.push_back(add(i == 0 ? kCommittedTip : nodes[i - (i % 3 == 0 ? 1 : i % 3)]));
    return nodes;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A model whose only layer has a window, so that chunks before it may be left out.
TEST(PassKv, ShiftedSlotsGiveTheSameBits) {
    for (const DType type : {DType::F32, DType::Q8_0}) {
        const auto files = make_tiny_model({.n_layers = 1, .window = 300, .weight_type = type});
        for (const std::size_t n : {900, 1023, 1024, 1700}) {
            Engine engine(*files);
            engine.feed(random_tokens(n, 1));
            const std::vector<NodeId> nodes = tree_of([&](NodeId above) { return engine.cache.add_node(above); });
            const std::vector<float> whole = run_tree(*engine.forward, engine.cache, nodes);
            engine.cache.forget();
            for (std::int64_t n_left_out = 1; (n_left_out * kChunkTokens) + 300 <= static_cast<std::int64_t>(n);
                 ++n_left_out) {
                ShiftedKv shifted(engine.cache, n_left_out, n_left_out * kChunkTokens);
                ASSERT_EQ(nodes, tree_of([&](NodeId above) { return shifted.nodes().add(above); }));
                EXPECT_TRUE(same_bits(run_tree(*engine.forward, shifted, nodes), whole))
                    << n_left_out << " chunks of " << n << " tokens left out";
                // Where rope took slots for positions it would be another text.
                ShiftedKv turned(engine.cache, n_left_out, 0);
                tree_of([&](NodeId above) { return turned.nodes().add(above); });
                EXPECT_FALSE(same_bits(run_tree(*engine.forward, turned, nodes), whole));
            }
        }
    }
}

// Everything that a pass hands out: rows as they are, chunks as bytes.
class Recorder final : public PassHooks {
public:
    explicit Recorder(std::size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
    void on_rows(ExecRef, std::int64_t layer, const ConstTensorView& k, const ConstTensorView& v) override {
        EXPECT_TRUE(rows.empty() || layer >= last_layer_);
        last_layer_ = layer;
        for (const ConstTensorView& part : {k, v})
            rows.insert(rows.end(), float_row(part, 0), float_row(part, 0) + part.rows() * part.cols());
    }
    void on_kv(ExecRef, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q, std::int64_t) override {
        queries.insert(queries.end(), float_row(q, 0), float_row(q, 0) + q.cols());
        chunks.resize(std::max(chunks.size(), static_cast<std::size_t>(layer) + 1));
        auto& found = chunks[layer];
        EXPECT_EQ(segment.range.first, std::ssize(found)) << "chunks ascend without gaps";
        for (std::int64_t chunk = segment.range.first; chunk < segment.range.end; ++chunk)
            found.emplace_back(segment.chunks[chunk], segment.chunks[chunk] + chunk_bytes_);
    }
    std::vector<float> rows, queries;
    std::vector<std::vector<std::vector<std::byte>>> chunks;  // [layer][chunk]

private:
    std::size_t chunk_bytes_;
    std::int64_t last_layer_ = 0;
};

TEST(PassKv, APassHandsOutItsRowsAndEveryChunkThatItReads) {
    const auto files = make_tiny_model({.n_layers = 3});
    const std::vector<TokenId> text = random_tokens(1100, 1);  // four chunks and a part of one
    Engine resident(*files);
    resident.feed(text);
    const std::vector<NodeId> nodes = tree_of([&](NodeId above) { return resident.cache.add_node(above); });
    const std::size_t chunk_bytes = resident.cache.layout(0).chunk_bytes();
    Recorder expected(chunk_bytes);
    const std::vector<float> logits = run_tree(*resident.forward, resident.cache, nodes, &expected);
    EXPECT_FALSE(expected.rows.empty());
    for (const std::vector<std::int64_t>& chunks :
         {std::vector<std::int64_t>{0, 0, 0}, std::vector<std::int64_t>{3, 8, 1}}) {
        Engine engine(*files, chunks);
        engine.feed(text);
        tree_of([&](NodeId above) { return engine.cache.add_node(above); });
        Recorder found(chunk_bytes);
        EXPECT_TRUE(same_bits(run_tree(*engine.forward, engine.cache, nodes, &found), logits));
        EXPECT_TRUE(same_bits(found.rows, expected.rows));
        ASSERT_EQ(found.chunks.size(), 3U);
        for (std::int64_t layer = 0; layer < 3; ++layer) {
            const auto& of_layer = found.chunks[layer];
            ASSERT_EQ(of_layer.size(), 5U);
            for (std::int64_t chunk = 0; chunk < 4; ++chunk) {
                std::vector<std::byte> whole(chunk_bytes);
                engine.cache.read_chunk(engine.forward->exec(), layer, chunk, whole.data());
                EXPECT_EQ(of_layer[chunk], whole) << "layer " << layer << ", chunk " << chunk;
            }
        }
        EXPECT_TRUE(same_bits({found.queries.begin(), found.queries.begin() + 8},
                              {expected.queries.begin(), expected.queries.begin() + 8}));
    }
}

}  // namespace
}  // namespace slipstream
