// Trees that are drawn from a draft model's own distribution, for classical speculative sampling (E3, rejection.h): a
// chain (Leviathan et al. 2023, arXiv 2211.17192), or a tree whose shape is fixed before anything is drawn, with
// children drawn without replacement (Sequoia, Chen et al. 2024, arXiv 2402.12374).
#pragma once

#include <cstdint>

#include "draft/drawn_tree.h"
#include "draft/models/model_source.h"
#include "draft/paper_tree.h"

namespace slipstream::draft {

enum class DrawnShape : std::uint8_t { Chain, Tree };

struct DrawnShapeOptions {
    DrawnShape shape = DrawnShape::Chain;
    std::int64_t gamma = 4;  // length of a chain, in draft tokens
};

/// Grows `tree` (which has node 0 only) by draws from `source`, within the limits of `request`, and records them in
/// `drawn` (reset for this tree). Adds nothing if the source is not ready.
void propose_drawn(TokenTree& tree, const ShapeRequest& request, const DrawnShapeOptions& options, ModelSource& source,
                   DrawnTree& drawn);

}  // namespace slipstream::draft
