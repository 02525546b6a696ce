// What a layer takes of a card: kernels launched for a token of Llama and Qwen shapes, counted by the emulated blocks;
// and the bits of the logits of such models, as hashes that were written down before kernels of a layer were joined.
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "block.h"
#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/workspace.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/pass/forward.h"
#include "schedule.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::Machine;
using emulation::Timing;

constexpr std::int64_t kContext = 1024;
constexpr std::int64_t kFilled = 300;  // two chunks: attention is joined
constexpr std::int64_t kMostTokens = 70;

struct Shape {
    const char* name;
    TinyModelOptions options;
    bool at_most_ten = true;  // launches of a layer
};

TinyModelOptions llama(DType type, std::optional<DType> v_type = {}) {
    return {.d_model = 256,
            .d_ff = 512,
            .n_q_heads = 4,
            .n_kv_heads = 2,
            .head_dim = 64,
            .weight_type = type,
            .v_type = v_type};
}
TinyModelOptions qwen2(DType type) {
    TinyModelOptions options = llama(type);
    options.biases = true;
    return options;
}
TinyModelOptions qwen3(DType type) {
    TinyModelOptions options = llama(type);
    options.n_q_heads = 8;  // n_q_heads * head_dim is not d_model
    options.head_norms = true;
    options.kv_dtype = DType::BF16;
    return options;
}

const std::vector<Shape>& shapes() {
    static const std::vector<Shape> all{
        {"Llama Q4_K", llama(DType::Q4_K)},
        {"Llama Q4_K, V and down Q6_K", llama(DType::Q4_K, DType::Q6_K)},
        {"Llama Q4_0", llama(DType::Q4_0)},
        {"Llama Q8_0", llama(DType::Q8_0)},
        {"Llama Q3_K, V and down Q5_K", llama(DType::Q3_K, DType::Q5_K)},
        {"Llama BF16", llama(DType::BF16)},
        {"Llama F16", llama(DType::F16), false},
        {"Qwen2 Q4_K", qwen2(DType::Q4_K)},
        {"Qwen2 Q5_1", qwen2(DType::Q5_1)},
        {"Qwen3 Q4_K", qwen3(DType::Q4_K)},
        {"Qwen3 Q8_0", qwen3(DType::Q8_0)},
    };
    return all;
}

/// FNV-1a, 64 bits, over the bits of floats.
class BitHash {
public:
    void add(const ConstTensorView& rows) {
        for (std::int64_t row = 0; row < rows.rows(); ++row)
            for (std::int64_t i = 0; i < rows.cols(); ++i) {
                EXPECT_TRUE(std::isfinite(float_row(rows, row)[i]));
                const auto bits = std::bit_cast<std::uint32_t>(float_row(rows, row)[i]);
                for (int byte = 0; byte < 4; ++byte) hash_ = (hash_ ^ (bits >> (8 * byte) & 0xffU)) * 0x100000001b3ULL;
            }
    }
    [[nodiscard]] std::uint64_t value() const { return hash_; }

private:
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

/// A model on a device with a text behind it.
class Engine {
public:
    Engine(Device& device, const TinyModelOptions& options)
        : files_(make_tiny_model(options)),
          model_(*files_, device, {.context_tokens = kContext}),
          cache_(device, model_.kv_layouts(), kContext, kMostTokens) {
        const ForwardLimits limits{.max_tokens = kMostTokens, .max_logit_rows = kMostTokens, .graphs = GraphUse::Never};
        reserve_workspace(device, Forward::workspace_shapes(model_.config(), model_.kv_dtype(), limits));
        forward_ = std::make_unique<Forward>(model_, limits);
        fill_cache(cache_, forward_->exec(), kFilled, 7, {});
    }

    /// A pass of a tree in which token i hangs on token i - 1, every fifth on the one before that.
    void run(std::int64_t n, BitHash& hash) {
        nodes_.clear();
        std::vector<TokenId> tokens;
        std::vector<std::int32_t> rows;
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t parent = i % 5 == 4 ? i - 2 : i - 1;
            nodes_.push_back(cache_.add_node(parent < 0 ? kCommittedTip : nodes_[parent]));
            tokens.push_back(static_cast<TokenId>((i * 31 + i / 7 + 7) % 97));
            rows.push_back(static_cast<std::int32_t>(i));
        }
        hash.add(forward_->run(cache_, tokens, nodes_, rows));
    }
    void commit(std::size_t n) {
        cache_.commit(forward_->exec(), std::span(nodes_).first(n));
        forward_->exec().stream.synchronize();
    }
    void forget() { cache_.forget(); }

private:
    std::unique_ptr<ModelFiles> files_;
    Model model_;
    KvCache cache_;
    std::unique_ptr<Forward> forward_;
    std::vector<NodeId> nodes_;
};

/// Of passes of a token, of small trees and of more than a block of tiles takes, with rows committed in between.
std::uint64_t logit_hash(Device& device, const TinyModelOptions& options) {
    Engine engine(device, options);
    BitHash hash;
    for (const std::int64_t n : {1, 9, 20, 70}) {
        engine.run(n, hash);
        engine.commit(n > 3 ? 3 : 1);
    }
    engine.run(1, hash);
    engine.forget();
    return hash.value();
}

struct Hashes {
    std::uint64_t emulated = 0;
    std::uint64_t scalar = 0;  // the CPU's scalar form
};

