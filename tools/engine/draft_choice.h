// Fits drafting into a limited device memory: the largest trees, how many tokens a draft model keeps, and whether
// `auto` uses a draft model or a KV view at all, since the target streams more beside them. Computed by the planner,
// before the weights of a target with a memory limit are loaded.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/model/proposing_head.h"
#include "runtime/view/view_builder.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

/// Returns `draft` with all choices made that `auto` leaves open, for `target` and the memory budgets of its devices.
/// Reports what is left out or made smaller. May measure the machine (target.rates()). Throws what opening the draft
/// model throws, and OutOfBudget if the given tree budget does not fit although the target without drafting would.
/// With LmHead::Own, an MTP head has its own LM head, or a copy of the target's, in any case.
/// `shared_view`: a view that is chosen already, for all drafters of the target; then the view options of `draft` are
/// not read. `learnt`: what earlier texts taught of views, which counts unless draft.verify is Rejection.
[[nodiscard]] DraftSettings choose_draft(const DraftSettings& draft, const PlacedModel& target,
                                         const EngineCallbacks& callbacks, CheckPasses check = CheckPasses::No,
                                         ProposingHead::LmHead lm_head = ProposingHead::LmHead::OfTarget,
                                         const std::optional<ViewOptions>& shared_view = std::nullopt,
                                         const ViewAcceptance& learnt = {});

}  // namespace slipstream::tools
