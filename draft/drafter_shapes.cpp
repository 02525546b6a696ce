// Second part of SourcesDrafter: grows the tree of a pass.
#include <algorithm>

#include <fmt/format.h>

#include "draft/papers/chain_shape.h"
#include "draft/papers/drawn_shape.h"
#include "draft/sources/ngrammys_shape.h"
#include "draft/sources_drafter.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

// Draft tokens of a chain if they are drawn (distribution-exact sampling, E3), or before a pass was measured.
constexpr std::int64_t kDefaultGamma = 6;
constexpr std::int64_t kChainSearch = 64;  // nodes: least budget of the merged tree of which a chain is the best path
// Weight of a new pass in the running mean acceptance (a fraction) of a chain's draft tokens.
constexpr double kAcceptanceRate = 0.1;
constexpr double kFreeNodes = 1.02;  // factor by which nodes that fill an unused budget may lengthen a pass

}  // namespace

std::size_t SourcesDrafter::shape_of(std::string_view name) const {
    if (const auto source = sources_.find(name)) return *source;
    throw RequestError(fmt::format("the tree {} is that of the source {}; add it to --draft", name, name));
}

SourcesDrafter::Growth SourcesDrafter::choose_growth() {
    if (options_.sources.empty()) return Growth::Nothing;
    // Only in trees of models that draft alone are children drawn at random from a model's distribution. The verifier
    // treats the nodes of all other trees as point masses, without a record of draws (rejection.h).
    if (options_.child_rule == ChildRule::Draw && (lone_model() || is_hierarchy()) &&
        options_.shape != TreeShape::Merged)
        return Growth::Drawn;
    if (!options_.shape) {
        if (sources_.tables.size() != 1 || !sources_.models.empty()) return Growth::Merged;
        shape_source_ = 0;
        return Growth::OwnShape;
    }
    switch (*options_.shape) {
        case TreeShape::Merged:
            return Growth::Merged;
        case TreeShape::Chain:
            return Growth::Chain;
        case TreeShape::NGrammys:
            if (!sources_.find("context"))
                throw RequestError("the tree ngrammys is of the sources context and bigram; add context to --draft");
            return Growth::NGrammys;
        case TreeShape::Cacheback:
            shape_source_ = shape_of("cacheback");
            break;
        case TreeShape::Recycling:
            shape_source_ = shape_of("recycling");
            break;
    }
    return Growth::OwnShape;
}

std::int64_t SourcesDrafter::gamma() const {
    if (options_.gamma) return *options_.gamma;
    // Under Growth::Drawn draws decide the output (distribution-exact sampling, E3), so the length of a chain must not
    // depend on measured times: otherwise one seed would give several texts.
    const PassCurve& curve = control_.curve();
    if (growth_ == Growth::Drawn || !curve.known()) return kDefaultGamma;
    double a_guess = 0.0;
    for (const auto& source : sources_.models) a_guess += source->expand_seconds(1);
    return best_chain(chain_.acceptance, std::min(curve.max_nodes(), kLongestChain) - 1,
                      [&](std::int64_t n) { return curve.at(n + 1) + static_cast<double>(n) * a_guess; })
        .guesses;
}

void SourcesDrafter::grow_chain(TokenTree& tree, const ShapeRequest& request) {
    const std::int64_t length = gamma();
    if (lone_model()) {
        propose_chain(tree, request, length, *sources_.models.front());
    } else if (sources_.models.empty() && sources_.tables.size() == 1) {
        propose_chain(tree, request, length, *sources_.tables.front());
    } else {
        // Takes the most probable path of the merged tree. The tree's nodes are in order of falling score, so a node's
        // first child is its best one.
        chain_.scratch.reset(request.text.back());
        chain_.sources.assign(1, 0);
        builder_.grow(chain_.scratch, {.text = request.text,
                                       .budget = std::max(request.budget, kChainSearch),
                                       .max_depth = std::min(length, request.max_depth),
                                       .noise = &noise_,
                                       .curve = nullptr});
        TreeNode end = kTreeRoot;
        TreeNode chain_end = kTreeRoot;
        for (const TreeNode node : chain_.scratch.draft_nodes()) {
            if (tree.size() >= request.budget) break;
            if (chain_.scratch.parent(node) != end) continue;
            chain_end = tree.add(chain_end, chain_.scratch.token(node));
            end = node;
            chain_.sources.push_back(builder_.named_by(node));
        }
    }
}

