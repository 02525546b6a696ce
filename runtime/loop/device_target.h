// A target on one device: a forward pass over one KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/cache/kv_cache.h"
#include "runtime/loop/target.h"
#include "runtime/pass/forward.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

/// What a forward pass must allow for trees of that budget: a prefill chunk and a tree at once.
[[nodiscard]] ForwardLimits forward_limits_for(std::int64_t budget);
/// The same of a forward that computes again what SelfCheck compares, so many tokens at a time.
[[nodiscard]] ForwardLimits check_forward_limits(std::int64_t max_tokens = kPrefillChunkTokens);

class DeviceTarget final : public Target {
public:
    /// Both outlive this, and may serve other targets in turn: one over the same cache sees the same nodes.
    DeviceTarget(Forward& forward, KvCache& cache) : forward_(&forward), cache_(&cache) {}
    /// From now on `builder`, of the same cache, sees each pass and each commit; null: nobody does. It outlives this.
    void build_view_with(ViewBuilder* builder) { view_ = builder; }

    [[nodiscard]] TargetShape shape() const override;
    [[nodiscard]] std::int64_t n_committed() const override { return cache_->n_committed(); }
    [[nodiscard]] std::int64_t n_nodes() const override { return cache_->n_nodes(); }
    [[nodiscard]] std::int64_t position(NodeId node) const override { return cache_->position(node); }
    NodeId add_node(NodeId parent) override { return cache_->add_node(parent); }
    void commit(std::span<const NodeId> path) override;
    void forget() override;
    void truncate(std::int64_t n_tokens) override;
    [[nodiscard]] std::int64_t prompt_rows() const override { return cache_->prompt_rows(); }
    void set_prompt_rows(std::int64_t n_tokens) override { cache_->set_prompt_rows(n_tokens); }

    [[nodiscard]] bool takes_prompt(std::int64_t end) const override;
    void extend(std::int64_t end) override;
    void begin(const TargetPass& pass) override;
    [[nodiscard]] LogitRows finish() override;

    void read_rows(NodeId node, std::byte* out) override;
    void read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) override;
    void restore(std::int64_t n_tokens,
                 const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) override {
        cache_->restore(forward_->exec(), n_tokens, read);
    }

private:
    void check_between_passes() const;
    void roll_back_to(std::int64_t n_tokens) noexcept;

    Forward* forward_;
    KvCache* cache_;
    ViewBuilder* view_ = nullptr;      // null: there is no view of the cache
    std::int64_t extended_from_ = -1;  // positions before extend(); -1: nothing is announced
    bool in_pass_ = false;
    bool failed_ = false;  // what was done last: positions may be lost, which forget() finds out
    LogitRows logits_;     // of the pass that was begun
};

}  // namespace slipstream
