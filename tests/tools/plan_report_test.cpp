// Plans for named hardware: published figures that they have to come near, what the host must hold, what helps.
#include "tools/plan/plan_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/plan/expert_misses.h"
#include "tests/support/error_text.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kGiB = std::size_t{1} << 30;

PlanRequest request(std::string_view profile, std::string_view shape, Quantisation quantisation,
                    std::optional<std::int64_t> context_tokens = std::nullopt) {
    PlanRequest asked;
    asked.model = planned_shape(shape, find_shape(shape).value(), quantisation);
    asked.kv_dtype = asked.model.config.kv_dtype;
    asked.profile = find_profile(profile);
    asked.hardware = profile_hardware(asked.profile.value(), asked.model.config, asked.kv_dtype);
    asked.context_tokens = context_tokens;
    return asked;
}

// TriForce (Sun et al. 2024, table of latencies): plain decoding behind 130,304 tokens on two RTX 4090 takes 840 ms a
// token with Llama-2-7B and 1794 ms with 13B; 12 of the 7B model's 32 layers have their KV on the cards.
// Whatever pass is planned for: the bytes of a device's link and its time to compute are those of a pass of one token.
TEST(PlanReport, WorkOfADeviceIsThatOfOneToken) {
    for (const std::int64_t pass_tokens : {1, 16}) {
        PlanRequest asked = request("2x4090-x16", "gpt-oss-120b", Quantisation::MXFP4, 8192);
        asked.pass_tokens = pass_tokens;
        const PlanReport report = make_plan_report(asked);
        ASSERT_EQ(report.devices.size(), 2U);
        double least = 0.0;
        for (std::size_t i = 0; i < 2; ++i) {
            const ResidencyPlan& plan = report.plan.ranks()[i].residency();
            const DeviceWork& work = report.devices[i];
            ASSERT_GT(plan.most_streamed_weights_bytes, 0U);
            // 4 of 128 experts, but for those in slots.
            double copied = 0.0;
            for (const std::int32_t slots : report.plan.ranks()[i].expert_slots())
                copied += 4.0 * (1.0 - expected_hits({128, 4}, slots));
            const double expert_bytes = static_cast<double>(plan.most_streamed_weights_bytes) / (18.0 * 128.0);
            EXPECT_NEAR(work.streamed_bytes, copied * expert_bytes, 1.0);
            EXPECT_LT(work.streamed_bytes,
                      0.6 * static_cast<double>(plan.most_streamed_weights_bytes - plan.slot_bytes) / 32);
            EXPECT_DOUBLE_EQ(work.link_seconds, work.streamed_bytes / asked.hardware.link_of(i));
            if (pass_tokens > 1) {
                EXPECT_LT(work.streamed_bytes, 0.1 * static_cast<double>(plan.streamed_weights_bytes));
            }
            least += work.compute_seconds;
        }
        EXPECT_LE(least, report.one.seconds);
    }
}

class TriForce : public testing::Test {
protected:
    static constexpr std::int64_t kTokens = 130304;

    static PlanRequest asked(std::string_view shape) {
        PlanRequest asked = request("2x4090-x16", shape, Quantisation::F16, kTokens);
        asked.pass_tokens = 1;
        return asked;
    }
    static double seconds(PlanRequest asked, double link_bytes_per_second, std::size_t device_bytes) {
        asked.hardware.link_bytes_per_second = link_bytes_per_second;
        asked.hardware.device_bytes = device_bytes;
        return make_plan_report(asked).one.seconds;
    }
};

TEST_F(TriForce, ThirteenBillionFollowFromSeven) {
    const PlanRequest seven = asked("llama2-7b-128k");
    // The budget at which as much KV is resident as they had.
    const PlanReport roomy = make_plan_report(seven);
    ASSERT_EQ(roomy.plan.sums().regime, Regime::KvStreams);
    const std::size_t theirs = roomy.kv_bytes() / 32 * 12;
    const std::size_t budget = seven.hardware.device_bytes - (roomy.plan.sums().resident_kv_bytes - theirs) / 2;
    PlanRequest same = seven;
    same.hardware.device_bytes = budget;
    EXPECT_NEAR(static_cast<double>(make_plan_report(same).plan.sums().resident_kv_bytes), static_cast<double>(theirs),
                3e8);
    // The link that then takes 840 ms.
    double low = 10e9, high = 60e9;
    for (int i = 0; i < 40; ++i) {
        const double middle = 0.5 * (low + high);
        (seconds(seven, middle, budget) > 0.840 ? low : high) = middle;
    }
    EXPECT_NEAR(low, 25.4e9, 0.4e9);
    // With that link, and the same memory, or all that the cards have.
    const PlanRequest thirteen = asked("llama2-13b-128k");
    EXPECT_NEAR(seconds(thirteen, low, budget), 1.794, 0.05 * 1.794);
    EXPECT_NEAR(seconds(thirteen, low, thirteen.hardware.device_bytes), 1.794, 0.05 * 1.794);
}

