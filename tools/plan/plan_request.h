// The request of `plan`: a model (a file or a named shape) on hardware (this machine's or a profile's).
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
    std::string types;  // "Q4_K_M", "BF16", "Q4_K, Q6_K"
    ModelConfig config;
    ModelWeights weights;                     // views into `files`, or without data
    std::shared_ptr<const ModelFiles> files;  // keeps the data of the views alive; null: a named shape
};
[[nodiscard]] PlannedModel planned_shape(std::string_view name, const ModelConfig& config, Quantisation quantisation);

/// What is known of the run that is planned: a model file, on this machine's devices with their memory budgets.
struct PlannedRun {
    std::int64_t budget = 1;           // most nodes of a pass
    std::vector<TakenMemory> taken{};  // [devices], memory that a draft model and the workspace of ops take
    std::optional<ViewNeeds> view{};
    std::int64_t hidden_rows = 0;       // as RunnerNeeds::hidden_rows
    std::size_t head_pass_bytes = 0;    // as RunNeeds::head_pass_bytes
    std::vector<std::int64_t> parts{};  // [devices] layers or kv heads of each; empty: one device
};

struct PlanRequest {
    PlannedModel model;
    std::optional<std::int64_t> context_tokens;
    DType kv_dtype = DType::F16;
    Hardware hardware;
    std::optional<HardwareProfile> profile;       // profile from which `hardware` was made
    std::optional<double> link_bytes_per_second;  // by --link-gib-s, the lowest if links differ; no value: not given
    std::optional<std::int64_t> pass_tokens;
    std::optional<std::size_t> ring_bytes{};  // as EnginePlanRequest::ring_bytes
    std::optional<ExpertMisses> experts{};    // as OffloadOptions::experts
    std::string offload_options{};            // OffloadOptions::streaming_options; empty for a profile
    std::optional<PlannedRun> run{};          // none: memory is planned for passes of pass_tokens nodes
    // Tokens committed per pass for which tokens per second are reported; empty: 1, 2, 4, ...
    std::vector<double> tokens_per_pass;
    SplitKind split = SplitKind::Layers;  // how several devices share the model
    std::vector<double> shares{};         // [devices], fractions of the model; empty: chosen by the plan
    std::optional<Assumptions> assumed{};
    std::optional<double> assumed_hits{};   // by --assume, of slots for experts
    double miss_factor = 1.0;               // as PlacementRequest::miss_factor; assume_hits() sets it
    std::vector<CountedExperts> counted{};  // as PlacementRequest::counted
    std::size_t kept_bytes = 0;             // host memory for the KV of a server's earlier texts
    // Host memory for the hidden states that an MTP head reads. Set only if `run` is empty: on one CPU device without a
    // limit.
    std::size_t hidden_tail_bytes = 0;
};

[[nodiscard]] std::vector<OptionSpec> plan_options();

/// Reads the options, opens the model's files unless --shape names a shape, and measures this machine unless --profile
/// names one or its rates are kept. Throws UsageError, RequestError, and what opening a model throws.
[[nodiscard]] PlanRequest plan_request(CommandContext& context);

}  // namespace slipstream::tools
