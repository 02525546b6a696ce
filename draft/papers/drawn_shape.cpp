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
    TreeNode level_begin = kTreeRoot;
    std::vector<TreeNode> level;
    for (std::int64_t depth = 0; depth < depth_limit && tree.size() < request.budget; ++depth) {
        const TreeNode level_end(tree.size());
        level.clear();
        for (const TreeNode node : TreeNodes(level_begin, level_end)) {
            if (n_expanded >= source.max_nodes()) break;
            level.push_back(node);
            ++n_expanded;
        }
        if (level.empty()) return;
        source.expand(tree, request.text, level);
        for (const TreeNode node : level)
            drawn.draw_children(tree, node, source.distribution(node), DrawRule::WithoutReplacement,
                                chain ? 1 : kChildrenAtDepth[depth]);
        level_begin = level_end;
    }
}

}  // namespace slipstream::draft
