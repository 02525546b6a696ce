// Mixtures of experts: texts, logits and KV are those of the resident model on one device, wherever weights and KV are.
// What cannot be served is refused in one line.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/base/float16.h"
#include "kernels/cpu_device.h"
#include "runtime/model/weight_items.h"
#include "runtime/pass/expert_rows.h"
#include "runtime/plan/expert_bytes.h"
#include "runtime/plan/pass_items.h"
#include "tests/support/error_text.h"
#include "tests/support/expected_text.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kLayers = 4;
constexpr std::size_t kRing = std::size_t{1} << 19;

std::unique_ptr<ModelFiles> mixture(DType type, bool shared_expert, std::int64_t n_experts = 9,
                                    std::int64_t n_chosen = 3) {
    return make_tiny_model({.n_layers = kLayers,
                            .window = 300,
                            .weight_type = type,
                            .head_norms = true,
                            .n_experts = n_experts,
                            .n_chosen = n_chosen,
                            .shared_expert = shared_expert});
}

std::unique_ptr<ModelFiles> gpt_oss(DType type, std::int64_t window = 300) {
    return make_tiny_model({.n_layers = kLayers,
                            .window = window,
                            .weight_type = type,
                            .biases = true,
                            .output_bias = true,
                            .n_experts = 9,
                            .n_chosen = 4,
                            .gpt_oss = true});
}

// Experts beside a dense feed-forward, with norms before and after each of the two.
std::unique_ptr<ModelFiles> gemma4(DType type, std::int64_t n_experts = 9, std::int64_t n_chosen = 3) {
    return make_tiny_model({.n_layers = kLayers,
                            .heads = {{4, 2, 16}, {4, 1, 32}, {4, 2, 16}, {4, 1, 32}},
                            .window = 300,
                            .weight_type = type,
                            .gemma4 = true,
                            .n_experts = n_experts,
                            .n_chosen = n_chosen});
}

TEST(ExpertPlacement, EverySplitAndPlacementGivesTheTextLogitsAndKvOfOneDevice) {
    for (const auto& files :
         {mixture(DType::BF16, false), mixture(DType::Q8_0, true), gpt_oss(DType::MXFP4), gpt_oss(DType::BF16)}) {
        for (const std::int64_t n_prompt : {3, 600}) {
            const std::int64_t n_tokens = n_prompt == 3 ? 100 : 30;
            SplitEngine whole(*files, {kLayers}, Streams::Nothing, {{.n_threads = 2}});
            const Generated one = plainly(*whole.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*whole.target);
            for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}}) {
                for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Both}) {
                    SCOPED_TRACE(testing::PrintToString(split));
                    SplitEngine engine(*files, split, streams, {}, kRing);
                    expect_text(engine, one, n_prompt, n_tokens);
                    EXPECT_EQ(kv_of(*engine.target), kv);
                }
            }
        }
    }
}

TEST(ExpertPlacement, APromptByLayersGivesTheBitsOfTheResidentModel) {
    for (const auto& files : {mixture(DType::BF16, true), gpt_oss(DType::MXFP4), gemma4(DType::Q8_0)}) {
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        const Generated one = plainly(*whole.target, prompt_of(1300), 3);
        SplitEngine engine(*files, {kLayers}, Streams::Both, {}, std::size_t{2} << 20);
        ASSERT_TRUE(engine.runner->forward().runs_by_layer(engine.runner->cache(), 0, 1024, kPrefillChunkTokens));
        const Generated found = plainly(*engine.target, prompt_of(1300), 3);
        EXPECT_EQ(found.text, one.text);
        EXPECT_TRUE(same_bits(found.logits, one.logits));
        EXPECT_EQ(kv_of(*engine.target), kv_of(*whole.target));
    }
}

// With one expert, and where every token chooses all of them.
TEST(ExpertPlacement, OneExpertAndAllExpertsStream) {
    for (const std::int64_t n_experts : {1, 5}) {
        for (const auto& files :
             {mixture(DType::F32, false, n_experts, n_experts), gemma4(DType::F32, n_experts, n_experts)}) {
            SplitEngine whole(*files, {kLayers}, Streams::Nothing);
            const Generated one = plainly(*whole.target, prompt_of(520), 20);
            SplitEngine engine(*files, {kLayers}, Streams::Weights, {}, kRing);
            expect_text(engine, one, 520, 20);
        }
    }
}

