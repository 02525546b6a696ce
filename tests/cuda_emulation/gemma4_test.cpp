// A model as Gemma 4 on emulated cards: layers with heads of 512 elements (the plain attention kernel) beside layers
// with heads of 64, values made of keys, norms without weights, a scale for each layer. One text and one set of bits in
// every placement; logits near the CPU's.
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "emulated_machine.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/host/cuda_device.h"
#include "runner_on_cards.h"
#include "runtime/pass/forward.h"
#include "runtime/ranks/model_split.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;

std::unique_ptr<ModelFiles> gemma4_model(DType type, std::int64_t full_kv_heads = 1, std::int64_t full_head_dim = 512) {
    return make_tiny_model({.n_layers = 3,
                            .heads = {{4, 2, 64}, {4, full_kv_heads, full_head_dim}, {4, full_kv_heads, full_head_dim}},
                            .window = 200,
                            .weight_type = type,
                            .gemma4 = true});
}

Generated generate(const ModelFiles& files, SplitKind kind, const std::vector<std::int64_t>& parts, Streams streams,
                   Timing timing, const std::vector<TokenId>& future = {}, std::int64_t n_prompt = 260) {
    Machine machine({.n_cards = 2, .timing = timing});
    std::vector<std::unique_ptr<Device>> devices;
    for (std::size_t card = 0; card < parts.size(); ++card)
        devices.push_back(emulation::small_card(machine, static_cast<std::int32_t>(card)));
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .device = devices.front().get()});
    std::vector<ModelShard> shards{whole_shard(files.config())};
    if (parts.size() > 1) shards = deal_parts(kind, files.config(), files.weights(), parts);
    std::vector<Device*> pointers;
    for (const auto& device : devices) pointers.push_back(device.get());
    std::unique_ptr<RankSums> sums;
    if (kind == SplitKind::Tensor && parts.size() > 1) sums = emulation::sums_of_passes(files, pointers);
    RunnerOnCards on_cards(files, pointers, shards, arena, streams, std::move(sums));
    return emulation::generate_on(on_cards.runner->target(), future, n_prompt, 8);
}

TEST(EmulatedGemma4, EveryPlacementGivesTheBitsOfOneCard) {
    EXPECT_FALSE(cuda::attention_on_tensor_cores(cuda::KvType::F16, 512, 0.0F));
    const auto files = gemma4_model(DType::BF16);
    const Generated one = generate(*files, SplitKind::Layers, {3}, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*files, SplitKind::Layers, {3}, Streams::Nothing, Timing::Latest, one.text), one);
    EXPECT_EQ(generate(*files, SplitKind::Layers, {3}, Streams::Both, Timing::Latest, one.text), one);
    EXPECT_EQ(generate(*files, SplitKind::Layers, {1, 2}, Streams::Both, Timing::CopiesEarly), one);
}

TEST(EmulatedGemma4, ATensorSplitGivesOneText) {
    const auto files = gemma4_model(DType::F32, 2, 96);
    const Generated plain = generate(*files, SplitKind::Tensor, {1, 1}, Streams::Nothing, Timing::AtOnce, {}, 60);
    EXPECT_EQ(generate(*files, SplitKind::Tensor, {1, 1}, Streams::Both, Timing::Latest, plain.text, 60), plain);
}

std::vector<float> logits_on(Device& device, const ModelFiles& files, const std::vector<TokenId>& prompt) {
    const Model model(files, device, {.context_tokens = 256});
    KvCache cache(device, model.kv_layouts(), 256, 256);
    Forward forward(model, {.max_tokens = 256, .max_logit_rows = 8});
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < prompt.size(); ++i)
        nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
    std::vector<std::int32_t> wanted;
    for (std::size_t i = prompt.size() - 8; i < prompt.size(); ++i) wanted.push_back(static_cast<std::int32_t>(i));
    const ConstTensorView logits = forward.run(cache, prompt, nodes, wanted);
    const float* first = float_row(logits, 0);
    return {first, first + logits.rows() * logits.cols()};
}

// The card rounds activations to bfloat16 (relative 2^-8), in F32 models to halves (2^-11); scores of 512 normed
// elements are not scaled, so an error of a key moves a weight of the softmax by over twenty times as much (25 and 21
// here). With weights in F32 and BF16 the scalar kernels round no activation, on any machine.
TEST(EmulatedGemma4, LogitsAreNearTheCpus) {
    for (const auto& [type, rounding] : {std::pair(DType::F32, 0x1p-11), std::pair(DType::BF16, 0x1p-8)}) {
        const auto files = gemma4_model(type);
        const std::vector<TokenId> prompt = prompt_of(70);
        CpuDevice cpu({.n_threads = 2, .form = CpuForm::Scalar});
        const std::vector<float> expected = logits_on(cpu, *files, prompt);
        const Machine machine({});
        CudaDevice device(machine.table(), {.memory_bytes = std::size_t{256} << 20});
        const std::vector<float> found = logits_on(device, *files, prompt);
        ASSERT_EQ(found.size(), expected.size());
        double errors = 0.0;
        double squares = 0.0;
        for (std::size_t i = 0; i < found.size(); ++i) {
            errors += std::pow(double{found[i]} - double{expected[i]}, 2);
            squares += std::pow(double{expected[i]}, 2);
        }
        EXPECT_LT(std::sqrt(errors / squares), 32.0 * rounding) << dtype_name(type);
        EXPECT_GT(errors, 0.0);
    }
}

TEST(EmulatedGemma4, NormsWithoutWeightsAndSumsWithAFactor) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const std::int64_t d : {17, 512, 1028}) {
        const std::int64_t n = 3;
        std::vector<float> x(static_cast<std::size_t>(n * d));
        for (float& value : x) value = normal(random);
        const std::vector<float> ones(static_cast<std::size_t>(d), 1.0F);
        const auto norm = [&](const float* weight) {
            std::vector<float> y(x.size());
            cuda::launch_rms_norm(
                {.n_rows = n, .d = d, .x = x.data(), .x_stride = d, .weight = weight, .y = y.data(), .y_stride = d},
                nullptr);
            return y;
        };
        EXPECT_EQ(norm(nullptr), norm(ones.data())) << d;
        std::vector<float> y(x.size(), 0.25F);
        const float factor = 1.7F;
        cuda::launch_add(
            {.n_rows = n, .d = d, .x = x.data(), .x_stride = d, .y = y.data(), .y_stride = d, .factor = &factor},
            nullptr);
        for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], (0.25F + x[i]) * factor) << i;
    }
}

}  // namespace
}  // namespace slipstream