void SourcesDrafter::grow(TokenTree& tree, const ShapeRequest& request) {
    switch (pass_.growth) {
        case Growth::Nothing:
            break;
        case Growth::Merged:
            pass_.expected = builder_.grow(
                tree, {.text = request.text,
                       .budget = request.budget,
                       .max_depth = request.max_depth,
                       .noise = &noise_,
                       .curve = options_.adapt_budget && control_.curve().known() ? &control_.curve() : nullptr,
                       .seconds_per_token = control_.seconds_per_token(),
                       .realised_fraction = control_.realised_fraction()});
            break;
        case Growth::OwnShape:
            sources_.paper_trees[shape_source_]->propose_shape(tree, request);
            break;
        case Growth::NGrammys:
            grow_ngrammys(tree, request, ContextRows::Taken, sources_.bigrams);
            break;
        case Growth::Chain:
            grow_chain(tree, request);
            break;
        case Growth::Drawn:
            if (is_hierarchy() && sources_.models[1]->ready(request.text)) {
                const TwoModelChain::Counts below =
                    two_model_chain_.propose(tree, request, gamma(), *sources_.models[0], *sources_.models[1], drawn_);
                figures_[0].offered += below.offered;
                figures_[0].accepted += below.accepted;
                figures_[0].parents += below.offered;  // a chain
                // propose() in drafter.cpp adds the time of all drafting to the upper model, so the lower model's
                // seconds are moved to the lower one.
                figures_[0].seconds += below.seconds;
                figures_[1].seconds -= below.seconds;
                pass_.drawn_by = 1;
                break;
            }
            propose_drawn(
                tree, request,
                {.shape = options_.shape == TreeShape::Chain ? DrawnShape::Chain : DrawnShape::Tree, .gamma = gamma()},
                *sources_.models.front(), drawn_);
            break;
    }
}

// Fills the unused budget of a merged tree with nodes of `lookahead`: up to request.budget nodes if the budget is
// fixed, else as many as lengthen the predicted pass to at most kFreeNodes times its time.
void SourcesDrafter::fill_unused_nodes(TokenTree& tree, ShapeRequest request) {
    filled_ = false;
    if (pass_.growth != Growth::Merged || sources_.lookahead == nullptr) return;
    if (options_.adapt_budget) {
        if (!control_.curve().known()) return;
        std::int64_t n = tree.size();
        while (n < request.budget && control_.curve().at(n + 1) <= kFreeNodes * control_.curve().at(tree.size())) ++n;
        request.budget = n;
    }
    if (tree.size() >= request.budget) return;
    sources_.lookahead->fill_unused_nodes(tree, request);
    filled_ = true;
}

// Returns whether the source with this index in figures_ proposed the nodes of a shape other than Growth::Merged.
bool SourcesDrafter::takes_part(std::size_t source) const {
    const std::string_view name = figures_[source].name;
    return figures_.size() == 1 || (growth_ == Growth::OwnShape && name == sources_.tables[shape_source_]->name()) ||
           (growth_ == Growth::Drawn && source == pass_.drawn_by) ||
           (growth_ == Growth::NGrammys && (name == "context" || name == "bigram"));
}

std::uint32_t SourcesDrafter::sources_of(TreeNode node) {
    if (node == kTreeRoot || !pass_.guessed) return 0;
    if (pass_.growth == Growth::Merged) {
        if (const std::uint32_t sources = builder_.named_by(node); sources != 0) return sources;
        const bool is_filled = filled_ && node.index >= builder_.grown_nodes();
        return is_filled ? 1U << *sources_.find("lookahead") : 0;
    }
    if (growth_ == Growth::Chain && figures_.size() > 1)
        return node.index < std::ssize(chain_.sources) ? chain_.sources[node.index] : 0;
    std::uint32_t sources = 0;
    for (std::size_t i = 0; i < figures_.size(); ++i)
        if (takes_part(i)) sources |= 1U << i;
    return sources;
}

// Adds the offered and the accepted nodes of a tree that builder_ did not grow to the figures of its sources, and
// updates the mean acceptance of chains.
void SourcesDrafter::count_shape(const Observation& observation) {
    const TokenTree& tree = *observation.tree;
    std::int64_t offered = 0;
    std::int64_t parents = 0;
    for (const TreeNode node : observation.accepted) {
        const std::int64_t before = offered;
        offered += std::ranges::count(tree.parents(), node);
        parents += offered > before ? 1 : 0;
    }
    const auto accepted = std::ssize(observation.accepted) - 1;
    if (offered > 0)
        chain_.acceptance += kAcceptanceRate * (static_cast<double>(accepted) /
                                                    static_cast<double>(accepted + (offered > accepted ? 1 : 0)) -
                                                chain_.acceptance);
    if (growth_ == Growth::Chain && figures_.size() > 1) {
        // Node i of a chain is the child of node i - 1. observation.accepted includes node 0, so nodes 1 to
        // accepted.size() were offered, and those below accepted.size() were accepted.
        for (std::size_t node = 1; node < chain_.sources.size() && node <= observation.accepted.size(); ++node)
            for (std::size_t source = 0; source < figures_.size(); ++source) {
                if ((chain_.sources[node] >> source & 1U) == 0) continue;
                ++figures_[source].offered;
                ++figures_[source].parents;
                if (node < observation.accepted.size()) ++figures_[source].accepted;
            }
        return;
    }
    for (std::size_t i = 0; i < figures_.size(); ++i) {
        if (!takes_part(i)) continue;
        figures_[i].offered += offered;
        figures_[i].accepted += accepted;
        figures_[i].parents += parents;
    }
}

}  // namespace slipstream::draft
