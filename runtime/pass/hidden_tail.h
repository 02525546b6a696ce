// HiddenTail: the hidden states (residual stream after the last layer) of the last committed positions of a sequence,
// in host memory: the hidden tail, which the MTP head reads (runtime/model/proposing_head.h).
//
// It has a run of positions without gaps. Positions that are committed without a pass over their nodes, such as those
// of a prompt that runs layer by layer or of a restored session, have no hidden states: the run then begins anew after
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"
#include "runtime/cache/kv_nodes.h"

namespace slipstream {

class HiddenTail {
public:
    /// Keeps the last `n_kept` positions. `max_nodes`: of the sequence's cache; `device`: that with the last layer.
    /// Allocates host memory, that of nodes page-locked if the host does not share the device's memory; nothing of the
    /// device's budget. Throws OutOfBudget.
    HiddenTail(Device& device, std::int64_t d_model, std::int64_t n_kept, std::int64_t max_nodes);
    struct HostBytes {
        std::size_t all = 0;
        std::size_t of_nodes = 0;  // of those, bytes of the rows of nodes
    };
    /// Returns the bytes of host memory that the constructor takes.
    [[nodiscard]] static HostBytes host_bytes(std::int64_t d_model, std::int64_t n_kept, std::int64_t max_nodes);

    // What follows the passes and commits of a sequence (RankTarget).

    /// Enqueues the copy of the rows [nodes, d_model], F32, of a pass, after the pass on its stream.
    void enqueue_copy(ExecRef exec, std::span<const NodeId> nodes, const ConstTensorView& rows);
    /// Call after the stream was synchronised: these nodes have their rows.
    void mark_copied(std::span<const NodeId> nodes);
    /// Keeps the rows of `path`, which are committed from position `first` on, and forgets those of all other nodes.
    void commit(std::int64_t first, std::span<const NodeId> path);
    /// Forgets the rows of all nodes.
    void forget();
    /// Forgets positions from `n_tokens` on, and the rows of all nodes.
    void truncate(std::int64_t n_tokens);

    // What a head reads.

    /// Returns the positions [begin(), end()) whose rows are kept.
    [[nodiscard]] std::int64_t begin() const { return begin_; }
    [[nodiscard]] std::int64_t end() const { return end_; }
    /// Returns the row of a kept position (CHECKed), [d_model]. Valid until the next commit.
    [[nodiscard]] std::span<const float> row(std::int64_t position) const;

private:
    [[nodiscard]] std::span<float> row_at(std::span<float> rows, std::int64_t index) const {
        return rows.subspan(static_cast<std::size_t>(index * d_model_), static_cast<std::size_t>(d_model_));
    }

    std::int64_t d_model_;
    std::int64_t n_kept_;
    std::vector<float> kept_;  // [n_kept][d_model]: position p at p % n_kept
    Buffer locked_;            // memory of of_nodes_ if the host does not share the device's; else pageable_ is
    std::vector<float> pageable_;
    std::span<float> of_nodes_;  // [max_nodes][d_model]
    std::vector<bool> has_row_;  // [max_nodes]
    std::int64_t begin_ = 0;
    std::int64_t end_ = 0;
};

}  // namespace slipstream
