// Compares KV views with each other and with the full KV, in one process and over one text. The text is fed once, so
// all views predict at the same positions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cache/kv_cache.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/view/view_builder.h"
#include "tools/lab/views/view_report.h"
#include "tools/lab/views/view_request.h"

namespace slipstream::tools {

/// Calls the builders of all views for the hooks of one pass. Their time is measured, so that it can be subtracted from
/// that of the pass.
class SharedHooks final : public PassHooks {
public:
    void clear();
    /// Adds hooks; null is ignored.
    void add(PassHooks* hooks);
    [[nodiscard]] bool empty() const { return hooks_.empty(); }
    /// Returns the seconds spent in hooks since clear().
    [[nodiscard]] double seconds() const { return seconds_; }

    void on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
               std::int64_t n_committed) override;

private:
    std::vector<PassHooks*> hooks_;
    double seconds_ = 0.0;
};

class ViewComparison {
public:
    /// `target` runs `model` over `cache`, of which nothing may stream, in passes of up to at least kViewPassTokens
    /// tokens with logits for all of them. `model`, `cache` and `target` must outlive this object. After `depth`
    /// positions, `run_tokens` more are fed. Throws OutOfBudget.
    ViewComparison(const Model& model, KvCache& cache, Forward& target, const ViewsRequest& request, std::int64_t depth,
                   std::int64_t run_tokens);
    /// Returns the device memory that the constructor takes from the budget, without the workspace of kernels.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::span<const KvLayout> kv,
                                                  std::int64_t context_tokens, const ViewsRequest& request,
                                                  std::int64_t depth, std::int64_t run_tokens);

    /// Feeds the next tokens of the text, up to kViewPassTokens, to the target only; the views are built in this pass.
    /// Throws Interrupted after a signal.
    void begin(std::span<const TokenId> tokens);
    /// Feeds the next tokens, as a chain, to each view as it is and then to the target; an oracle view, which the
    /// target's pass builds, runs after the target. Throws Interrupted after a signal.
    void compare(std::span<const TokenId> tokens);
    [[nodiscard]] std::vector<ViewFigures> figures() const;

private:
    struct Compared {
        Compared(const Model& model, KvCache& cache, const ViewFigures& figures, const ViewOptions& options);
        ViewFigures figures;
        KvView view;
        ViewBuilder builder;
        std::vector<TokenId> chosen{};  // tokens predicted in the current pass; empty: the view was invalid
    };
    // Logits rows of a pass, one per token, and its time.
    struct Rows {
        LogitRows logits;
        double seconds = 0.0;
    };

    void run_view(Compared& compared, std::span<const TokenId> tokens);
    void run_target(std::span<const TokenId> tokens);
    void commit(std::span<const NodeId> path);
    template <typename Kv>
    [[nodiscard]] Rows run(Forward& forward, Kv& kv, std::span<const TokenId> tokens, PassHooks* hooks);
    [[nodiscard]] std::vector<TokenId> choose(const LogitRows& rows);

    KvCache* cache_;
    Forward* target_;
    Forward forward_;  // runs the passes over views
    Sampler sampler_;
    SharedHooks hooks_;
    std::vector<std::unique_ptr<Compared>> views_;
    // State of the current pass.
    std::vector<NodeId> nodes_;
    std::vector<TokenId> chosen_;
    double target_seconds_ = 0.0;
};

}  // namespace slipstream::tools
