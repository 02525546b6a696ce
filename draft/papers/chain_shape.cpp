#include "draft/papers/chain_shape.h"

#include <algorithm>
#include <array>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

std::int64_t chain_length(const TokenTree& tree, const ShapeRequest& request, std::int64_t gamma) {
    CHECK(tree.size() == 1 && !request.text.empty() && tree.token(0) == request.text.back(), "a tree of {} nodes",
          tree.size());
    return std::min({gamma, request.budget - 1, request.max_depth});
}

}  // namespace

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

void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, TableSource& source) {
    const std::int64_t length = chain_length(tree, request, gamma);
    if (length < 1) return;
    const PathNoise& noise = noise_of(request);
    std::int32_t node = 0;
    Cursor cursor = source.root(request.text);
    for (std::int64_t depth = 0; depth < length && cursor != kNowhere; ++depth) {
        std::array<Proposal, 1> best;
        if (source.propose(cursor, std::ssize(request.text) + depth, noise, best) == 0) return;
        node = tree.add(node, best[0].token);
        cursor = source.advance(cursor, best[0].token);
    }
}

void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& source) {
    const std::int64_t length = std::min(chain_length(tree, request, gamma), source.max_nodes());
    if (length < 1 || !source.ready(request.text)) return;
    const PathNoise& noise = noise_of(request);
    std::int32_t node = 0;
    for (std::int64_t depth = 0; depth < length; ++depth) {
        source.expand(tree, request.text, {&node, 1});
        std::array<Proposal, 1> best;
        if (source.propose(node, std::ssize(request.text) + depth, noise, best) == 0) return;
        node = tree.add(node, best[0].token);
    }
}

}  // namespace slipstream::draft