// Ten layers keep the KV of 512 chunks, 52 a ring of ceil((1024 + 1024 + 511) / 256) + 2 chunks, of 2 MiB each.
TEST(PlanReport, WindowedLayersKeepASixthOfTheKv) {
    const PlanReport report = make_plan_report(request("2x4090", "gemma3-27b", Quantisation::Q4_K_M, 131072));
    EXPECT_EQ(report.kv_bytes(), (10 * 512 + 52 * 12) * (std::size_t{2} << 20));
    const ResidencyPlan& plan = report.plan.sums();
    EXPECT_LE(plan.resident_kv_bytes + plan.streamed_kv_bytes, report.kv_bytes());
    EXPECT_LT(5 * report.kv_bytes(), 62 * 512 * (std::size_t{2} << 20));
}

TEST(PlanReport, ALargeModelStreamsItsWeights) {
    const PlanReport report = make_plan_report(request("1x4090", "llama-70b", Quantisation::Q4_K_M));
    EXPECT_EQ(report.context_tokens, 4096);
    EXPECT_FALSE(report.context_reduced);
    const ResidencyPlan& plan = report.plan.sums();
    EXPECT_EQ(plan.regime, Regime::WeightsStream);
    EXPECT_EQ(plan.resident_kv_bytes, report.kv_bytes());
    EXPECT_NEAR(report.one.seconds, static_cast<double>(plan.streamed_weights_bytes) / 25.2e9, 0.01);
    EXPECT_GE(report.plan.pass_tokens(), 64);
    EXPECT_LE(report.expected.seconds, 1.15 * report.one.seconds);
    // Host: what streams, a prompt's states, and the embedding table.
    EXPECT_EQ(report.host.pinned_bytes, plan.streamed_weights_bytes);
    EXPECT_EQ(report.host.hidden_bytes, 4096U * 8192U * 4U);
    EXPECT_EQ(report.host.embedding_bytes, 32000U * 8192U / 256U * 144U);
    EXPECT_EQ(report.host.device_bytes, 0U);
}

// Layers in turn: every link carries its part, none waits for another.
TEST(PlanReport, LayersAreDealtOutToCards) {
    const PlanReport one = make_plan_report(request("1x4090", "llama-70b", Quantisation::Q4_K_M, 4096));
    PlanRequest asked = request("2x4090-x16", "llama-70b", Quantisation::Q8_0, 4096);
    const PlanReport two = make_plan_report(asked);
    EXPECT_TRUE(one.devices.empty());
    ASSERT_EQ(two.devices.size(), 2U);
    EXPECT_EQ(two.devices[0].parts, 40);
    EXPECT_EQ(two.devices[1].parts, 40);
    const double bytes = static_cast<double>(two.plan.sums().streamed_weights_bytes);
    EXPECT_NEAR(two.one.seconds, bytes / 2 / asked.hardware.link_bytes_per_second, 0.02 * two.one.seconds);
    EXPECT_LE(two.plan.sums().device_bytes, 2 * asked.hardware.device_bytes);
    EXPECT_EQ(two.weights_bytes(), two.plan.sums().resident_weights_bytes + two.plan.sums().streamed_weights_bytes);
    // A card with half the link gets fewer layers, and both links are through at about the same time.
    asked.hardware.links = {asked.hardware.link_bytes_per_second, 0.5 * asked.hardware.link_bytes_per_second};
    const PlanReport uneven = make_plan_report(asked);
    EXPECT_GT(uneven.devices[0].parts, uneven.devices[1].parts);
    EXPECT_NEAR(uneven.devices[0].link_seconds, uneven.devices[1].link_seconds, 0.1 * uneven.one.seconds);
    asked.shares = {3, 1};
    const PlanReport given = make_plan_report(asked);
    EXPECT_EQ(given.devices[0].parts, 60);
    EXPECT_EQ(given.devices[1].parts, 20);
    EXPECT_LE(uneven.one.seconds, given.one.seconds);
}

