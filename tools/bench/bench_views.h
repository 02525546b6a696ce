// Views of a KV beside one another and beside the KV itself: all in one process, over one text that is fed once, so
// that every one of them is asked the same.
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
#include "tools/bench/bench_view_report.h"
#include "tools/bench/bench_view_request.h"

namespace slipstream::tools {

/// Builders that hear of one pass. The time that they take is kept apart from the pass's.
class SharedHooks final : public PassHooks {
public:
    void clear();
    /// Null is nobody.
    void add(PassHooks* hooks);
    [[nodiscard]] bool empty() const { return hooks_.empty(); }
    /// Since clear().
    [[nodiscard]] double seconds() const { return seconds_; }

    void on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
               std::int64_t n_committed) override;

private:
    std::vector<PassHooks*> hooks_;
    double seconds_ = 0.0;
};

class ViewComparison {
public:
    /// `target` runs `model` over `cache`, of which nothing streams, in passes of at least kViewPassTokens with logits
    /// of all of them; all outlive this. The text goes on for `run_tokens` behind `depth`. Throws OutOfBudget.
    ViewComparison(const Model& model, KvCache& cache, Forward& target, const ViewsRequest& request, std::int64_t depth,
                   std::int64_t run_tokens, const SamplerOptions& sampling);
    /// What the constructor takes from the device's budget, kernels' workspace not counted.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::span<const KvLayout> kv,
                                                  std::int64_t context_tokens, const ViewsRequest& request,
                                                  std::int64_t depth, std::int64_t run_tokens);

    /// The next tokens of the text, up to kViewPassTokens, through the target alone, in whose pass the views are built.
    void begin(std::span<const TokenId> tokens);
    /// The next ones, in a chain, through each view as it stands and through the target; an oracle comes behind the
    /// target. Both throw Interrupted after a signal.
    void compare(std::span<const TokenId> tokens);
    [[nodiscard]] std::vector<ViewFigures> figures() const;

private:
    struct Compared {
        Compared(Device& device, KvCache& cache, const ModelConfig& config, const ViewFigures& figures,
                 const ViewOptions& options);
        ViewFigures figures;
        KvView view;
        ViewBuilder builder;
        std::vector<TokenId> chosen{};  // of one pass
    };
    // A row of logits for each of some tokens.
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
    Forward forward_;  // over views
    Sampler sampler_;
    SharedHooks hooks_;
    std::vector<std::unique_ptr<Compared>> views_;
    // Of the pass under way.
    std::vector<NodeId> nodes_;
    std::vector<TokenId> chosen_;
    double target_seconds_ = 0.0;
};

}  // namespace slipstream::tools
