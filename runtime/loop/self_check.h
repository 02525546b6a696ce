// The self-check of exactness (E1): what a pass over a tree said of its accepted path is computed
// once more as plain decoding would, and compared bit for bit. First the committed tokens that the cache lacks, in one
// pass, as they are fed without guesses; then each accepted guess by itself, below the one before. Logits must be
// equal, and the rows of keys and values that are about to be committed, so that what later passes read is plain
// decoding's, too. The rows of these passes lie in scratch beside those of the tree; the loop's commit moves the tree's
// own and drops them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/loop/token_tree.h"
#include "runtime/pass/forward.h"

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
    std::span<const NodeId> path;            // scratch rows to commit: what the cache lacked of the text, then the
                                             // accepted guesses; [text - committed + accepted - 1]
};

struct SelfCheckFigures {
    std::int64_t passes = 0;  // whose accepted paths were computed again
    std::int64_t tokens = 0;  // rows of logits that were compared, one a committed token
};

class SelfCheck {
public:
    /// Takes the activations of passes over one token and over a piece of prompt. `pass` as Forward takes it. Throws
    /// OutOfBudget.
    explicit SelfCheck(const Model& model, PassStream* pass = nullptr);
    [[nodiscard]] static ForwardLimits limits();

    /// Scratch rows of a KV cache in which passes of up to `budget` nodes are checked.
    [[nodiscard]] static std::int64_t scratch_nodes_for(std::int64_t budget);

    /// Computes the accepted path again below the committed positions of `cache`, in scratch rows that stay in use
    /// until the next commit() or forget(). Throws SelfCheckFailure at the first number that differs by a bit. False
    /// where *cancel turned true before the end. Allocates nothing when all is well.
    [[nodiscard]] bool check(KvCache& cache, const CheckedPass& pass, const std::atomic<bool>* cancel);

    [[nodiscard]] const SelfCheckFigures& figures() const { return figures_; }

private:
    void compare_logits(const CheckedPass& pass, std::size_t depth, const ConstTensorView& plain) const;
    void compare_rows(const KvCache& cache, NodeId guessed, NodeId plain);
    [[nodiscard]] std::size_t fetch_row(const KvCache& cache, NodeId node, std::size_t at);

    Forward forward_;                 // its own, since the tree's logits live in the loop's
    std::vector<NodeId> nodes_;       // of the check's passes, as CheckedPass::path
    std::vector<std::byte> fetched_;  // [2][n_layers][K|V] rows of two nodes, on the host
    SelfCheckFigures figures_;
};

}  // namespace slipstream