// Every card has a part of each matrix: as many bytes a link as with layers, and computing is halved, too.
TEST(PlanReport, MatricesAreSplitAmongCards) {
    PlanRequest layers = request("2x4090-x16", "llama-70b", Quantisation::Q4_K_M, 4096);
    layers.hardware.device_bytes = std::size_t{1} << 38;  // all fits
    PlanRequest tensor = layers;
    tensor.split = SplitKind::Tensor;
    const PlanReport in_turn = make_plan_report(layers);
    const PlanReport together = make_plan_report(tensor);
    ASSERT_EQ(together.devices.size(), 2U);
    EXPECT_EQ(together.devices[0].parts, 4);
    EXPECT_EQ(together.devices[1].parts, 4);
    EXPECT_EQ(together.plan.sums().regime, Regime::AllFits);
    EXPECT_NEAR(together.one.seconds, in_turn.one.seconds / 2, 0.1 * in_turn.one.seconds);
    // Half the memory each: what streams goes over both links.
    tensor.hardware.device_bytes = layers.hardware.device_bytes = std::size_t{14} << 30;
    const PlanReport streamed = make_plan_report(tensor);
    const double bytes = static_cast<double>(streamed.plan.sums().streamed_weights_bytes);
    EXPECT_GT(bytes, 0.0);
    EXPECT_NEAR(streamed.one.seconds, bytes / 2 / tensor.hardware.link_bytes_per_second, 0.05 * streamed.one.seconds);
    EXPECT_LT(streamed.one.seconds, make_plan_report(layers).one.seconds) << "whose devices compute in turn";
    // A card with half the link gets fewer heads.
    tensor.hardware.links = {tensor.hardware.link_bytes_per_second, 0.5 * tensor.hardware.link_bytes_per_second};
    const PlanReport uneven = make_plan_report(tensor);
    EXPECT_GT(uneven.devices[0].parts, uneven.devices[1].parts);
    tensor.shares = {3, 1};
    EXPECT_EQ(make_plan_report(tensor).devices[0].parts, 6);
}

TEST(PlanReport, AssumptionsGiveTokensASecond) {
    PlanRequest asked = request("1x4090", "llama2-7b-128k", Quantisation::F16, 130304);
    asked.assumed = Assumptions{.acceptance = 0.95};
    const PlanReport report = make_plan_report(asked);
    const AssumedRate& rate = report.assumed.value();
    // A guess reads all weights and the view, on the card.
    EXPECT_NEAR(rate.draft_seconds, (13.2e9 + 4096 * 0.5 * 1048576) / 857e9, 0.1 * rate.draft_seconds);
    EXPECT_DOUBLE_EQ(rate.pass_seconds, report.plan.pass(rate.n_guesses + 1).seconds);
    EXPECT_NEAR(rate.seconds_per_token(), 0.18, 0.02);
    asked.assumed->view_type = ViewType::Q4;
    // 160 tokens as rows, the others in pages of a quarter and 2 % of the bytes.
    EXPECT_NEAR(make_plan_report(asked).assumed->draft_seconds,
                (13.2e9 + (160 + 0.27 * (4096 - 160)) * 0.5 * 1048576) / 857e9, 0.1 * rate.draft_seconds);
    asked.assumed->view_type = ViewType::Rows;
    asked.assumed->hidden = 0.7;
    EXPECT_LT(make_plan_report(asked).assumed->seconds_per_token(), rate.seconds_per_token());
    // The view takes memory that KV could have.
    asked.assumed = Assumptions{.acceptance = 0.95, .draft_seconds = 0.003};
    EXPECT_GT(make_plan_report(asked).plan.sums().resident_kv_bytes, report.plan.sums().resident_kv_bytes);
}

TEST(PlanReport, TokensASecondFollowFromTokensAPass) {
    PlanRequest asked = request("1x4090", "llama-70b", Quantisation::Q4_K_M);
    asked.tokens_per_pass = {1.0, 6.5};
    asked.pass_tokens = 32;
    const PlanReport report = make_plan_report(asked);
    ASSERT_EQ(report.rates.size(), 2U);
    EXPECT_EQ(report.rates[0].pass_tokens, 1);
    EXPECT_DOUBLE_EQ(report.rates[0].tokens_per_second, 1.0 / report.one.seconds);
    EXPECT_EQ(report.rates[1].pass_tokens, 32);
    EXPECT_DOUBLE_EQ(report.rates[1].tokens_per_second, 6.5 / report.expected.seconds);
}

