#include "tools/engine/draft_choice.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/device.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/weight_items.h"
#include "tools/engine/engine_drafter.h"
#include "tools/engine/memory_plan.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

using draft::SourceKind;

// A tree's rows of logits may take so much of a device's memory, and a draft model's KV.
constexpr std::size_t kLogitShare = 16;
constexpr std::size_t kWindowShare = 16;
constexpr std::size_t kHostWindowShare = 8;  // of the host's free memory, where a device has no limit
// What is assumed before anything is known (measured with Qwen2.5-Coder 1.5B and its 0.5B: draft/NOTES.md).
constexpr double kModelAcceptance = 0.75;  // of a draft model's guesses, each behind an accepted one
constexpr double kTableTokens = 1.5;       // a pass, by tables alone
constexpr std::int64_t kTableNodes = 4;    // that they take for it
constexpr std::int64_t kLongestChain = 32;

// A run of the target with different guessers beside it.
class PlannedRun {
public:
    PlannedRun(EngineModel& target, const OffloadOptions& offload, std::size_t device_bytes)
        : target_(target), offload_(offload), weights_(target.files->weights()), device_bytes_(device_bytes) {}

    /// With trees of `budget` nodes, and `draft_bytes` of the device for a draft model; what passes take only where
    /// `timed`. Nothing where it does not fit.
    enum class Timed : std::uint8_t { No, Yes };
    [[nodiscard]] std::optional<ModelPlan> with(std::int64_t budget, std::size_t draft_bytes, Timed timed) {
        const ModelConfig& config = target_.files->config();
        ModelPlanRequest request = memory_request({.config = &config,
                                                   .weights = &weights_,
                                                   .kv_dtype = target_.kv_dtype,
                                                   .text_tokens = target_.context_tokens,
                                                   .needs = generation_needs(config, budget, 0, CheckPasses::No),
                                                   .taken_bytes = target_.device->budget().used_bytes() + draft_bytes});
        request.budget_bytes = device_bytes_;
        request.ring_bytes = offload_.ring.value_or(0);
        request.pass_tokens = 1;
        request.link_bytes_per_second = 1.0;
        if (timed == Timed::Yes) set_rates(request, machine_rates(target_, weights_), offload_);
        try {
            return ModelPlan(request);
        } catch (const OutOfBudget&) {
            return std::nullopt;
        }
    }

private:
    EngineModel& target_;
    const OffloadOptions& offload_;
    ModelWeights weights_;
    std::size_t device_bytes_;
};

using Timed = PlannedRun::Timed;

// Of a draft model's weights, as they are loaded.
std::size_t loaded_bytes(const ModelFiles& files) {
    std::size_t bytes = 0;
    for (const WeightItem& item : cut_weight_items(files.weights(), WeightRounding::Q8_0, std::size_t{1} << 40))
        bytes += item.bytes;
    return bytes;
}

double tokens_per_second_by_tables(const ModelPlan& plan) {
    return std::max(1.0 / plan.pass(1).seconds, kTableTokens / plan.pass(kTableNodes).seconds);
}

// Chains of the length that commits most (Leviathan et al. 2023, section 3.4).
double tokens_per_second_by_model(const ModelPlan& plan, double seconds_a_guess) {
    double best = 0.0;
    double expected = 1.0;
    double reached = 1.0;
    for (std::int64_t gamma = 1; gamma <= kLongestChain; ++gamma) {
        reached *= kModelAcceptance;
        expected += reached;
        const double seconds = plan.pass(gamma + 1).seconds + static_cast<double>(gamma) * seconds_a_guess;
        best = std::max(best, expected / seconds);
    }
    return best;
}

// As many nodes as ride along, if their logits take little of the device: the largest budget whose pass of half as many
// nodes takes hardly longer than one of 1.
std::int64_t riding_budget(PlannedRun& run, const ModelConfig& config, std::size_t device_bytes, std::int64_t least) {
    const auto logits = [&](std::int64_t n) {
        return static_cast<std::size_t>(n) * row_bytes(DType::F32, config.vocab);
    };
    std::int64_t budget = least;
    while (2 * budget <= kMostPassTokens && logits(2 * budget) <= device_bytes / kLogitShare) {
        const std::optional<ModelPlan> plan = run.with(2 * budget, 0, Timed::Yes);
        if (!plan || plan->pass(budget).seconds > kRidingAlong * plan->pass(1).seconds) break;
        budget *= 2;
    }
    return budget;
}

bool draft_model_pays(PlannedRun& run, std::int64_t budget, const ModelFiles& files, std::size_t window_bytes,
                      const EngineModel& target, Console& console) {
    const std::size_t bytes = loaded_bytes(files) + window_bytes;
    const std::optional<ModelPlan> without = run.with(budget, 0, Timed::Yes);
    const std::optional<ModelPlan> beside = run.with(budget, bytes, Timed::Yes);
    if (!without) return true;  // loading says what is missing
    const double by_tables = tokens_per_second_by_tables(*without);
    const double a_guess = static_cast<double>(bytes) / target.rates->memory_bytes_per_second;
    const double by_model = beside ? tokens_per_second_by_model(*beside, a_guess) : 0.0;
    console.detail(
        fmt::format("draft: about {:.2g} tokens/s with the draft model, {:.2g} without", by_model, by_tables));
    if (by_model >= by_tables) return true;
    console.note(
        fmt::format("the draft model stays out: its {} of the device would slow the target from about {:.2g} to {:.2g} "
                    "tokens/s (--draft model,... takes it all the same)",
                    size_text(bytes), by_tables, by_model));
    return false;
}

}  // namespace

DraftSettings choose_draft(const DraftSettings& draft, EngineModel& target, const ComputeOptions& options,
                           std::size_t device_bytes, CommandContext& context) {
    DraftSettings chosen = draft;
    if (chosen.options.sources.empty()) return chosen;
    const bool limited = device_bytes != Budget::kUnlimited;
    chosen.options.window_bytes =
        limited ? device_bytes / kWindowShare : host_memory().available_bytes / kHostWindowShare;
    if (!limited) return chosen;
    const std::filesystem::path path = draft_model_path(chosen, target, context.settings);
    std::unique_ptr<ModelFiles> files;
    if (!path.empty()) files = ModelFiles::open(path);
    PlannedRun run(target, options.offload, device_bytes);
    const std::size_t draft_bytes = files ? loaded_bytes(*files) + chosen.options.window_bytes : 0;
    const std::optional<ModelPlan> plan = run.with(chosen.options.max_budget, draft_bytes, Timed::No);
    if (plan && plan->residency().ring_bytes == 0) return chosen;  // all of it fits
    if (chosen.options.adapt_budget)
        chosen.options.max_budget = riding_budget(run, target.files->config(), device_bytes, chosen.options.max_budget);
    if (files && chosen.automatic &&
        !draft_model_pays(run, chosen.options.max_budget, *files, chosen.options.window_bytes, target, context.console))
        std::erase(chosen.options.sources, SourceKind::Model);
    return chosen;
}

}  // namespace slipstream::tools
