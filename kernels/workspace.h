// Memory that ops need beside their arguments, taken once, so that a budget can be planned to the byte and steady state
// allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/device.h"

namespace slipstream {

/// The largest calls that will be made of a device's ops.
struct WorkspaceShapes {
    std::int64_t n_tokens = 0;  // of one call
    std::int64_t max_cols = 0;  // K of a matmul, over weights of any type; 0: none is called
    KvShape kv;                 // of attention, with n_q_heads; n_kv_heads 0: none is called
    std::int64_t n_q_heads = 0;
    std::int64_t n_logit_rows = 0;  // of one call that chooses tokens (sampling.h), over logits of `vocab`; 0: none is
    std::int64_t vocab = 0;
    Layout weights = Layout::Interleaved16;  // RowMajor: some are not packed, which takes more
    std::int64_t prompt_rows = 0;            // M of the largest matrix that meets prompt (MatmulArgs::prompt); 0: none
};

/// Bytes that reserve_workspace() takes from the budget of a device that has reserved nothing yet; for all its threads.
[[nodiscard]] std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes);

/// Takes them, tag Workspace. Calls within the shapes of any earlier reserve take no more. Throws OutOfBudget.
void reserve_workspace(Device& device, const WorkspaceShapes& shapes);

}  // namespace slipstream