TEST(PlanReport, AModelLargerThanTheHostIsRefusedWithTheNumbers) {
    const auto refusal = [](const PlanRequest& asked) {
        return error_text<OutOfBudget>([&] { static_cast<void>(make_plan_report(asked)); });
    };
    EXPECT_THAT(refusal(request("1x4090", "llama-70b", Quantisation::F16)),
                AllOf(HasSubstr("llama-70b in F16 holds 128.5 GiB"), HasSubstr("memory 128.0 GiB")));
    PlanRequest asked = request("1x4090", "llama-70b", Quantisation::Q8_0);
    EXPECT_NO_THROW(static_cast<void>(make_plan_report(asked)));
    asked.hardware.host_budget_bytes = 30 * kGiB;
    EXPECT_THAT(refusal(asked), AllOf(HasSubstr("of which 30.0 GiB may be used"), HasSubstr("--host-memory")));
    asked.hardware.device_bytes = 2 * kGiB;
    EXPECT_THAT(refusal(asked), HasSubstr("--device-memory"));
}

TEST(PlanReport, TheContextIsWhatFits) {
    // 320 KiB of KV a token: 40 GiB at 128K tokens, beside 28 GiB of weights that stream.
    PlanRequest asked = request("laptop-8gb", "llama3.1-70b", Quantisation::Q3_K_S);
    asked.hardware.host_bytes = 64 * kGiB;
    asked.hardware.host_budget_bytes = 48 * kGiB;
    const PlanReport report = make_plan_report(asked);
    EXPECT_TRUE(report.context_reduced);
    EXPECT_EQ(report.context_tokens % 256, 0);
    EXPECT_LE(report.host.locked_bytes(), 48 * kGiB);
    EXPECT_GT(report.host.locked_bytes() + kGiB / 4, 48 * kGiB);
    asked.context_tokens = report.context_tokens + 256;
    EXPECT_THROW(static_cast<void>(make_plan_report(asked)), OutOfBudget);
}

TEST(PlanReport, DevicesInHostMemoryTakeIt) {
    PlanRequest asked = request("1x4090", "llama3-8b", Quantisation::Q8_0);
    const std::size_t before = make_plan_report(asked).host.total_bytes();
    asked.hardware.devices_in_host_memory = true;
    const PlanReport report = make_plan_report(asked);
    EXPECT_EQ(report.host.total_bytes(), before + report.plan.sums().device_bytes);
    asked.context_tokens = report.context_tokens;
    asked.hardware.host_bytes = report.host.total_bytes() - 1;
    EXPECT_THROW(static_cast<void>(make_plan_report(asked)), OutOfBudget);
}

PlanReport with_ways(const PlanRequest& request) {
    PlanReport report = make_plan_report(request);
    compare_ways(request, report);
    return report;
}

TEST(PlanReport, TheCpuInPlaceReadsAllWeightsAtTheMemorysRate) {
    const PlanRequest asked = request("laptop-8gb", "llama-70b", Quantisation::Q3_K_S);
    const PlanReport report = with_ways(asked);
    const Way* const cpu = report.way(WayKind::CpuOnly);
    ASSERT_NE(cpu, nullptr);
    const double bytes = static_cast<double>(report.weights_bytes() + report.kv_bytes());
    EXPECT_NEAR(cpu->one_seconds, bytes / (0.75 * 89.6e9), 0.03 * cpu->one_seconds);
    // Eight lanes bring less than that; where hundreds ride along, the card computes them sooner.
    EXPECT_LT(cpu->one_seconds, report.one.seconds);
    ASSERT_GE(report.plan.pass_tokens(), 64);
    EXPECT_GT(cpu->expected_seconds, report.expected.seconds);
    EXPECT_TRUE(with_ways(request("5090", "llama3-8b", Quantisation::Q4_K_M)).ways.empty()) << "nothing streams";
}

