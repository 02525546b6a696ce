// A source that needs passes of its own to guess: a draft model, or the target over a view of its KV. It answers for a
// batch of nodes at a time, so that a tree grows level by level.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "draft/control/pass_curve.h"
#include "draft/sources/table_source.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream::draft {

class ModelSource {
public:
    virtual ~ModelSource() = default;

    /// As --draft spells it.
    [[nodiscard]] virtual std::string_view name() const = 0;
    [[nodiscard]] virtual std::uint16_t n_bins() const = 0;
    /// Most nodes of one tree, node 0 included, that can be expanded.
    [[nodiscard]] virtual std::int64_t max_nodes() const = 0;

    /// Whether it can say anything of trees behind `text`; where it cannot, nobody calls expand(), propose() or
    /// distribution().
    [[nodiscard]] virtual bool ready(std::span<const TokenId> /*text*/) const { return true; }

    /// The tree of the observation is the pass's own, which may be another than the one that was expanded: which of its
    /// nodes were accepted the text tells.
    virtual void observe(const Observation& observation) = 0;

    /// Computes what the source thinks behind each of `nodes` of `tree`, in one pass. Node 0 comes first of a tree,
    /// alone or with others; a node's parent was expanded in this or an earlier call for the same tree. The first call
    /// after observe() also brings the source's own cache up to `text` (all committed tokens, the tree's root last).
    virtual void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const std::int32_t> nodes) = 0;
    /// Children of an expanded node, which would stand at absolute `position`: distinct tokens, most likely first by
    /// noise.rank(), at most out.size(). Returns how many.
    [[nodiscard]] virtual std::size_t propose(std::int32_t node, std::int64_t position, const PathNoise& noise,
                                              std::span<Proposal> out) = 0;
    /// The whole distribution behind an expanded node, filtered as the target's own will be (path-aware, E4): what E3
    /// draws from. Valid until the next call of anything.
    [[nodiscard]] virtual std::span<const Candidate> distribution(std::int32_t node) = 0;

    /// Predicted seconds of expanding `n_nodes` at once, measured beforehand and learnt from the calls.
    [[nodiscard]] virtual double expand_seconds(std::int64_t n_nodes) const = 0;
    /// Passes that it made over nodes of trees.
    [[nodiscard]] virtual std::int64_t passes() const { return 0; }
    /// What its passes take; null where it keeps no such thing.
    [[nodiscard]] virtual PassCurve* pass_curve() { return nullptr; }
};

}  // namespace slipstream::draft
