#include "draft/papers/drawn_shape.h"

#include <algorithm>
#include <array>
#include <vector>

namespace slipstream::draft {

namespace {

// Children of every node, by depth: most where a miss costs most, near the root.
constexpr std::array<std::int64_t, 6> kChildrenAtDepth = {4, 2, 2, 1, 1, 1};

}  // namespace

void propose_drawn(TokenTree& tree, const ShapeRequest& request, const DrawnShapeOptions& options, ModelSource& source,
                   DrawnTree& drawn) {
    if (!source.ready(request.text)) return;
    const bool chain = options.shape == DrawnShape::Chain;
    const std::int64_t depth_limit = std::min(request.max_depth, chain ? options.gamma : std::ssize(kChildrenAtDepth));
    std::int64_t n_expanded = 0;
    std::int32_t level_begin = 0;
    std::vector<std::int32_t> level;
    for (std::int64_t depth = 0; depth < depth_limit && tree.size() < request.budget; ++depth) {
        const std::int32_t level_end = tree.size();
        level.clear();
        for (std::int32_t node = level_begin; node < level_end && n_expanded < source.max_nodes(); ++node, ++n_expanded)
            level.push_back(node);
        if (level.empty()) return;
        source.expand(tree, request.text, level);
        for (const std::int32_t node : level)
            drawn.draw_children(tree, node, source.distribution(node), DrawRule::WithoutReplacement,
                                chain ? 1 : kChildrenAtDepth[depth]);
        level_begin = level_end;
    }
}

}  // namespace slipstream::draft