// Sharing layers is at least as fast as the better of streaming all and computing all, for the pass that it is planned
// for; each way is the fastest from where it is said to be.
TEST(PlanReport, WaysAreComparedForEachSizeOfPass) {
    for (const char* profile : {"laptop-8gb", "1x4090"}) {
        PlanRequest asked = request(profile, "llama-70b", Quantisation::Q3_K_S);
        asked.pass_tokens = 1;
        const PlanReport report = with_ways(asked);
        const Way* const streaming = report.way(WayKind::Streaming);
        ASSERT_NE(streaming, nullptr) << profile;
        EXPECT_EQ(streaming->one_seconds, report.one.seconds);
        std::int64_t n_fastest_from_one = 0;
        for (const Way& way : report.ways) n_fastest_from_one += way.from_tokens == 1 ? 1 : 0;
        EXPECT_EQ(n_fastest_from_one, 1) << profile;
        const Way* const shared = report.way(WayKind::Shared);
        const Way* const cpu = report.way(WayKind::CpuOnly);
        ASSERT_NE(shared, nullptr) << profile;
        EXPECT_EQ(std::ssize(shared->layers), asked.hardware.n_devices + 1);
        EXPECT_EQ(std::accumulate(shared->layers.begin(), shared->layers.end(), std::int64_t{0}),
                  asked.model.config.n_layers());
        EXPECT_LE(shared->one_seconds, streaming->one_seconds) << profile;
        if (cpu != nullptr) {
            EXPECT_LE(shared->one_seconds, cpu->one_seconds) << profile;
        }
    }
    PlanRequest tight = request("laptop-8gb", "llama-70b", Quantisation::Q3_K_S);
    const PlanReport roomy = make_plan_report(tight);
    tight.context_tokens = roomy.context_tokens;
    // Room for the files, but not for the KV cache beside them.
    tight.hardware.host_bytes = file_bytes(tight.model.weights, tight.model.config);
    EXPECT_EQ(with_ways(tight).way(WayKind::CpuOnly), nullptr) << "what is on the card does not fit into the host";
}

// gpt-oss-20b on 8 GiB: two thirds of the experts have slots.
PlanRequest mixture_request() {
    PlanRequest asked = request("1x4090", "gpt-oss-20b", Quantisation::MXFP4, 8192);
    asked.pass_tokens = 1;
    asked.hardware.device_bytes = 8 * kGiB;
    return asked;
}

// Slots of layers that a GPU and the CPU share need all experts of the GPU's layers in pinned memory. Where
// --host-memory does not hold them, those on the GPU stay there.
TEST(PlanReport, SharedLayersKeepToTheHostsBudget) {
    PlanRequest asked = mixture_request();
    const PlanReport roomy = with_ways(asked);
    ASSERT_EQ(roomy.experts.regime, ExpertRegime::InSlots);
    asked.hardware.host_budget_bytes = 9 * kGiB / 2;
    const PlanReport tight = with_ways(asked);
    ASSERT_EQ(tight.experts.regime, ExpertRegime::Fixed);
    ASSERT_NE(roomy.way(WayKind::Shared), nullptr);
    ASSERT_NE(tight.way(WayKind::Shared), nullptr);
    EXPECT_EQ(tight.way(WayKind::Shared)->layers, roomy.way(WayKind::Shared)->layers);
    EXPECT_GT(tight.way(WayKind::Shared)->one_seconds, 1.02 * roomy.way(WayKind::Shared)->one_seconds);
}

TEST(PlanReport, OneMoreGibIsPlannedAnew) {
    const PlanRequest asked = mixture_request();
    PlanReport report = make_plan_report(asked);
    plan_one_more_gib(asked, report);
    ASSERT_TRUE(report.one_more_gib);
    PlanRequest more = asked;
    more.hardware.device_bytes += kGiB;
    const PlanReport changed = make_plan_report(more);
    EXPECT_DOUBLE_EQ(report.one_more_gib->hits, changed.experts.hits);
    EXPECT_DOUBLE_EQ(report.one_more_gib->tokens_per_second, 1.0 / changed.one.seconds);
    EXPECT_GT(report.one_more_gib->hits, report.experts.hits);
    EXPECT_GT(report.one_more_gib->tokens_per_second, 1.0 / report.one.seconds);
    // Nothing is said where all experts fit, or where the host lacks the memory.
    more.hardware.device_bytes = 16 * kGiB;
    PlanReport fits = make_plan_report(more);
    ASSERT_EQ(fits.experts.regime, ExpertRegime::Fit);
    EXPECT_EQ(fits.experts.hits, 1.0);
    plan_one_more_gib(more, fits);
    EXPECT_FALSE(fits.one_more_gib);
}

