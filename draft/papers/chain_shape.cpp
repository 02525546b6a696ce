#include "draft/papers/chain_shape.h"

#include <algorithm>
#include <array>

namespace slipstream::draft {

ChainChoice best_chain(double acceptance, std::int64_t longest,
                       const std::function<double(std::int64_t guesses)>& seconds) {
    ChainChoice best;
    double expected = 1.0;
    double reach = 1.0;
    for (std::int64_t guesses = 1; guesses <= longest; ++guesses) {
        reach *= acceptance;
        expected += reach;
        const double rate = expected / seconds(guesses);
        if (rate > best.tokens_per_second) best = {guesses, rate};
    }
    return best;
}

void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& source) {
    const std::int64_t length = std::min(chain_length(tree, request, gamma), source.max_nodes());
    if (length < 1 || !source.ready(request.text)) return;
    const PathNoise& noise = noise_of(request);
    TreeNode node = kTreeRoot;
    for (std::int64_t depth = 0; depth < length; ++depth) {
        source.expand(tree, request.text, {&node, 1});
        std::array<Proposal, 1> best;
        if (source.propose(node, std::ssize(request.text) + depth, noise, best) == 0) return;
        node = tree.add(node, best[0].token);
    }
}

}  // namespace slipstream::draft
