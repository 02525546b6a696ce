#include "draft/sources/table_chain.h"

#include <algorithm>
#include <array>

#include "kernels/base/check.h"

namespace slipstream::draft {

std::int64_t chain_length(const TokenTree& tree, const ShapeRequest& request, std::int64_t gamma) {
    CHECK(tree.size() == 1 && !request.text.empty() && tree.token(kTreeRoot) == request.text.back(),
          "a tree of {} nodes", tree.size());
    return std::min({gamma, request.budget - 1, request.max_depth});
}

void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, TableSource& source) {
    const std::int64_t length = chain_length(tree, request, gamma);
    if (length < 1) return;
    const PathNoise& noise = noise_of(request);
    TreeNode node = kTreeRoot;
    Cursor cursor = source.root(request.text);
    for (std::int64_t depth = 0; depth < length && cursor != kNowhere; ++depth) {
        std::array<Proposal, 1> best;
        if (source.propose(cursor, std::ssize(request.text) + depth, noise, best) == 0) return;
        node = tree.add(node, best[0].token);
        cursor = source.advance(cursor, best[0].token);
    }
}

}  // namespace slipstream::draft