TEST(ExpertPlacement, AnExpertIsAnItemAfterThoseOfItsLayer) {
    const auto files = mixture(DType::F32, true, 3, 1);
    for (const std::size_t limit : {std::size_t{1} << 30, std::size_t{1} << 14}) {
        std::vector<std::int64_t> layers;
        std::vector<std::int32_t> experts;
        for (const WeightItem& item : cut_weight_items(files->weights(), WeightRounding::None, limit)) {
            layers.push_back(item.layer);
            experts.push_back(item.expert);
            if (item.expert == kNoExpert) {
                EXPECT_LE(item.bytes, limit);
                continue;
            }
            std::vector<TensorRole> roles;
            for (const WeightPart& part : item.parts) roles.push_back(part.role);
            EXPECT_THAT(roles, ElementsAre(TensorRole::Gate, TensorRole::Up, TensorRole::Down));
            EXPECT_EQ(item.bytes, 3U * 32 * 64 * 4) << "whatever the limit is";
        }
        EXPECT_EQ(std::ranges::count_if(experts, [](std::int32_t expert) { return expert != kNoExpert; }), 9);
        if (limit == std::size_t{1} << 14) continue;
        // A dense layer has two items, the others three more; the last is the LM head.
        EXPECT_THAT(layers, ElementsAre(0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4));
        EXPECT_THAT(experts, ElementsAre(-1, -1, -1, -1, 0, 1, 2, -1, -1, 0, 1, 2, -1, -1, 0, 1, 2, -1));
    }
}

// Pass items of a mixture of three layers with 8 experts, of which a token chooses 2.
std::vector<PassItem> items_of_a_mixture() {
    const auto files = mixture(DType::F32, false, 8, 2);
    const ModelWeights weights = files->weights();
    const auto items = cut_weight_items(weights, WeightRounding::None, std::size_t{1} << 30);
    return make_pass_items({.config = &files->config(),
                            .weights = &weights,
                            .items = items,
                            .kv_dtype = DType::F16,
                            .context_tokens = 512});
}

TEST(ExpertPlacement, APlanCountsTheShareOfExpertsThatAPassReads) {
    const std::vector<PassItem> pass_items = items_of_a_mixture();
    PassRates rates;
    rates.weights[static_cast<std::size_t>(DType::F32)] = ByteCost({{.vectors = 1000.0, .seconds = 1.0}});
    const auto read = [&](std::int64_t n_tokens) {
        double bytes = 0.0;
        const auto schedule = plan_schedule(pass_items, rates, {.n_tokens = n_tokens});
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            const bool is_expert = pass_items[i].tag == PlanTag::OnDemand;
            EXPECT_DOUBLE_EQ(schedule[i].read_share,
                             is_expert ? expected_share(0.25, static_cast<double>(n_tokens)) : 1.0);
            if (is_expert) bytes += schedule[i].compute_seconds;
        }
        return bytes;
    };
    const double all = 3.0 * 8 * 3 * 32 * 64 * 4;  // of three layers
    EXPECT_DOUBLE_EQ(read(1), all * 2 / 8);
    EXPECT_DOUBLE_EQ(read(2), all * (1 - 0.75 * 0.75));
    EXPECT_NEAR(read(200), all, all * 1e-9);
}

