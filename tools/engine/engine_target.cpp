#include "tools/engine/engine_target.h"

#include <string>
#include <vector>

namespace slipstream::tools {

EngineTarget::EngineTarget(const EngineModel& engine, const RunNeeds& needs, const EngineCallbacks& callbacks,
                           CheckPasses check)
    : engine_(&engine),
      callbacks_(callbacks),
      cache_(*engine.device, engine.model->kv_shape(), engine.model->config().n_layers,
             needs.text_tokens > 0 ? needs.text_tokens : engine.context_tokens, needs.scratch_nodes,
             engine.kv_placement()) {
    tell_lock_refusal();
    const PassReads reads{engine.model.get(), &cache_};
    if (reads.streams()) pass_ = std::make_unique<PassStream>(std::vector{reads}, *engine.arena, engine.ring_bytes());
    forward_ = std::make_unique<Forward>(*engine.model, needs.forward, pass_.get());
    target_.emplace(*forward_, cache_);
    if (needs.view) {
        const ModelConfig& config = engine.model->config();
        view_.emplace(*engine.device, engine.model->kv_shape(), config.n_layers, needs.view->room());
        view_builder_.emplace(*engine.device, cache_, *view_, config, needs.view->options);
    }
    if (check == CheckPasses::No) return;
    plain_forward_ = std::make_unique<Forward>(*engine.model, check_forward_limits(), pass_.get());
    plain_.emplace(*plain_forward_, cache_);
}

void EngineTarget::use_view(bool use) {
    if (!view_) return;
    view_builder_->restart();
    target_->build_view_with(use ? &*view_builder_ : nullptr);
}

EngineTarget::~EngineTarget() {
    tell_lock_refusal();
}

void EngineTarget::tell_lock_refusal() {
    if (refusal_told_ || !engine_->arena) return;
    const std::string refusal = engine_->arena->lock_refusal();
    if (refusal.empty()) return;
    callbacks_.note(refusal);
    refusal_told_ = true;
}

}  // namespace slipstream::tools
