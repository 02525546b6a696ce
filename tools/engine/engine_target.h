// An engine model with what runs it: on each device a KV cache, the stream of what is not resident, and the forward
// pass; over them the target, of one device or of several that share the model.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/rank_sums.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/sequence.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"
#include "tools/engine/loaded_model.h"

namespace slipstream::tools {

class EngineTarget {
public:
    /// `engine` is loaded, for these needs where it is budgeted, and outlives this. Tells where the system did not let
    /// host memory be locked: now, or in the end where it refused memory that came with the text. Throws OutOfBudget.
    EngineTarget(const LoadedModel& model, const RunNeeds& needs, const EngineCallbacks& callbacks);
    ~EngineTarget();
    EngineTarget(const EngineTarget&) = delete;
    EngineTarget& operator=(const EngineTarget&) = delete;

    [[nodiscard]] Target& target() { return *target_; }
    /// The text that target() holds KV of.
    [[nodiscard]] Sequence& sequence() { return *sequence_; }
    [[nodiscard]] const Sequence& sequence() const { return *sequence_; }
    /// What computes again what that one made; where passes are checked.
    [[nodiscard]] Target& plain() { return *plain_; }
    /// Of the only device (CHECKed).
    [[nodiscard]] KvCache& cache() { return only().cache; }
    [[nodiscard]] Forward& forward() { return *only().forward; }
    /// As many positions without a pass, for benches (runtime/cache/cache_fill.h).
    void fill(std::int64_t n_tokens, std::uint64_t seed, const std::function<void(std::int64_t)>& on_progress);
    /// Passes over the view of its KV that `needs` asked for, each device with that of what it has; null: none.
    [[nodiscard]] ViewPasses* view() { return view_passes_.get(); }
    /// Whether the view follows the passes: it costs a little, and whoever guesses without it does without. It stands
    /// for nothing when it begins to.
    void use_view(bool use);

    [[nodiscard]] bool streams() const;
    /// Whether passes may be launched as graphs.
    [[nodiscard]] bool has_graphs() const;
    /// Of all devices together.
    [[nodiscard]] StreamFigures streamed() const;
    [[nodiscard]] std::uint64_t logits_bytes() const;

private:
    // What runs the part of one device.
    struct Part {
        Part(const LoadedModel& loaded, std::size_t device, const RunNeeds& needs, Collective* collective);
        KvCache cache;
        std::unique_ptr<PassStream> pass;
        std::unique_ptr<Forward> forward;
        std::unique_ptr<Forward> plain;  // null where passes are not checked
    };
    // A view of what that device holds.
    struct PartView {
        PartView(const Model& model, KvCache& cache, const ViewNeeds& needs);
        KvView view;
        ViewBuilder builder;
    };
    void make_views(const ViewNeeds& needs);
    [[nodiscard]] Part& only();
    [[nodiscard]] std::chrono::nanoseconds rank_is_lost_after() const;
    void make_sums(const RunNeeds& needs);
    [[nodiscard]] std::vector<Rank> ranks_of(std::unique_ptr<Forward> Part::*forward) const;
    [[nodiscard]] std::unique_ptr<RankTarget> target_of(std::unique_ptr<Forward> Part::*forward) const;
    void report_lock_refusal();

    const LoadedModel* model_;
    EngineCallbacks callbacks_;
    bool refusal_told_ = false;
    std::unique_ptr<RankSums> sums_;                // where matrices are split
    std::vector<std::unique_ptr<Part>> parts_;      // [devices]
    std::vector<std::unique_ptr<PartView>> views_;  // [devices], or none
    std::unique_ptr<ViewPasses> view_passes_;
    std::unique_ptr<RankTarget> target_;
    std::unique_ptr<RankTarget> plain_;
    std::optional<Sequence> sequence_;
};

}  // namespace slipstream::tools