// Where earlier texts shared experts, a pass reads fewer, and multiplies each with more tokens.
TEST(ExpertPlacement, APlanCountsTheDistinctExpertsOfEarlierTexts) {
    const std::vector<PassItem> pass_items = items_of_a_mixture();
    PassRates rates;
    rates.weights[static_cast<std::size_t>(DType::F32)] =
        ByteCost({{.vectors = 4.0, .seconds = 1.0}, {.vectors = 8.0, .seconds = 2.0}});
    const std::vector<CountedExperts> counted{{}, {.distinct = {{4.0, 4.0}}}, {.distinct = {{4.0, 2.0}}}, {}};
    const auto schedule = plan_schedule(pass_items, rates, {.n_tokens = 4, .counted = counted});
    const double even = 1.0 - std::pow(0.75, 4.0);
    const std::vector<double> shares{0.5, 0.25, even};
    const std::vector<double> seconds{1.0, 1.0, 1.0};  // a byte with 2, 4 and 1.46 tokens
    const double expert = 3 * 32 * 64 * 4;
    int n_experts = 0;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (pass_items[i].tag != PlanTag::OnDemand) continue;
        const auto layer = static_cast<std::size_t>(n_experts++ / 8);
        EXPECT_NEAR(schedule[i].read_share, shares[layer], 1e-9) << layer;
        EXPECT_NEAR(schedule[i].compute_seconds, shares[layer] * expert * seconds[layer], 1e-3) << layer;
    }
    EXPECT_EQ(n_experts, 3 * 8);
    // 16 tokens with the 2 experts of one: each gets 16 of them.
    const std::vector<CountedExperts> alike(4, {.distinct = {{4.0, 2.0}, {16.0, 2.0}}});
    for (const PlanItem& item : plan_schedule(pass_items, rates, {.n_tokens = 16, .counted = alike}))
        if (item.tag == PlanTag::OnDemand) {
            EXPECT_NEAR(item.compute_seconds, 0.25 * expert * 4.0, 1e-3);
        }
}

// What the slots of a layer save adds up to what is copied without them, and from any slot on to what is still copied.
TEST(ExpertPlacement, APlanCountsTheCopiesThatSlotsSave) {
    const std::vector<PassItem> pass_items = items_of_a_mixture();
    for (const std::int64_t n_tokens : {1, 4, 100}) {
        for (const double factor : {1.0, 0.25}) {
            const std::vector<double> misses = expected_misses({8, 2}, static_cast<double>(n_tokens), factor);
            const auto schedule = plan_schedule(pass_items, {}, {.n_tokens = n_tokens, .miss_factor = factor});
            std::int64_t n_experts = 0;
            double left = 0.0;
            for (std::size_t i = 0; i < schedule.size(); ++i) {
                if (schedule[i].tag != PlanTag::OnDemand) {
                    EXPECT_EQ(schedule[i].slot_saves, 1.0);
                    continue;
                }
                const auto slot = static_cast<std::size_t>(n_experts++ % 8);
                if (slot == 0) left = misses[0];
                left -= schedule[i].slot_saves;
                EXPECT_NEAR(left, misses[slot + 1], 1e-12);
            }
            EXPECT_EQ(n_experts, 3 * 8);
        }
    }
}

TEST(ExpertPlacement, BytesOfExpertsAndOfWhatATokenReadsAreCounted) {
    const auto files = mixture(DType::F32, true, 8, 2);
    const std::size_t experts = std::size_t{3} * 8 * 3 * 32 * 64 * 4;  // of three layers
    const ExpertBytes one = expert_bytes(files->config(), files->weights(), 1.0);
    const ExpertBytes many = expert_bytes(files->config(), files->weights(), 1e6);
    EXPECT_EQ(one.experts, experts);
    EXPECT_EQ(many.experts, experts);
    EXPECT_EQ(many.read - one.read, experts / 4 * 3);
    std::vector<CountedExperts> counted(4, {.distinct = {{8.0, 4.0}}});
    EXPECT_TRUE(distinct_is_counted(files->config(), counted));
    EXPECT_EQ(expert_bytes(files->config(), files->weights(), 8.0, counted).read - one.read, experts / 4);
    counted[1].distinct.clear();
    EXPECT_FALSE(distinct_is_counted(files->config(), counted));
    EXPECT_FALSE(distinct_is_counted(files->config(), {}));
    const auto dense = make_tiny_model({});
    EXPECT_EQ(expert_bytes(dense->config(), dense->weights(), 1.0).experts, 0U);
    EXPECT_EQ(first_experts(dense->config()), nullptr);
    ASSERT_NE(first_experts(files->config()), nullptr);
    EXPECT_EQ(first_experts(files->config())->n_chosen, 2);
    EXPECT_EQ(n_expert_layers(files->config()), 3);
}

