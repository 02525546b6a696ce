// The self-check of exactness (E1): what a pass over a tree said of its accepted path is computed
// once more as plain decoding would, and compared bit for bit. First the committed tokens that the cache lacks, as they
// are fed without guesses, in passes as large as memory allows; then each accepted guess by itself, below the one
// before. Logits must be equal, and the rows of keys and values that are about to be committed, so that what later
// passes read is plain decoding's, too. The nodes of these passes stand beside those of the tree; the loop's commit
// takes the tree's own and drops them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/loop/target.h"
#include "runtime/loop/token_tree.h"

namespace slipstream {

/// A pass over a tree gave other numbers than plain decoding: its output can no longer be trusted to be the model's
/// own.
class SelfCheckFailure : public Error {
public:
    using Error::Error;
};

/// A pass over a tree after the walk, before the commit.
struct CheckedPass {
    std::span<const TokenId> text;  // all tokens committed before the pass, the tree's root last
    const TokenTree* tree = nullptr;
    LogitRows logits;                        // [tree->size(), vocab], F32
    std::span<const std::int32_t> accepted;  // nodes of the tree, node 0 first
    std::span<const NodeId> path;            // nodes to commit: what the target lacked of the text, then the accepted
                                             // guesses; [text - committed + accepted - 1]
};

struct SelfCheckFigures {
    std::int64_t passes = 0;  // whose accepted paths were computed again
    std::int64_t tokens = 0;  // rows of logits that were compared, one a committed token
};

class SelfCheck {
public:
    /// `plain` computes over the same KV as the target that is checked, in memory of its own, since the tree's logits
    /// lie in that one's, with a row of logits (CHECKed). It outlives this.
    explicit SelfCheck(Target& plain);

    /// Nodes that a target must have room for, so that passes of up to `budget` nodes can be checked.
    [[nodiscard]] static std::int64_t scratch_nodes_for(std::int64_t budget);

    /// Computes the accepted path again below the committed positions, at nodes that stay in use until the next
    /// commit() or forget(). Throws SelfCheckFailure at the first number that differs by a bit. False where *cancel
    /// turned true before the end. Allocates nothing when all is well.
    [[nodiscard]] bool check(const CheckedPass& pass, const std::atomic<bool>* cancel);

    [[nodiscard]] const SelfCheckFigures& figures() const { return figures_; }

private:
    void compare_logits(const CheckedPass& pass, std::size_t depth, const LogitRows& plain) const;
    void compare_rows(NodeId guessed, NodeId plain);

    Target* plain_;
    std::size_t max_pass_tokens_;
    std::size_t row_bytes_;           // of K or V of a node in a layer
    std::vector<NodeId> nodes_;       // of the check's passes, as CheckedPass::path
    std::vector<std::byte> fetched_;  // [2][n_layers][K|V] rows of two nodes
    SelfCheckFigures figures_;
};

}  // namespace slipstream
