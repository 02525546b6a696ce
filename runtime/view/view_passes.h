// Passes over a KV view, as a draft source sees them: nodes after the end of the view's sequence, tokens in, logits
// out. Only the implementation knows how many devices hold the view: DeviceViewPasses has one, RankViewPasses
// (runtime/ranks/rank_view.h) several.
//
// Others fill the view (view_builder.h). Nothing of a pass over a view is ever committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/view/kv_view.h"

namespace slipstream {

/// Most tokens of one pass. Logits rows over a large vocabulary would take more memory than the view.
inline constexpr std::int64_t kMostViewRows = 16;

/// Interface of such passes. Not thread-safe.
class ViewPasses {
public:
    virtual ~ViewPasses() = default;
    /// Returns the width of a logits row.
    [[nodiscard]] virtual std::int64_t vocab() const = 0;
    /// Returns the most nodes at once, of all passes since forget().
    [[nodiscard]] virtual std::int64_t max_nodes() const = 0;
    /// Returns the length of the sequence that the view is valid for, on all devices; 0: there is no view to pass over.
    [[nodiscard]] virtual std::int64_t n_text() const = 0;
    /// Returns the number of positions that the view keeps.
    [[nodiscard]] virtual std::int64_t n_slots() const = 0;
    /// Adds a node after `parent`, as Target::add_node() does. Returns it.
    virtual NodeId add_node(NodeId parent) = 0;
    /// Drops all nodes. Later passes see everything that was written to the view before this call.
    virtual void forget() = 0;
    /// Runs one pass over at most kMostViewRows tokens. Returns the logits of `logit_tokens` (indices into `tokens`),
    /// valid until the next call. May return whole rows where `needs` asks for less.
    [[nodiscard]] virtual LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                        std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) = 0;
};

/// Returns the limits of passes over a view with room for `max_nodes` nodes.
[[nodiscard]] ForwardLimits view_pass_limits(std::int64_t max_nodes);

/// Passes over a view on one device.
class DeviceViewPasses final : public ViewPasses {
public:
    /// Runs `model`, all of whose weights must be resident (CHECKed), over `view`. Both must outlive this object.
    /// Allocates memory for activations now. Throws OutOfBudget.
    DeviceViewPasses(const Model& model, KvView& view);
    /// Returns the bytes that the constructor takes from the device's budget, without the kernels' workspace.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::int64_t max_nodes);

    [[nodiscard]] std::int64_t vocab() const override { return forward_.model().config().vocab; }
    [[nodiscard]] std::int64_t max_nodes() const override { return view_->nodes().max_nodes(); }
    [[nodiscard]] std::int64_t n_text() const override { return view_->n_text(); }
    [[nodiscard]] std::int64_t n_slots() const override { return view_->n_slots(); }
    NodeId add_node(NodeId parent) override { return view_->add_node(parent); }
    void forget() override;
    [[nodiscard]] LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) override;

private:
    Forward forward_;
    KvView* view_;
};

}  // namespace slipstream
