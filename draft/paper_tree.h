// The trees of published methods: what a source grows when it runs alone, or when --tree names its tree. In a merged
// tree a source is asked through TableSource instead.
#pragma once

#include <cstdint>
#include <span>

#include "draft/path_noise.h"
#include "runtime/loop/proposer.h"

namespace slipstream::draft {

/// What a tree starts from, and its limits.
struct ShapeRequest {
    std::span<const TokenId> text;     // all committed tokens, the tree's root last
    std::int64_t budget = 1;           // most nodes, node 0 included
    std::int64_t max_depth = 0;        // greatest depth of a node; node 0 has depth 0
    const PathNoise* noise = nullptr;  // null: none
};

/// Returns the noise of `request`, or an absent one if the request has none.
[[nodiscard]] inline const PathNoise& noise_of(const ShapeRequest& request) {
    static const PathNoise none;
    return request.noise != nullptr ? *request.noise : none;
}

class PaperTree {
public:
    virtual ~PaperTree() = default;

    /// Grows `tree` (node 0 only) to the shape of the paper, within the limits of `request`. With noise, ranks by it
    /// (drafter-invariant sampling, E2).
    virtual void propose_shape(TokenTree& tree, const ShapeRequest& request) = 0;
};

}  // namespace slipstream::draft