TEST(ExpertPlacement, MatricesAreNotSharedAmongDevices) {
    const auto files = mixture(DType::F32, true);
    const std::vector<double> shares{1.0, 1.0};
    EXPECT_EQ(error_text<Unsupported>([&] {
                  static_cast<void>(parts_by_share(SplitKind::Tensor, files->config(), files->weights(), shares));
              }),
              "the matrices of a mixture of experts cannot be shared among devices; split the model by layers (--split "
              "layers)");
}

TEST(ExpertPlacement, ARouterThatGivesNoFiniteNumbersNamesLayerAndToken) {
    const auto files = mixture(DType::F32, false);
    // A NaN in the router of layer 2 reaches every token; the first one is named.
    const ConstTensorView router = files->weights().layers[2][TensorRole::Router];
    float& weight = *const_cast<float*>(float_row(router, 4));
    const float before = weight;
    weight = std::numeric_limits<float>::quiet_NaN();
    {
        SplitEngine engine(*files, {kLayers}, Streams::Nothing);
        EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(plainly(*engine.target, prompt_of(3), 4)); }),
                    HasSubstr("layer 2: the router gives the token at position 0 logits that are not finite"));
    }
    weight = before;
    SplitEngine engine(*files, {kLayers}, Streams::Nothing);
    EXPECT_EQ(plainly(*engine.target, prompt_of(3), 4).text.size(), 7U);
}

/// Gives output 3 of a product with `matrix` (Q8_0 or BF16) no finite number.
void damage(const ConstTensorView& matrix) {
    auto* const row = const_cast<std::byte*>(matrix.row(3));
    const Half scale = to_half(std::numeric_limits<float>::infinity());
    const BFloat16 weight = to_bfloat16(std::numeric_limits<float>::quiet_NaN());
    if (matrix.dtype == DType::Q8_0) std::memcpy(row, &scale, sizeof(scale));
    if (matrix.dtype == DType::BF16) std::memcpy(row, &weight, sizeof(weight));
}

/// The position that the error names if `prompt` has a token that chooses expert 4 of layer 2, which is damaged. -1 if
/// there is none: the text is then that of `whole`, a model that is not damaged.
std::int64_t named_position(SplitEngine& engine, SplitEngine& whole, const std::vector<TokenId>& prompt) {
    for (RankTarget* target : {engine.target, whole.target}) {
        target->forget();
        target->truncate(0);
    }
    try {
        const Generated found = plainly(*engine.target, prompt, 1);
        EXPECT_EQ(found, plainly(*whole.target, prompt, 1));
        return -1;
    } catch (const Error& error) {  // FormatError, or RankFailed of several devices
        const std::string before = "layer 2: the activation of expert 4 gives the token at position ";
        const std::string after =
            " numbers that are not finite; the model's weights are damaged, or their numbers overflow";
        const std::string found = error.what();
        EXPECT_THAT(found, HasSubstr(before));  // after the name of the device, if there are several
        EXPECT_THAT(found, testing::EndsWith(after));
        const std::size_t at = found.find(before);
        return at == std::string::npos ? -2 : std::stoll(found.substr(at + before.size()));
    }
}

// The first token that chooses the damaged expert is named. Prompts that do not choose it go on having their texts, on
// the same target: here those of the same tokens without that one.
TEST(ExpertPlacement, AnActivationThatIsNotFiniteNamesLayerExpertAndToken) {
    for (const DType type : {DType::Q8_0, DType::BF16}) {
        const auto files = mixture(type, false);
        SplitEngine whole(*files, {kLayers}, Streams::Nothing);
        damage(files->weights().layers[2].experts[4][TensorRole::Up]);
        for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}}) {
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Both}) {
                SCOPED_TRACE(testing::PrintToString(split));
                SplitEngine engine(*files, split, streams, {}, kRing);
                int n_told = 0;
                int n_served = 0;
                for (TokenId first = 0; first < 24; ++first) {
                    std::vector<TokenId> prompt;
                    for (TokenId i = 0; i < 6; ++i) prompt.push_back((first * 31 + i * 13) % 97);
                    const std::int64_t position = named_position(engine, whole, prompt);
                    ASSERT_GE(position, -1);
                    if (position < 0) continue;
                    ++n_told;
                    ASSERT_LT(position, std::ssize(prompt));
                    prompt.resize(static_cast<std::size_t>(position) + 1);
                    EXPECT_EQ(named_position(engine, whole, prompt), position);
                    prompt.pop_back();
                    if (prompt.empty()) continue;
                    ++n_served;
                    EXPECT_EQ(named_position(engine, whole, prompt), -1);
                }
                EXPECT_GT(n_told, 10);
                EXPECT_GT(n_served, 5);
                // A prompt of more than a prefill chunk, which goes by layers where weights stream.
                EXPECT_GE(named_position(engine, whole, prompt_of(600)), 0);
                EXPECT_GE(named_position(engine, whole, prompt_of(600)), 0);
            }
        }
    }
}