TEST(PlanReport, ExpertsOfAPlan) {
    PlanRequest asked = mixture_request();
    const ExpertPlan slots = make_plan_report(asked).experts;
    EXPECT_EQ(slots.n_experts, 24 * 32);
    EXPECT_EQ(slots.layer_experts, 32);
    EXPECT_GE(slots.n_slots, 24 * slots.least_slots);
    EXPECT_LE(slots.n_slots, 24 * slots.most_slots);
    EXPECT_LE(slots.most_slots, slots.least_slots + 1);
    EXPECT_GE(slots.hits, expected_hits({32, 4}, slots.least_slots));
    EXPECT_LE(slots.hits, expected_hits({32, 4}, slots.most_slots));
    asked.hardware.host_budget_bytes = 9 * kGiB / 2;
    const ExpertPlan fixed = make_plan_report(asked).experts;
    EXPECT_EQ(fixed.n_slots, 0);
    EXPECT_NEAR(fixed.hits, static_cast<double>(slots.n_slots) / slots.n_experts, 0.01);
    // Of 4 experts in each of 24 layers.
    const double expert = static_cast<double>(slots.slot_bytes) / static_cast<double>(slots.n_slots);
    EXPECT_NEAR(slots.copied_bytes, (1.0 - slots.hits) * 24 * 4 * expert, 1e-6 * slots.copied_bytes);
    EXPECT_NEAR(fixed.copied_bytes, (1.0 - fixed.hits) * 24 * 4 * expert, 1e-6 * fixed.copied_bytes);
    asked.hardware.host_budget_bytes = 100 * kGiB;
    asked.hardware.device_bytes = 2 * kGiB;
    const ExpertPlan none = make_plan_report(asked).experts;
    EXPECT_EQ(none.regime, ExpertRegime::Stream);
    EXPECT_EQ(none.hits, 0.0);
}

TEST(PlanReport, HitsCanBeAssumed) {
    PlanRequest asked = mixture_request();
    const PlanReport prior = make_plan_report(asked);
    for (const double hits : {0.0, 0.5, 0.9, 0.99, 1.0}) {
        asked.assumed_hits = hits;
        assume_hits(asked);
        const PlanReport report = make_plan_report(asked);
        EXPECT_NEAR(report.experts.hits, hits, 0.002);
        EXPECT_EQ(report.experts.n_slots, prior.experts.n_slots) << "a run does not know";
        const bool hits_more = report.experts.hits > prior.experts.hits;
        const bool is_faster = report.one.seconds < prior.one.seconds;
        EXPECT_EQ(is_faster, hits_more) << hits;
        EXPECT_DOUBLE_EQ(report.plan.sums().pass_seconds, report.one.seconds);
    }
    // Two devices with different numbers of slots; of one of them all experts are on it, so hits are at least its
    // share.
    PlanRequest two = request("2x4090", "gpt-oss-20b", Quantisation::MXFP4, 8192);
    two.hardware.device_bytes = 4 * kGiB;
    for (const double hits : {0.0, 0.05, 0.2, 0.8}) {
        two.assumed_hits = hits;
        assume_hits(two);
        EXPECT_NEAR(make_plan_report(two).experts.hits, hits, 0.002);
    }
    // Of the four experts of a token no more can hit than there are slots.
    asked.assumed_hits = 0.9;
    asked.hardware.device_bytes = 3 * kGiB;
    ASSERT_LT(make_plan_report(asked).experts.most_slots, 4);
    EXPECT_THAT(error_text<RequestError>([&] { assume_hits(asked); }), HasSubstr(" at most"));
    asked.hardware.device_bytes = 16 * kGiB;
    EXPECT_THAT(error_text<RequestError>([&] { assume_hits(asked); }),
                HasSubstr("no expert has a slot in this plan (experts fit)"));
    PlanRequest dense = request("1x4090", "llama-70b", Quantisation::Q4_K_M, 8192);
    dense.assumed_hits = 0.9;
    EXPECT_THAT(error_text<RequestError>([&] { assume_hits(dense); }), HasSubstr("the model has no experts"));
}

