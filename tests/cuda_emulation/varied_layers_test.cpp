// Layers as only some families have them (TinyModelOptions::varied), on emulated cards: the same bits wherever weights
// and KV are and however layers are shared out, one text over split matrices, logits near the CPU's.
#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runner_on_cards.h"
#include "runtime/ranks/layer_split.h"
#include "runtime/ranks/model_split.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::kTimings;
using emulation::Machine;
using emulation::RunnerOnCards;
using emulation::Streams;
using emulation::Timing;

std::unique_ptr<ModelFiles> varied_model(DType type, DType kv_dtype = DType::F16, bool head_norms = true) {
    return make_tiny_model({.n_layers = 4,
                            .head_dim = 64,
                            .window = 40,
                            .weight_type = type,
                            .head_norms = head_norms,
                            .varied = true,
                            .kv_dtype = kv_dtype});
}

Generated generate(const ModelFiles& files, SplitKind kind, const std::vector<std::int64_t>& parts, Streams streams,
                   Timing timing, const std::vector<TokenId>& future = {}, bool on_cpu = false,
                   std::int64_t n_prompt = 260) {
    Machine machine({.n_cards = 2, .timing = timing});
    std::vector<std::unique_ptr<Device>> devices;
    for (std::size_t i = 0; i < parts.size(); ++i)
        devices.push_back(on_cpu ? std::make_unique<CpuDevice>(CpuDeviceOptions{.n_threads = 1})
                                 : emulation::small_card(machine, static_cast<std::int32_t>(i)));
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .device = devices.front().get()});
    std::vector<Device*> pointers;
    for (const auto& device : devices) pointers.push_back(device.get());
    const std::vector<ModelShard> shards = parts.size() == 1 ? std::vector<ModelShard>{whole_shard(files.config())}
                                                             : deal_parts(kind, files.config(), files.weights(), parts);
    const bool sums = kind == SplitKind::Tensor;
    RunnerOnCards on_cards(files, pointers, shards, arena, streams,
                           sums ? emulation::sums_of_passes(files, pointers) : nullptr);
    return emulation::generate_on(on_cards.runner->target(), future, n_prompt, 12);
}

class VariedOnCards : public testing::TestWithParam<Timing> {};

TEST_P(VariedOnCards, EveryPlacementAndSplitByLayersGivesTheSameBits) {
    for (const DType type : {DType::BF16, DType::Q8_0}) {
        const auto files = varied_model(type);
        const Generated one = generate(*files, SplitKind::Layers, {4}, Streams::Nothing, Timing::AtOnce);
        for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{4}, {3, 1}}) {
            EXPECT_EQ(generate(*files, SplitKind::Layers, parts, Streams::Both, GetParam()), one);
            EXPECT_EQ(generate(*files, SplitKind::Layers, parts, Streams::Both, GetParam(), one.text), one);
        }
    }
}

TEST_P(VariedOnCards, SplitMatricesGiveOneTextWhateverStreamsAndGuesses) {
    const auto files = varied_model(DType::BF16);
    const Generated plain = generate(*files, SplitKind::Tensor, {1, 1}, Streams::Nothing, Timing::AtOnce);
    EXPECT_EQ(generate(*files, SplitKind::Tensor, {1, 1}, Streams::Both, GetParam()), plain);
    EXPECT_EQ(generate(*files, SplitKind::Tensor, {1, 1}, Streams::Both, GetParam(), plain.text), plain);
}

INSTANTIATE_TEST_SUITE_P(Timings, VariedOnCards, testing::ValuesIn(kTimings));

// Every path of the kernels: KV types, with and without norms of heads.
TEST(VariedOnCards, LogitsAreNearThoseOfTheCpu) {
    for (const DType kv_dtype : {DType::F32, DType::F16, DType::Q8_0}) {
        for (const bool head_norms : {false, true}) {
            const auto files = varied_model(DType::F32, kv_dtype, head_norms);
            const auto on = [&](bool cpu) {
                return generate(*files, SplitKind::Layers, {4}, Streams::Nothing, Timing::AtOnce, {}, cpu, 70);
            };
            const Generated card = on(false);
            const Generated cpu = on(true);
            EXPECT_EQ(card.text, cpu.text) << dtype_name(kv_dtype) << " " << head_norms;
            double error = 0;
            double size = 0;
            ASSERT_EQ(card.logits.size(), cpu.logits.size());
            for (std::size_t i = 0; i < cpu.logits.size(); ++i) {
                error += std::pow(static_cast<double>(card.logits[i]) - static_cast<double>(cpu.logits[i]), 2);
                size += std::pow(static_cast<double>(cpu.logits[i]), 2);
            }
            // A number in the middle between two codes of F16 or Q8 may be rounded to the other one; in the layers
            // above, so are more. A wrong detail gives 1e-2 and up.
            const double bound = kv_dtype == DType::F32 ? 1e-9 : kv_dtype == DType::F16 ? 1e-5 : 5e-4;
            EXPECT_LT(error / size, bound) << dtype_name(kv_dtype) << " " << head_norms;
        }
    }
}

}  // namespace
}  // namespace slipstream
