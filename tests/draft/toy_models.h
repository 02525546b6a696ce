// A target and a draft over a handful of tokens whose distributions can be written down: logits are tables over the
// path, p and q follow by the definitions of the filters in plain loops. Trials generate the first tokens after a fixed
// root by passes over drafted trees; their joint distribution must be the target's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "draft/drawn_tree.h"
#include "runtime/loop/sampling/sampler.h"
#include "tests/support/chi_square.h"

namespace slipstream::draft {

inline constexpr std::int64_t kToyVocab = 5;
inline constexpr std::int64_t kToyTokens = 3;  // after the root: what is counted
inline constexpr std::int64_t kToyBins = 125;  // kToyVocab ^ kToyTokens
inline constexpr TokenId kToyRoot = 2;

/// Logits by path: one table for the target, one for a draft that is `closeness` target and for the rest its own.
struct ToyModels {
    explicit ToyModels(std::uint32_t seed, double closeness = 0.5) {
        std::mt19937 random(seed);
        std::normal_distribution<double> normal(0.0, 1.5);
        for (std::int64_t i = 0; i < 256 * kToyVocab; ++i) {
            target.push_back(static_cast<float>(normal(random)));
            draft.push_back(static_cast<float>(closeness * target.back() + (1.0 - closeness) * normal(random)));
        }
    }

    /// Logits [kToyVocab] behind `path`, which begins with the root.
    static std::span<const float> row(const std::vector<float>& table, std::span<const TokenId> path) {
        std::size_t at = 0;  // paths by length, then as numbers: 1 + 5 + 25 + 125 of them
        for (const TokenId token : path.subspan(1)) at = at * kToyVocab + static_cast<std::size_t>(token) + 1;
        return std::span(table).subspan(at * kToyVocab, kToyVocab);
    }

    std::vector<float> target, draft;
};

/// The filtered distribution [kToyVocab] by definition: penalty, temperature, top-p. (No other filter is used here.)
inline std::vector<double> toy_distribution(std::span<const float> logits, std::span<const TokenId> path,
                                            const SamplerOptions& options) {
    std::vector<double> p(logits.size());
    double mass = 0.0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        double logit = logits[i];
        const auto seen = path.last(std::min(path.size(), static_cast<std::size_t>(options.repeat_window)));
        if (std::ranges::find(seen, static_cast<TokenId>(i)) != seen.end())
            logit = logit > 0.0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
        mass += p[i] = std::exp(logit / options.temperature);
    }
    std::vector<std::size_t> order(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) order[i] = i;
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
    double kept = 0.0;
    for (const std::size_t i : order) {
        if (kept >= options.top_p * mass) p[i] = 0.0;
        kept += p[i];
    }
    for (double& value : p) value /= kept;
    return p;
}

/// The target's probability of each sequence of kToyTokens tokens, sequences as numbers, the first token leading.
inline std::vector<double> toy_joint(const ToyModels& models, const SamplerOptions& options) {
    std::vector<double> joint;
    const std::function<void(std::vector<TokenId>, double)> visit = [&](const std::vector<TokenId>& path, double p) {
        if (std::ssize(path) == kToyTokens + 1) {
            joint.push_back(p);
            return;
        }
        const std::vector<double> next = toy_distribution(ToyModels::row(models.target, path), path, options);
        for (TokenId id = 0; id < kToyVocab; ++id) {
            std::vector<TokenId> longer = path;
            longer.push_back(id);
            visit(longer, p * next[id]);
        }
    };
    visit({kToyRoot}, 1.0);
    return joint;
}

/// A tree under construction, for shapes: what they may look at.
struct ToyPass {
    const ToyModels& models;
    Sampler& draft_sampler;
    TokenTree& tree;
    DrawnTree& drawn;
    const std::vector<TokenId>& text;
    std::int64_t max_depth;
    std::vector<TokenId>& scratch;

    /// Text and guesses down to `node`. Valid until the next call.
    [[nodiscard]] std::span<const TokenId> path_of(TreeNode node) {
        scratch.assign(text.begin(), text.end());
        scratch.resize(text.size() + static_cast<std::size_t>(tree.depth(node)));
        for (std::size_t i = scratch.size(); node != kTreeRoot; node = tree.parent(node))
            scratch[--i] = tree.token(node);
        return scratch;
    }
    /// Draws from the draft's distribution at `node`, filtered along the node's own path.
    std::span<const TokenId> draw(TreeNode node, DrawRule rule, std::int64_t n) {
        const std::span<const TokenId> path = path_of(node);
        return drawn.draw_children(tree, node, draft_sampler.distribution(ToyModels::row(models.draft, path), path),
                                   rule, n);
    }
};
using ToyShape = std::function<void(ToyPass&)>;

/// Makes the walk of one trial; DrawnTree is what was drawn.
using ToyWalk = std::function<std::unique_ptr<Verifier>(Sampler&, const DrawnTree&)>;
inline std::unique_ptr<Verifier> rejection_walk(Sampler& sampler, const DrawnTree& drawn) {
    return std::make_unique<RejectionVerifier>(sampler, kToyVocab, &drawn);
}

struct ToyCounts {
    std::vector<std::int64_t> bins = std::vector<std::int64_t>(kToyBins);
    std::int64_t first_guess_accepted = 0;  // trials whose first pass went below node 0
};

/// `n_trials` texts of kToyTokens tokens, seeds counted up from options.seed.
inline ToyCounts toy_trials(const ToyModels& models, SamplerOptions options, const ToyShape& shape,
                            std::int64_t n_trials, const ToyWalk& make_verifier = rejection_walk) {
    ToyCounts counts;
    TokenTree tree;
    std::vector<float> logits;
    std::vector<TreeNode> accepted;
    std::vector<TokenId> text, path;
    Sampler draft_sampler(options, kToyVocab);
    for (std::int64_t trial = 0; trial < n_trials; ++trial, ++options.seed) {
        Sampler sampler(options, kToyVocab);
        DrawnTree drawn(options.seed);
        const auto walk = make_verifier(sampler, drawn);
        text.assign(1, kToyRoot);
        while (std::ssize(text) <= kToyTokens) {
            const std::int64_t left = kToyTokens + 1 - std::ssize(text);
            tree.reset(text.back());
            drawn.reset(std::ssize(text), 64);
            ToyPass pass{models, draft_sampler, tree, drawn, text, left - 1, path};
            shape(pass);
            logits.clear();
            for (const TreeNode node : tree.nodes()) {
                const auto row = ToyModels::row(models.target, pass.path_of(node));
                logits.insert(logits.end(), row.begin(), row.end());
            }
            const std::int64_t before = std::ssize(text);
            walk->verify(tree, matrix_view(std::as_const(logits).data(), tree.size(), kToyVocab),
                         {.max_new_tokens = left}, text, accepted);
            EXPECT_EQ(std::ssize(text), before + std::ssize(accepted));
            if (before == 1 && accepted.size() > 1) ++counts.first_guess_accepted;
        }
        std::size_t bin = 0;
        for (std::size_t i = 1; i < text.size(); ++i) bin = bin * kToyVocab + static_cast<std::size_t>(text[i]);
        ++counts.bins[bin];
    }
    return counts;
}

/// How well the joint distribution of the first tokens is the target's.
inline double toy_p_value(const ToyModels& models, const SamplerOptions& options, const ToyShape& shape,
                          std::int64_t n_trials, const ToyWalk& make_verifier = rejection_walk) {
    return chi_square_p_value(toy_trials(models, options, shape, n_trials, make_verifier).bins,
                              toy_joint(models, options));
}

}  // namespace slipstream::draft
