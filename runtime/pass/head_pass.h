// HeadPass: passes over an MTP head (runtime/model/proposing_head.h): from tokens and hidden states to logits and
// further hidden states. Those of the target come from host memory; those that the head computes stay on its device,
// where the next pass finds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/workspace.h"
#include "runtime/model/proposing_head.h"
#include "runtime/pass/device_logits.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

class HeadPass {
public:
    /// Allocates the memory of passes within `limits` on the head's device, and the workspace of their ops. `head` must
    /// outlive this object. Throws OutOfBudget.
    HeadPass(const ProposingHead& head, const ForwardLimits& limits);
    /// Returns what the constructor takes from the device's memory budget, without the workspace of workspace_shapes().
    /// `config`: that of the head's model.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, const ForwardLimits& limits);
    /// Returns what the constructor takes of page-locked host memory if the host does not share the device's memory.
    [[nodiscard]] static std::size_t pinned_bytes(const ModelConfig& config, const ForwardLimits& limits);

    [[nodiscard]] static WorkspaceShapes workspace_shapes(const ModelConfig& config, DType kv_dtype,
                                                          const ForwardLimits& limits);

    /// Returns where the caller writes the target's hidden state, before its output norm, that token `i` of the next
    /// pass comes with: [d_model], in host memory.
    [[nodiscard]] std::span<float> input(std::int64_t i);
    /// Runs tokens[i] at scratch node nodes[i] of `kv`, as Forward::run() does. `nodes` are consecutive, and `kv` has
    /// at most limits.max_tokens of them (CHECKed). The first `n_of_target` tokens come with the hidden states of
    /// input(), to which the pass applies the target's output norm. Each of the others comes with what the head
    /// computed for its parent, a node of an earlier pass (CHECKed). Returns the logits [logit_tokens.size(), vocab] of
    /// the tokens with the indices `logit_tokens`, valid until the next pass; none may be wanted. `needs`: as of
    /// Forward::run(), without a draw (CHECKed). A row depends on its path and hidden states alone, bit for bit.
    LogitRows run(PassKv& kv, std::span<const TokenId> tokens, std::span<const NodeId> nodes, std::int64_t n_of_target,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs = {});

    [[nodiscard]] ExecRef exec() { return forward_.exec(); }

private:
    [[nodiscard]] TensorView rows(const Buffer& rows, std::int64_t n, std::int64_t cols, std::int64_t first = 0) const {
        return matrix_view(reinterpret_cast<float*>(rows.data()) + first * cols, n, cols);
    }
    void gather_inputs(const PassKv& kv, std::span<const NodeId> nodes, std::int64_t n_of_target);
    void join(const TensorView& embedded, std::int64_t n_of_target);
    [[nodiscard]] LogitRows compute_logits(const TensorView& results, std::span<const std::int32_t> logit_tokens,
                                           const LogitRequest& needs);

    const ProposingHead* head_;
    std::int64_t d_model_;
    std::int64_t max_tokens_;
    std::int64_t max_logit_rows_;
    std::unique_ptr<DeviceLogits> remote_;  // null: the host shares the device's memory
    Buffer host_inputs_;                    // [max_tokens, d_model], page-locked; empty: the host writes to inputs_
    Buffer inputs_;                         // [max_tokens, d_model]
    Buffer joined_;                         // [max_tokens, 2 * d_model]
    Buffer results_;   // [max_tokens, d_model], by node: hidden states after the head's output norm
    Buffer selected_;  // [max_logit_rows, d_model]; then the top logits
    Buffer logits_;    // [max_logit_rows, vocab]
    std::vector<MatmulArgs> products_;
    std::vector<std::int64_t> row_positions_;  // [logit rows], all 0: nothing is drawn
    // Destroyed first: its stream, which the destructor waits for, may still copy from or to the buffers above.
    Forward forward_;
};

}  // namespace slipstream