/// Counts the passes that were verified without the draft tokens that were proposed.
class DroppedTrees final : public Proposer {
public:
    explicit DroppedTrees(Proposer& proposer) : proposer_(proposer) {}
    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        proposer_.propose(tree, limits);
        n_proposed_ = tree.size();
    }
    void observe(const Observation& observation) override {
        if (observation.tree != nullptr && observation.tree->size() < n_proposed_) {
            ++n_dropped;
            EXPECT_EQ(observation.tree->size(), 1);
            EXPECT_EQ(observation.pass_seconds, 0.0);
        }
        proposer_.observe(observation);
    }
    int n_dropped = 0;

private:
    Proposer& proposer_;
    std::int32_t n_proposed_ = 0;
};

// Draft tokens choose a damaged expert, the tokens of the text do not: the text is the plain one (E1).
TEST(ExpertPlacement, DraftTokensThatAreNotFiniteDoNotChangeTheText) {
    const auto files = mixture(DType::Q8_0, false, 9, 1);
    damage(files->weights().layers[2].experts[4][TensorRole::Up]);
    for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{kLayers}, {1, 3}}) {
        for (const Streams streams : {Streams::Nothing, Streams::Both}) {
            SplitEngine engine(*files, split, streams, {}, kRing);
            int n_texts = 0;
            int n_dropped = 0;
            for (TokenId first = 0; first < 97 && n_texts < 3; ++first) {
                const std::vector<TokenId> prompt{first, (first * 31 + 5) % 97};
                const auto begin = [&] {
                    engine.target->forget();
                    engine.target->truncate(0);
                };
                Generated plain;
                try {
                    begin();
                    plain = plainly(*engine.target, prompt, 14);
                } catch (const FormatError&) {
                    continue;
                }
                ++n_texts;
                for (const double hit : {0.1, 0.5}) {
                    begin();
                    ScriptedProposer scripted(plain.text, hit, 3);
                    DroppedTrees counted(scripted);
                    EXPECT_EQ(generate(*engine.target, prompt, 14, counted, SplitEngine::kBudget), plain);
                    n_dropped += counted.n_dropped;
                }
            }
            EXPECT_EQ(n_texts, 3);
            EXPECT_GT(n_dropped, 0);
        }
    }
}

TEST(ExpertRowsOrder, IsByExpertThenByToken) {
    const auto files = mixture(DType::F32, false, 4, 2);
    const ExpertsConfig& experts = files->config().experts(1);
    ExpertRows rows(files->config(), 3);
    const std::vector<std::int32_t> chosen{1, 3, 0, 1, 1, 3};
    std::copy(chosen.begin(), chosen.end(), rows.chosen());
    std::iota(rows.chosen_weights(), rows.chosen_weights() + 6, 10.0F);
    EXPECT_EQ(rows.sort(experts, 3), -1);
    EXPECT_THAT(rows.tokens(), ElementsAre(1, 0, 1, 2, 0, 2));
    EXPECT_THAT(rows.weights(), ElementsAre(12.0F, 10.0F, 13.0F, 14.0F, 11.0F, 15.0F));
    EXPECT_EQ(rows.n_rows(0), 1);
    EXPECT_EQ(rows.first_row(1), 1);
    EXPECT_EQ(rows.n_rows(2), 0);
    EXPECT_EQ(rows.first_row(4), 6);
    rows.chosen()[3] = -1;
    EXPECT_EQ(rows.sort(experts, 3), 1);
}

}  // namespace
}  // namespace slipstream
