#include "runtime/view/view_passes.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

ForwardLimits view_pass_limits(std::int64_t max_nodes) {
    const std::int64_t n = std::min(kMostViewRows, max_nodes);
    return {.max_tokens = n, .max_logit_rows = n};
}

DeviceViewPasses::DeviceViewPasses(const Model& model, KvView& view)
    : forward_(model, view_pass_limits(view.nodes().max_nodes())), view_(&view) {
    CHECK(!model.streams_weights() && model.config().n_layers == view.n_layers(), "a view of {} layers for {}",
          view.n_layers(), model.config().n_layers);
}

std::size_t DeviceViewPasses::device_bytes(const ModelConfig& config, std::int64_t max_nodes) {
    return Forward::device_bytes(config, view_pass_limits(max_nodes), Forward::Streaming::No);
}

void DeviceViewPasses::forget() {
    view_->forget();
    view_->await(forward_.exec().stream);
}

LogitRows DeviceViewPasses::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                                std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) {
    return forward_.run(*view_, tokens, nodes, logit_tokens, needs, {});
}

}  // namespace slipstream
