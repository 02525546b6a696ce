// A source that makes passes of a model to draft: a draft model, or the target over a KV view. It is asked for several
// nodes at a time, so that a tree grows level by level.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "draft/control/pass_curve.h"
#include "draft/sources/table_source.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream::draft {

/// ModelSource::rank_error() of a model other than the target, in nats. 0.6 to 1 give 0.51 to 0.53 nats of surprise per
/// node (bundled pair of models at temperature 0.8).
inline constexpr float kModelRankError = 0.8F;

/// Interface of a source that makes passes of a model to draft. Not thread-safe.
class ModelSource {
public:
    virtual ~ModelSource() = default;

    /// Returns the name that --draft uses.
    [[nodiscard]] virtual std::string_view name() const = 0;
    /// Returns the number of calibration bins (Proposal::bin).
    [[nodiscard]] virtual std::uint16_t n_bins() const = 0;
    /// Returns the size of the source's errors, in nats, > 0: by about how much the difference of log p + gumbel
    /// between two tokens differs from the target's. The smaller it is, the more certain are estimates under noise
    /// (votes.cpp) and greedy ones (LogitSource::propose()).
    [[nodiscard]] virtual float rank_error() const { return kModelRankError; }
    /// Returns the most nodes of one tree, node 0 included, that can be expanded.
    [[nodiscard]] virtual std::int64_t max_nodes() const = 0;

    /// Whether the source can propose for trees after `text`. If it returns false, expand(), propose() and
    /// distribution() must not be called.
    [[nodiscard]] virtual bool ready(std::span<const TokenId> /*text*/) const { return true; }

    /// Sets the sampling options of the target. Call only between sequences.
    virtual void set_sampling(const SamplerOptions& /*sampling*/) {}

    /// Learns from a pass. The tree in `observation` is that of the pass, which may differ from the one that was
    /// expanded; the text tells which nodes were accepted.
    virtual void observe(const Observation& observation) = 0;

    /// Computes the source's predictions after each of `nodes` of `tree`, in one or several passes. The first call for
    /// a tree must begin with node 0, alone or with others. The parent of a node must be expanded in this or an earlier
    /// call for the same tree. The first call after observe() also brings the source's own cache up to `text` (all
    /// committed tokens; the last one is the tree's root).
    virtual void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes) = 0;
    /// Writes children of an expanded node, for the absolute position `position`, to `out`: distinct tokens, most
    /// likely first by noise.rank(), at most out.size(). Returns their number.
    [[nodiscard]] virtual std::size_t propose(TreeNode node, std::int64_t position, const PathNoise& noise,
                                              std::span<Proposal> out) = 0;
    /// Returns the whole distribution after an expanded node, with the filters that the target will use (path-dependent
    /// samplers, E4): what distribution-exact sampling (E3) draws from. Valid until the next call of any function.
    [[nodiscard]] virtual std::span<const Candidate> distribution(TreeNode node) = 0;

    /// Returns the predicted seconds of expanding `n_nodes` at once, planned before the first pass and corrected by the
    /// passes made.
    [[nodiscard]] virtual double expand_seconds(std::int64_t n_nodes) const = 0;
    /// Returns the number of passes over nodes of trees.
    [[nodiscard]] virtual std::int64_t passes() const { return 0; }
};

}  // namespace slipstream::draft