// Counts of earlier texts replace the prior, on one device and on two, if they are of all layers with slots.
TEST(PlanReport, HitsCanBeCounted) {
    PlanRequest one = mixture_request();
    PlanRequest two = request("2x4090", "gpt-oss-20b", Quantisation::MXFP4, 8192);
    two.hardware.device_bytes = 4 * kGiB;
    for (PlanRequest* asked : {&one, &two}) {
        const PlanReport prior = make_plan_report(*asked);
        EXPECT_FALSE(prior.experts.hits_are_counted);
        ASSERT_EQ(prior.experts.regime, ExpertRegime::InSlots);
        for (const double hits : {0.3, 0.99}) {
            std::vector<double> curve(33, hits);
            curve.front() = 0.0;
            curve.back() = 1.0;
            asked->counted.assign(24, {.hits = curve});
            PlanReport report = make_plan_report(*asked);
            EXPECT_TRUE(report.experts.hits_are_counted);
            EXPECT_EQ(report.experts.n_slots, prior.experts.n_slots) << "a plan places by the prior";
            EXPECT_EQ(report.one.seconds<prior.one.seconds, report.experts.hits> prior.experts.hits);
            EXPECT_DOUBLE_EQ(report.plan.sums().pass_seconds, report.one.seconds);
            if (asked == &two) continue;  // all experts of some layers may be on a device
            EXPECT_NEAR(report.experts.hits, hits, 1e-9);
            plan_one_more_gib(*asked, report);
            EXPECT_NEAR(report.one_more_gib.value().hits, hits, 1e-9) << "it is planned by the same counts";
        }
        for (auto& [layer, distinct] : asked->counted) {
            std::vector<double> before;
            std::swap(before, layer);
            const PlanReport lacking = make_plan_report(*asked);
            if (asked == &one) {
                EXPECT_FALSE(lacking.experts.hits_are_counted);
            }
            if (!lacking.experts.hits_are_counted) {
                EXPECT_DOUBLE_EQ(lacking.experts.hits, prior.experts.hits);
            }
            std::swap(before, layer);
            if (asked == &two) break;
        }
    }
}

// Counts of earlier texts say what passes of several tokens read, wherever experts are, if they are of all layers.
TEST(PlanReport, DistinctExpertsCanBeCounted) {
    PlanRequest slots = mixture_request();
    slots.pass_tokens = 16;
    PlanRequest fits = slots;
    fits.hardware.device_bytes = 24 * kGiB;
    PlanRequest two = request("2x4090", "gpt-oss-20b", Quantisation::MXFP4, 8192);
    two.hardware.device_bytes = 4 * kGiB;
    two.pass_tokens = 16;
    for (PlanRequest* asked : {&slots, &fits, &two}) {
        const PlanReport even = make_plan_report(*asked);
        EXPECT_FALSE(even.experts.distinct_is_counted);
        asked->counted.assign(24, {.distinct = {{2.0, 5.0}, {64.0, 9.0}}});
        PlanReport report = make_plan_report(*asked);
        EXPECT_TRUE(report.experts.distinct_is_counted);
        EXPECT_FALSE(report.experts.hits_are_counted);
        EXPECT_EQ(report.experts.n_slots, even.experts.n_slots);
        EXPECT_DOUBLE_EQ(report.one.seconds, even.one.seconds);
        EXPECT_LT(report.expected.seconds, even.expected.seconds);
        if (asked != &fits) {
            compare_ways(*asked, report);
            PlanReport even_ways = even;
            PlanRequest nothing = *asked;
            nothing.counted.clear();
            compare_ways(nothing, even_ways);
            if (const Way* way = report.way(WayKind::CpuOnly); way != nullptr) {
                EXPECT_LT(way->expected_seconds, even_ways.way(WayKind::CpuOnly)->expected_seconds);
            }
        }
        asked->counted[7].distinct.clear();
        const PlanReport lacking = make_plan_report(*asked);
        EXPECT_FALSE(lacking.experts.distinct_is_counted);
        EXPECT_DOUBLE_EQ(lacking.expected.seconds, even.expected.seconds);
    }
}

