// Passes over a view of a KV, as whoever guesses by it knows them: nodes below the end of the text that it stands for,
// tokens in, logits out. On how many devices the view lies an implementation knows alone: DeviceViewPasses is
// the one of one device, RankViewPasses (runtime/ranks/rank_view.h) that of several.
//
// Who fills the view is another's matter (view_builder.h); nothing of a pass is ever committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/view/kv_view.h"

namespace slipstream {

/// Tokens of one pass: rows of logits over a large vocabulary take more memory than a view does.
inline constexpr std::int64_t kMostViewRows = 16;

class ViewPasses {
public:
    virtual ~ViewPasses() = default;
    [[nodiscard]] virtual std::int64_t vocab() const = 0;
    /// At once, over as many passes as they take.
    [[nodiscard]] virtual std::int64_t max_nodes() const = 0;
    /// Positions of the text that the view stands for, on all devices; 0: there is none to pass over.
    [[nodiscard]] virtual std::int64_t n_text() const = 0;
    /// That it keeps of them.
    [[nodiscard]] virtual std::int64_t n_slots() const = 0;
    /// As a Target has them.
    virtual NodeId add_node(NodeId parent) = 0;
    /// Drops all nodes; passes from now on see what the view has gained.
    virtual void forget() = 0;
    /// Up to kMostViewRows tokens. Logits hold until the next call; `needs` may be met by whole rows.
    [[nodiscard]] virtual LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                        std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) = 0;
};

/// Of passes over a view that has room for `max_nodes`.
[[nodiscard]] ForwardLimits view_pass_limits(std::int64_t max_nodes);

class DeviceViewPasses final : public ViewPasses {
public:
    /// By `model`, all of whose weights are resident (CHECKed), over `view`; both outlive this. Takes memory of
    /// activations now. Throws OutOfBudget.
    DeviceViewPasses(const Model& model, KvView& view);
    /// What the constructor takes from the device's budget, kernels' workspace not counted.
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
