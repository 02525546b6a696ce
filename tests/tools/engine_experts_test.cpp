// --experts from the options of an engine to its passes: what is planned, said and counted.
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/expert_plan.h"
#include "runtime/plan/split_plan.h"
#include "tests/support/error_text.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kEnough = 512 * kMiB;

OpenedModel opened() {
    return OpenedModel(
        "tiny", make_tiny_model(
                    {.d_model = 256, .d_ff = 256, .n_layers = 3, .n_experts = 16, .n_chosen = 3, .expert_d_ff = 256}));
}

/// What a run planned, said, wrote and counted.
struct Served {
    std::string said;
    ExpertPlan plan;
    Regime regime = Regime::AllFits;
    Generated text;
    ExpertFigures figures;
};

PlacedModel place(OpenedModel&& model, std::size_t budget, std::optional<ExpertMisses> experts,
                  const EngineCallbacks& callbacks, std::string demanded = "") {
    ComputeOptions options;
    options.devices = choose_devices("cpu");
    options.context_tokens = 512;
    options.offload.host_memory = kEnough;
    options.offload.devices = {{budget, 1e9}};
    options.offload.experts = experts;
    options.offload.experts_demanded = std::move(demanded);
    PlacedModel placed(std::move(model), options, callbacks);
    // A CPU of 2 GB/s and a link of 1 GB/s.
    MachineRates rates;
    rates.rates.weights.fill(ByteCost::roofline(2e9, 1e14, 2.0));
    rates.rates.kv = ByteCost::roofline(2e9, 1e14, 2.0);
    rates.copy_bytes_per_second = 1e9;
    placed.set_rates(0, rates);
    return placed;
}

Served run(std::size_t budget, std::optional<ExpertMisses> experts) {
    Served run;
    const auto keep = [&](std::string_view line) { run.said += std::string(line) + "\n"; };
    const EngineCallbacks callbacks{.on_note = keep, .on_detail = keep};
    const RunNeeds needs = generation_needs(1, 0, CheckPasses::No);
    const LoadedModel model(place(opened(), budget, experts, callbacks), needs, callbacks);
    const std::unique_ptr<ModelRunner> runner = make_runner(model, needs, callbacks);
    run.plan = expert_plan(*model.plan());
    run.regime = model.plan()->sums().regime;
    run.text = plainly(runner->target(), prompt_of(5), 60);
    for (const ExpertFigures& layer : runner->expert_figures()) run.figures += layer;
    EXPECT_GE(runner->streamed().weights_bytes, run.figures.copied_bytes);
    return run;
}

TEST(EngineExperts, AreCopiedOrComputedWithTheSameText) {
    const Served fits = run(kEnough, std::nullopt);
    ASSERT_EQ(fits.plan.regime, ExpertRegime::Fit);
    // Half of the experts, of 768 KiB each, beside all that is dense.
    const std::size_t budget = 24 * kMiB;
    const Served copy = run(budget, ExpertMisses::Copy);
    const Served cpu = run(budget, ExpertMisses::Cpu);
    const Served by_default = run(budget, std::nullopt);
    for (const Served* each : {&copy, &cpu, &by_default}) {
        EXPECT_EQ(each->text, fits.text);
        EXPECT_EQ(each->figures.needed, fits.figures.needed);
    }
    EXPECT_EQ(copy.plan.regime, ExpertRegime::InSlots);
    EXPECT_EQ(copy.figures.cpu, 0U);
    EXPECT_EQ(copy.plan.cpu_bytes, 0.0);
    EXPECT_GT(copy.figures.copied_bytes, 0U);
    EXPECT_THAT(copy.said, HasSubstr("slots for"));
    EXPECT_EQ(by_default.plan.regime, cpu.plan.regime);
    EXPECT_EQ(by_default.figures.cpu, cpu.figures.cpu);
    EXPECT_EQ(cpu.plan.regime, ExpertRegime::OnCpu);
    EXPECT_EQ(cpu.regime, Regime::InHostMemory);
    EXPECT_EQ(cpu.plan.copied_bytes, 0.0);
    EXPECT_GT(cpu.plan.cpu_bytes, 0.0);
    EXPECT_EQ(cpu.figures.copied_bytes, 0U);
    EXPECT_EQ(cpu.figures.cpu + cpu.figures.hits, cpu.figures.needed);
    EXPECT_GT(cpu.figures.hits, 0U);
    EXPECT_THAT(cpu.said, HasSubstr("of experts stay in host memory, where the CPU computes those that tokens choose"));
    EXPECT_THAT(cpu.said, testing::Not(HasSubstr(" of ring")));
}

TEST(EngineExperts, AreDemandedInVainOfAModelWithoutAny) {
    const auto dense = [] { return OpenedModel("tiny", make_tiny_model({})); };
    EXPECT_EQ(error_text([&] { static_cast<void>(place(dense(), kEnough, ExpertMisses::Copy, {}, "--experts")); }),
              "--experts: tiny has no experts; leave it out");
    EXPECT_EQ(place(dense(), kEnough, ExpertMisses::Copy, {}).expert_misses(0), ExpertMisses::Copy)
        << "from a configuration file it has no effect";
}

}  // namespace
}  // namespace slipstream::tools
