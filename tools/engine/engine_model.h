// A model on its way from a path to something that computes: files opened, context chosen, weights loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/measured_rates.h"
#include "tools/engine/memory_plan.h"
#include "tools/options/compute_options.h"

namespace slipstream::tools {

/// Owners in the order in which they depend on one another.
struct EngineModel {
    std::filesystem::path path;
    std::unique_ptr<ModelFiles> files;
    std::unique_ptr<Device> device;
    int n_threads = 1;                   // of the host
    std::unique_ptr<PinnedArena> arena;  // null where nothing streams
    std::unique_ptr<Model> model;
    std::unique_ptr<ModelPlan> plan;      // null on a CPU without --device-memory
    std::optional<MachineRates> rates{};  // measured where something streams, or might
    std::int64_t context_tokens = 0;
    DType kv_dtype = DType::F16;
    std::int64_t text_tokens = 0;  // that the plan has room for
    double load_seconds = 0.0;

    /// Whether memory is planned: then whatever else lies on the device is made before load_model().
    bool budgeted = false;
    /// What a KV cache of text_tokens is given.
    [[nodiscard]] KvPlacement kv_placement() const;
    /// 0 where nothing streams.
    [[nodiscard]] std::size_t ring_bytes() const { return plan ? plan->residency().ring_bytes : 0; }
};

/// Opens the files only.
[[nodiscard]] EngineModel open_model(const std::filesystem::path& path);
/// Chooses the context and makes the device; tells what was decided.
void make_device(EngineModel& engine, const ComputeOptions& options, const EngineCallbacks& callbacks);
/// Plans what stays on the device beside what lies there already and what `needs` says, and loads the weights. Throws
/// Interrupted, OutOfBudget.
void load_model(EngineModel& engine, const ComputeOptions& options, const RunNeeds& needs,
                const EngineCallbacks& callbacks);

/// engine.rates, measured now if they were not.
[[nodiscard]] const MachineRates& machine_rates(EngineModel& engine, const ModelWeights& weights);
/// What this machine and the options say of speeds.
void set_rates(ModelPlanRequest& request, const MachineRates& machine, const OffloadOptions& offload);

/// FormatError where an id of `tokens` is not in the model's vocabulary.
void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config);

}  // namespace slipstream::tools