TEST(FasterWayNote, NamesTheFastestWayIfItIsMuchFaster) {
    const auto note = [](double streaming, double shared, double cpu_only) {
        return faster_way_note(
            std::vector<Way>{{.kind = WayKind::Streaming, .expected_seconds = streaming},
                             {.kind = WayKind::Shared, .options = "--devices a,cpu", .expected_seconds = shared},
                             {.kind = WayKind::CpuOnly, .options = "--devices cpu", .expected_seconds = cpu_only}},
            4);
    };
    EXPECT_EQ(note(1.29, 1.0, 1.1), std::nullopt);
    EXPECT_EQ(note(1.0, 2.0, 3.0), std::nullopt);
    EXPECT_EQ(note(1.5, 1.0, 1.1),
              "layers shared with the CPU would be 1.5x as fast for passes of 4 tokens: --devices a,cpu");
    // In the same time, the way without sharing.
    EXPECT_EQ(note(2.0, 1.0, 1.005), "CPU only would be 2.0x as fast for passes of 4 tokens: --devices cpu");
}

TEST(Improvements, AreSortedAndEachIsPlannedAnew) {
    const PlanRequest asked = request("1x4090", "llama-70b", Quantisation::Q4_K_M);
    const PlanReport report = make_plan_report(asked);
    const std::vector<Improvement> found = improvements(asked, report);
    ASSERT_GE(found.size(), 3U);
    EXPECT_EQ(found[0].what, "a second RTX 4090, PCIe x8 each");
    EXPECT_EQ(found[1].what, "8.0 GiB more device memory");
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_GT(found[i].gain, 1.0);
        if (i > 0) {
            EXPECT_LE(found[i].gain, found[i - 1].gain);
        }
        EXPECT_NEAR(found[i].gain * found[i].gain,
                    report.one.seconds / found[i].one_seconds * report.expected.seconds / found[i].expected_seconds,
                    1e-9);
    }
    // 8 GiB of 18.6 no longer stream.
    PlanRequest more = asked;
    more.hardware.device_bytes += 8 * kGiB;
    EXPECT_NEAR(found[1].one_seconds, make_plan_report(more).one.seconds, 0.02 * found[1].one_seconds);
}

TEST(Improvements, OfLongContextsIsASmallerKvType) {
    const PlanRequest asked = request("2x4090", "llama2-7b-128k", Quantisation::F16, 130304);
    const std::vector<Improvement> found = improvements(asked, make_plan_report(asked));
    ASSERT_FALSE(found.empty());
    EXPECT_THAT(found[0].what, HasSubstr("--kv-type q8"));
    EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                            [](const Improvement& entry) { return entry.what == "PCIe x16 for each GPU"; }));
    PlanRequest wide = asked;
    wide.kv_dtype = DType::F32;
    wide.context_tokens = 32768;
    wide.hardware = profile_hardware(*wide.profile, wide.model.config, wide.kv_dtype);
    const std::vector<Improvement> half = improvements(wide, make_plan_report(wide));
    EXPECT_TRUE(
        std::any_of(half.begin(), half.end(), [](const Improvement& entry) { return entry.what == "--kv-type f16"; }));
}

TEST(Improvements, AnEightBitCacheIsWhatItsOwnPlanSays) {
    PlanRequest asked = request("2x4090", "llama2-7b-128k", Quantisation::F16, 130304);
    const PlanReport plain = make_plan_report(asked);
    const std::vector<Improvement> found = improvements(asked, plain);
    asked.kv_dtype = DType::Q8_0;
    const PlanReport report = make_plan_report(asked);
    // Rows of 128 codes and four scales instead of 256 bytes.
    EXPECT_EQ(report.kv_bytes() * 256, plain.kv_bytes() * 136);
    ASSERT_FALSE(found.empty());
    EXPECT_NEAR(found[0].one_seconds, report.one.seconds, 0.1 * report.one.seconds);
    for (const Improvement& entry : improvements(asked, report))
        EXPECT_THAT(entry.what, testing::Not(HasSubstr("KV cache")));
}

TEST(Improvements, AreNotToldWhereEverythingFits) {
    const PlanRequest asked = request("5090", "llama3-8b", Quantisation::Q4_K_M);
    const PlanReport report = make_plan_report(asked);
    EXPECT_EQ(report.plan.sums().regime, Regime::AllFits);
    EXPECT_TRUE(improvements(asked, report).empty());
}

TEST(Improvements, NothingIsAddedToALaptop) {
    const PlanRequest asked = request("laptop-8gb", "llama3-8b", Quantisation::Q8_0);
    for (const Improvement& entry : improvements(asked, make_plan_report(asked)))
        EXPECT_THAT(entry.what, testing::Not(testing::AnyOf(HasSubstr("second"), HasSubstr("PCIe"))));
}

}  // namespace
}  // namespace slipstream::tools
