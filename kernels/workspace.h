// Memory that ops need beside their arguments. It is allocated once, so that a memory budget can be planned to the byte
// and steady state allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"

namespace slipstream {

/// Heads of calls of attention, or the shape of calls of delta_net().
struct AttentionHeads {
    KvLayout kv;                 // with a state: of delta_net()
    std::int64_t n_q_heads = 0;  // a multiple of kv.n_kv_heads; 0 for delta_net()
    friend bool operator==(const AttentionHeads&, const AttentionHeads&) = default;
};

/// Sizes of the largest calls of a device's ops.
struct WorkspaceShapes {
    std::int64_t n_tokens = 0;  // most tokens of one call
    std::int64_t max_cols = 0;  // largest K of a matmul, with weights of any type; 0: matmul is not called
    std::vector<AttentionHeads> attention{};  // heads of each layer, each kind once; empty: attention is not called
    std::int64_t delta_steps = 0;  // most steps of one call of delta_net(), for the entries of `attention` with a state
    std::int64_t n_experts = 0;    // most experts of a call of choose_experts(); 0: it is not called
    std::int64_t n_logit_rows = 0;  // most rows of one call of an op of sampling.h, over `vocab`; 0: none is called
    std::int64_t vocab = 0;
    Layout weights = Layout::Interleaved16;  // RowMajor: some weights are not packed, which needs more workspace
    std::int64_t prompt_rows = 0;  // M of the largest matrix that multiplies prompt (MatmulArgs::prompt); 0: none does
};

/// Returns the bytes that reserve_workspace() takes, for all threads, from the budget of a device that has reserved
/// none yet.
[[nodiscard]] std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes);

/// Allocates workspace for op calls up to `shapes`, under MemoryTag Workspace. Op calls within the shapes of any
/// earlier reserve_workspace() allocate nothing more. Throws OutOfBudget.
void reserve_workspace(Device& device, const WorkspaceShapes& shapes);

}  // namespace slipstream
