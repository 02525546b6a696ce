// An engine model with what runs it: a KV cache, the stream of what is not resident, and the forward pass.
#pragma once

#include <memory>
#include <optional>

#include "runtime/cache/kv_cache.h"
#include "runtime/loop/device_target.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/view/view_builder.h"
#include "tools/engine/engine_model.h"

namespace slipstream::tools {

class EngineTarget {
public:
    /// `engine` is loaded, for these needs where it is budgeted, and outlives this. Tells where the system did not let
    /// host memory be locked: now, or in the end where it refused memory that came with the text. Throws OutOfBudget.
    EngineTarget(const EngineModel& engine, const RunNeeds& needs, const EngineCallbacks& callbacks,
                 CheckPasses check = CheckPasses::No);
    ~EngineTarget();
    EngineTarget(const EngineTarget&) = delete;
    EngineTarget& operator=(const EngineTarget&) = delete;

    /// What a loop generates with.
    [[nodiscard]] Target& target() { return *target_; }
    /// What computes again what that one made; where passes are checked.
    [[nodiscard]] Target& plain() { return *plain_; }
    [[nodiscard]] KvCache& cache() { return cache_; }
    [[nodiscard]] Forward& forward() { return *forward_; }
    [[nodiscard]] const Forward& forward() const { return *forward_; }
    /// The view of its KV that `needs` asked for; null: none.
    [[nodiscard]] KvView* view() { return view_ ? &*view_ : nullptr; }
    /// Whether the view follows the passes: it costs a little, and whoever guesses without it does without. It stands
    /// for nothing when it begins to.
    void use_view(bool use);
    /// Null where nothing streams.
    [[nodiscard]] PassStream* pass() { return pass_.get(); }
    [[nodiscard]] const PassStream* pass() const { return pass_.get(); }

private:
    void tell_lock_refusal();

    const EngineModel* engine_;
    EngineCallbacks callbacks_;
    bool refusal_told_ = false;
    KvCache cache_;
    std::unique_ptr<PassStream> pass_;
    std::unique_ptr<Forward> forward_;
    std::unique_ptr<Forward> plain_forward_;  // null where passes are not checked
    std::optional<KvView> view_;
    std::optional<ViewBuilder> view_builder_;
    std::optional<DeviceTarget> target_;
    std::optional<DeviceTarget> plain_;
};

}  // namespace slipstream::tools
