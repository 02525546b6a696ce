// Self-check of exactness (batch invariance, E1): computes the accepted path of a pass over a tree a second time, as
// plain decoding would, and compares bit for bit. First it computes the committed tokens that the cache lacks, without
// draft tokens, in passes as large as memory allows; then each accepted draft token in a pass of its own, below the
// token before it. Compared are the logits, and the rows of keys and values that are about to be committed, so that
// later passes, too, read the KV of plain decoding. The nodes of these passes exist beside those of the tree; the loop
// then commits the nodes of the tree, which drops those of the check.
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

/// A pass over a tree has computed other bits than plain decoding, so its output may differ from that of the model.
class SelfCheckFailure : public Error {
public:
    using Error::Error;
};

/// A pass over a tree, after verification and before the commit.
struct CheckedPass {
    std::span<const TokenId> text;  // all tokens committed before the pass, the tree's root last
    const TokenTree* tree = nullptr;
    LogitRows logits;                    // [tree->size(), vocab], F32
    std::span<const TreeNode> accepted;  // accepted nodes of the tree, node 0 first
    std::span<const NodeId> path;        // nodes to commit: the tokens that the target lacked, then the accepted draft
                                         // tokens; [text - committed + accepted - 1]
};

struct SelfCheckFigures {
    std::int64_t passes = 0;  // passes whose accepted path the self-check computed again and found equal
    std::int64_t tokens = 0;  // compared rows of logits, one per accepted tree node
};

class SelfCheck {
public:
    /// `plain` computes over the KV of the target that is checked, but has its own memory for at least one row of
    /// logits (CHECKed), since the logits of the tree must stay valid in the checked target. It must outlive this
    /// object.
    explicit SelfCheck(Target& plain);

    /// Returns the nodes that a target must have room for, so that passes over trees of up to `budget` nodes can be
    /// checked.
    [[nodiscard]] static std::int64_t scratch_nodes_for(std::int64_t budget);

    /// Computes the accepted path again below the committed positions, at new nodes that exist until the next commit()
    /// or forget(). Throws SelfCheckFailure at the first logit or KV row that differs in a bit. Returns false if
    /// *cancel turned true before the end. Allocates nothing unless it throws.
    [[nodiscard]] bool check(const CheckedPass& pass, const std::atomic<bool>* cancel);

    [[nodiscard]] const SelfCheckFigures& figures() const { return figures_; }

private:
    void compare_logits(const CheckedPass& pass, std::size_t depth, const LogitRows& plain) const;
    void compare_rows(NodeId guessed, NodeId plain);

    Target* plain_;
    std::size_t max_pass_tokens_;
    std::vector<std::size_t> row_bytes_;  // [n_layers]: bytes of the K, or V, row of a node
    std::vector<NodeId> nodes_;           // nodes that the check has added, in the order of CheckedPass::path
    std::vector<std::byte> fetched_;      // [2][n_layers][K|V]: KV rows of the two nodes that are compared
    SelfCheckFigures figures_;
};

}  // namespace slipstream
