// What `plan` is asked: a model, opened or by its shape, on hardware, this machine's or a profile's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/formats/model_files.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/plan/assumed_rates.h"
#include "tools/plan/hardware.h"
#include "tools/plan/hardware_profiles.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {

struct PlannedModel {
    std::string name;
    std::string types;  // "Q4_K_M", "BF16", "Q4_K and Q6_K"
    ModelConfig config;
    ModelWeights weights;                     // views into the files, or without memory
    std::shared_ptr<const ModelFiles> files;  // that the views belong to, or null
};
[[nodiscard]] PlannedModel planned_shape(std::string_view name, const ModelConfig& config, Quantisation quantisation);

/// How the model would run, where that is known: a file, on devices of this machine with budgets.
struct PlannedRun {
    std::int64_t budget = 1;           // most nodes of a pass
    std::vector<TakenMemory> taken{};  // [devices], by a draft model, and by the workspace of ops
    std::optional<ViewNeeds> view{};
    std::vector<std::int64_t> parts{};  // of each of several devices: layers or kv heads
};

struct PlanRequest {
    PlannedModel model;
    std::optional<std::int64_t> context_tokens;
    DType kv_dtype = DType::F16;
    Hardware hardware;
    std::optional<HardwareProfile> profile;       // that the hardware is
    std::optional<double> link_bytes_per_second;  // given for each link
    std::optional<std::int64_t> pass_tokens;
    std::size_t ring_bytes = 0;
    std::optional<PlannedRun> run{};      // not known: room for as many tokens as the pass is planned for
    std::vector<double> tokens_per_pass;  // to tell tokens a second for
    SplitKind split = SplitKind::Layers;  // of the model among several devices
    std::vector<double> shares{};         // of it, of each device; empty: planned
    std::optional<Assumptions> assumed{};
};

[[nodiscard]] std::vector<OptionSpec> plan_options();

/// Reads the options; opens a model's files, measures this machine where no profile is named. Throws UsageError,
/// RequestError, and what opening a model throws.
[[nodiscard]] PlanRequest plan_request(CommandContext& context);

}  // namespace slipstream::tools
