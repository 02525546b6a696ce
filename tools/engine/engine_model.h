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
#include "runtime/plan/split_plan.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/measured_rates.h"
#include "tools/engine/memory_plan.h"

namespace slipstream::tools {

/// A device that computes, or a part of the model.
struct EngineDevice {
    DeviceChoice choice{};
    std::unique_ptr<Device> device;
    double throttled_link_bytes_per_second = 0;  // 0: as it is
    std::optional<MachineRates> rates{};         // measured where something streams, or might
};

/// Owners in the order in which they depend on one another.
struct EngineModel {
    std::filesystem::path path;
    std::unique_ptr<ModelFiles> files;
    int n_threads = 1;                  // of all CPU devices together
    int device_threads = 1;             // of each: all, where they compute in turn; where at the same time, its part
    std::unique_ptr<CpuFaults> faults;  // none: the devices' links hear of a stop by it
    std::vector<EngineDevice> devices;
    SplitKind split = SplitKind::Layers;         // among several
    std::vector<ModelShard> shards;              // of the devices; empty: one has all of the model
    std::unique_ptr<PinnedArena> arena;          // null on one device where nothing streams
    std::vector<std::unique_ptr<Model>> models;  // [devices], once they are loaded
    std::unique_ptr<SplitPlan> plan;             // null on a single CPU without --device-memory
    std::int64_t context_tokens = 0;
    DType kv_dtype = DType::F16;
    std::int64_t text_tokens = 0;  // that the plan has room for
    double load_seconds = 0.0;

    /// Whether memory is planned: then whatever else lies on the device is made before load_model().
    bool budgeted = false;
    /// Of all of them.
    [[nodiscard]] DeviceForms device_forms() const;
    /// The first device: where guesses are made.
    [[nodiscard]] Device& device() const { return *devices.front().device; }
    /// All of the model on one device; null where several share it, or before it is loaded.
    [[nodiscard]] const Model* whole_model() const { return models.size() == 1 ? models.front().get() : nullptr; }
    /// Of the whole model.
    [[nodiscard]] KvShape kv_shape() const { return {files->config().n_kv_heads, files->config().head_dim, kv_dtype}; }
    /// What a KV cache of text_tokens on that device is given.
    [[nodiscard]] KvPlacement kv_placement(std::size_t device) const;
    /// 0 where nothing streams there.
    [[nodiscard]] std::size_t ring_bytes(std::size_t device) const {
        return plan ? plan->ranks()[device].residency().ring_bytes : 0;
    }
    [[nodiscard]] bool streams() const { return plan && plan->streams(); }
    /// Whether every device has a part of each matrix.
    [[nodiscard]] bool shards_matrices() const { return devices.size() > 1 && split == SplitKind::Tensor; }
};

/// Opens the files only.
[[nodiscard]] EngineModel open_model(const std::filesystem::path& path);
/// Chooses the context, makes the devices, and says what share each is to have; tells what was decided. The split
/// follows from model, devices and options alone, never from what guesses. Throws RequestError where the model cannot
/// be shared out so.
void make_device(EngineModel& engine, const ComputeOptions& options, const EngineCallbacks& callbacks);
/// Plans what stays on the device beside what lies there already and what `needs` says, and loads the weights. Throws
/// Interrupted, OutOfBudget.
void load_model(EngineModel& engine, const ComputeOptions& options, const RunNeeds& needs,
                const EngineCallbacks& callbacks);

/// What a plan over the engine's devices is asked. `engine` outlives it, and the weights, which may be views into its
/// files, do.
struct EnginePlanRequest {
    const ModelWeights* weights = nullptr;  // of the whole model
    RunNeeds needs{};
    std::vector<std::size_t> beside_bytes{};      // [devices] taken beside what lies there; empty: nothing
    std::vector<std::size_t> budget_bytes{};      // [devices]; empty: the devices' own
    std::optional<std::size_t> ring_bytes{};      // of each
    std::optional<std::int64_t> pass_tokens = 1;  // nothing: as many as ride along
    bool timed = false;                           // with the speeds of this machine; else of none
    bool has_workspace = false;                   // it is reserved already
};
[[nodiscard]] SplitPlanRequest split_plan_request(EngineModel& engine, const EnginePlanRequest& plan_request);
/// The plan that is asked for; where it does not fit, with the largest passes of the self-check with which it does, as
/// question.needs says then. Nothing where there is none.
[[nodiscard]] std::optional<SplitPlan> fitting_plan(EngineModel& engine, EnginePlanRequest& plan_request);

/// rates of a device, measured now if they were not.
[[nodiscard]] const MachineRates& machine_rates(EngineModel& engine, std::size_t device, const ModelWeights& weights);
/// What a device of this machine and the options say of speeds.
void set_rates(ModelPlanRequest& request, const EngineDevice& device);

/// FormatError where an id of `tokens` is not in the model's vocabulary.
void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config);

}  // namespace slipstream::tools