TEST(LayerBits, AreThoseThatWereWrittenDown) {
    const std::map<std::string, Hashes> written{
        {"Llama Q4_K", {0xaffe33504d7bedc6, 0x1568746296cb9f8c}},
        {"Llama Q4_K, V and down Q6_K", {0xfd6ba6efe8d8f24a, 0x46f2ab869747d7a3}},
        {"Llama Q4_0", {0xcc5d14848dd05c56, 0x1a66292b97477b71}},
        {"Llama Q8_0", {0x536befdfaa4ed057, 0xaedded7eba05122e}},
        {"Llama Q3_K, V and down Q5_K", {0xf1a564c212e4a503, 0xe3ecc6d39da38a0e}},
        {"Llama BF16", {0xed5b2dbc677ccbfb, 0xc9f1c127df6857f1}},
        {"Llama F16", {0x95cc8ae48acadb19, 0xe1c49f86193ef35a}},
        {"Qwen2 Q4_K", {0x697c52b1a05f4f5a, 0x5b646bc74858113c}},
        {"Qwen2 Q5_1", {0x42fa5be4bbeed4cb, 0x1810161eeb7dafa3}},
        {"Qwen3 Q4_K", {0x1ce1015d5b7db463, 0xd7f5af82f48b24e1}},
        {"Qwen3 Q8_0", {0xe424d77c09f7eeb9, 0xff574ca4e2e9bb17}},
    };
    for (const Shape& shape : shapes()) {
        const Machine machine({.timing = Timing::Latest});
        CudaDevice card(machine.table(), {.memory_bytes = std::size_t{256} << 20});
        CpuDevice cpu({.form = CpuForm::Scalar});
        const Hashes now{logit_hash(card, shape.options), logit_hash(cpu, shape.options)};
        const auto known = written.find(shape.name);
        EXPECT_TRUE(known != written.end() && known->second.emulated == now.emulated &&
                    known->second.scalar == now.scalar)
            << fmt::format("{{\"{}\", {{0x{:016x}, 0x{:016x}}}}},", shape.name, now.emulated, now.scalar);
    }
}

struct Launches {
    std::int64_t layer = 0;
    std::int64_t pass = 0;    // beside those of layers
    std::int64_t commit = 0;  // of all layers
    bool operator==(const Launches&) const = default;
};

// Of layer `n_layers` of a model.
Launches launches_of(TinyModelOptions options, std::int64_t n_layers = 2) {
    std::array<std::int64_t, 2> pass{};
    std::array<std::int64_t, 2> commit{};
    for (const std::int64_t more : {0, 1}) {
        options.n_layers = n_layers + more;
        const Machine machine({.timing = Timing::AtOnce});
        CudaDevice card(machine.table(), {.memory_bytes = std::size_t{256} << 20});
        Engine engine(card, options);
        BitHash hash;
        const std::int64_t before = emulation::n_grids_run();
        engine.run(1, hash);
        const std::int64_t between = emulation::n_grids_run();
        engine.commit(1);
        pass[more] = between - before;
        commit[more] = emulation::n_grids_run() - between;
    }
    const std::int64_t layer = pass[1] - pass[0];
    return {.layer = layer, .pass = pass[0] - n_layers * layer, .commit = commit[1]};
}

// Kernels of a token.
TEST(LayerLaunches, AreThoseOfTheTable) {
    const std::map<std::string, Launches> expected{
        {"Llama Q4_K", {10, 2, 1}},
        {"Llama Q4_K, V and down Q6_K", {10, 2, 1}},
        {"Llama Q4_0", {10, 2, 1}},
        {"Llama Q8_0", {10, 2, 1}},
        {"Llama Q3_K, V and down Q5_K", {10, 2, 1}},
        {"Llama BF16", {10, 2, 1}},
        {"Llama F16", {18, 4, 1}},
        {"Qwen2 Q4_K", {10, 2, 1}},
        {"Qwen2 Q5_1", {10, 2, 1}},
        {"Qwen3 Q4_K", {10, 2, 1}},
        {"Qwen3 Q8_0", {10, 2, 1}},
    };
    for (const Shape& shape : shapes()) {
        const Launches found = launches_of(shape.options);
        const auto known = expected.find(shape.name);
        if (shape.at_most_ten) {
            EXPECT_LE(found.layer, 10) << shape.name;
        }
        EXPECT_TRUE(known != expected.end() && known->second == found)
            << fmt::format("{{\"{}\", {{{}, {}, {}}}}},", shape.name, found.layer, found.pass, found.commit);
    }
}

// Of a layer of experts: as many whether a token chooses two experts or all of them, since experts share launches.
TEST(LayerLaunches, DoNotGrowWithTheExpertsOfAToken) {
    for (const DType type : {DType::Q4_K, DType::Q8_0, DType::BF16}) {
        for (const std::int64_t n_chosen : {2, 6}) {
            TinyModelOptions options = llama(type);
            options.expert_d_ff = 256;
            options.n_experts = 6;
            options.n_chosen = n_chosen;
            EXPECT_EQ(launches_of(options).layer, 15) << dtype_name(type) << " " << n_chosen;
        }
    }
}

// Norm, four products, the inputs of the draft token stored, convolution, recurrence, norm of heads, gate, output; then
// the feed-forward: norm, two products, activation, product.
TEST(LayerLaunches, OfADeltaNet) {
    TinyModelOptions options = qwen3(DType::Q8_0);
    options.delta_nets = true;
    EXPECT_EQ(launches_of(options, 3).layer, 12);
}

}  // namespace
}  // namespace slipstream
