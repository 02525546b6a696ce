#include "tools/engine/served_target.h"

namespace slipstream::tools {

RunNeeds generation_needs(const ModelConfig& config, std::int64_t budget, std::int64_t text_tokens, CheckPasses check) {
    RunNeeds needs{
        .text_tokens = text_tokens, .forward = forward_limits_for(budget), .scratch_nodes = scratch_nodes_for(budget)};
    if (check == CheckPasses::Yes) {
        needs.scratch_nodes = SelfCheck::scratch_nodes_for(budget);
        needs.other_bytes = Forward::device_bytes(config, SelfCheck::limits(), Forward::Streaming::Yes);
    }
    return needs;
}

ServedTarget::ServedTarget(const ServedModel& served, const RunNeeds& needs)
    : cache_(*served.device, served.model->kv_shape(), served.model->config().n_layers,
             needs.text_tokens > 0 ? needs.text_tokens : served.context_tokens, needs.scratch_nodes,
             served.kv_placement()) {
    if (PassStream::needed(*served.model, cache_))
        pass_ = std::make_unique<PassStream>(*served.model, cache_, *served.arena, served.ring_bytes());
    forward_ = std::make_unique<Forward>(*served.model, needs.forward, pass_.get());
}

}  // namespace slipstream::tools
