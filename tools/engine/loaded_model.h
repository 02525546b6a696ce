// A model that is ready to compute: placed, with its weights loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/item_memory.h"
#include "runtime/model/model.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/memory_plan.h"
#include "tools/engine/placed_model.h"

namespace slipstream::tools {

class LoadedModel : public PlacedModel {
public:
    /// Plans what stays on each device, beside what the device holds already and what `needs` requires, and loads the
    /// weights. What `callbacks` refer to must outlive this object. Throws Interrupted, OutOfBudget.
    LoadedModel(PlacedModel&& placed, const RunNeeds& needs, const EngineCallbacks& callbacks);
    LoadedModel(LoadedModel&& loaded, const RunNeeds& needs, const EngineCallbacks& callbacks) = delete;
    LoadedModel(LoadedModel&&) = default;
    /// Calls report_lock_refusal(), since host memory is also allocated while a text grows.
    ~LoadedModel();

    /// [devices], each with the device's shard.
    [[nodiscard]] std::span<const std::unique_ptr<Model>> models() const { return models_; }
    /// The model if one device has all of it; null if several devices share it.
    [[nodiscard]] const Model* whole_model() const { return models_.size() == 1 ? models_.front().get() : nullptr; }
    /// Null for a single CPU without a memory budget.
    [[nodiscard]] const SplitPlan* plan() const { return plan_.get(); }
    /// Host memory of what streams, and of hidden states between several devices; null on one device if nothing
    /// streams.
    [[nodiscard]] PinnedArena* arena() const { return arena_.get(); }
    /// Where the KV cache of the planned text is, on that device.
    [[nodiscard]] KvPlacement kv_placement(std::size_t device) const;
    /// Size of the transfer ring of that device; 0 if nothing streams there.
    [[nodiscard]] std::size_t ring_bytes(std::size_t device) const {
        return plan_ ? plan_->ranks()[device].residency().ring_bytes : 0;
    }
    [[nodiscard]] bool streams() const { return plan_ && plan_->streams(); }
    [[nodiscard]] double load_seconds() const { return load_seconds_; }
    /// Reports a note, once, if the system has refused to lock host memory.
    void report_lock_refusal() const;

private:
    void make_plan(const RunNeeds& needs);
    [[nodiscard]] WeightPlacement weight_placement(std::size_t device) const;
    void load_weights(const EngineCallbacks& callbacks);
    void report(const EngineCallbacks& callbacks) const;

    std::unique_ptr<SplitPlan> plan_;
    std::unique_ptr<PinnedArena> arena_;
    std::vector<std::unique_ptr<Model>> models_;
    double load_seconds_ = 0.0;
    EngineCallbacks callbacks_;
    mutable bool refusal_reported_ = false;
};

/// Throws FormatError if a token is not in the model's vocabulary.
void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config);

}  // namespace slipstream::tools
