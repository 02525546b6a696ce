// What a view of a KV cache is made with: how much each group of slots matters to a query, and moving groups of slots
// from chunks to chunks. (Chunks of 8 tokens by their mean key: TriForce, Sun et al. 2024, arXiv 2404.11912, section
// 4.1. By attention mass: keys are on the device while a pass reads them, so the whole row can be looked at.)
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Slots that are chosen together, and such groups of a chunk.
inline constexpr std::int64_t kGroupTokens = 8;
inline constexpr std::int64_t kChunkGroups = kChunkTokens / kGroupTokens;

enum class GroupScore : std::uint8_t {
    Mass,  // log of the sum over the group's slots of exp(scale * q . k)
    Mean,  // their mean of scale * q . k, which is scale * q . (mean key)
};

/// Scores of the groups in some chunks for one query of each head.
struct KvScoreArgs {
    KvShape shape;
    ConstTensorView q;                         // [1, n_q_heads * head_dim], F32, rotated
    std::int64_t n_q_heads = 0;                // a multiple of n_kv_heads
    const std::byte* const* chunks = nullptr;  // of this layer, by number; those of [first_chunk, end_chunk) are read
    std::int64_t first_chunk = 0;
    std::int64_t end_chunk = 0;
    std::int64_t n_committed = 0;  // slots from here on count nothing; > (end_chunk - 1) * 256
    float scale = 1.0F;
    GroupScore score = GroupScore::Mass;
    float* out = nullptr;       // device memory, [n_q_heads, n_groups]: groups with committed slots in those chunks are
                                // written, at their number from slot 0 on; all others are left alone
    std::int64_t n_groups = 0;  // a row of `out`; at least ceil(min(n_committed, 256 * end_chunk) / 8)
};
/// Runs in stream order. Scores are for choosing only: their bits may differ from backend to backend, but not from call
/// to call, nor with how chunks are cut into calls.
void kv_score(ExecRef exec, const KvScoreArgs& args);

/// A group of one kv head, K and V, to another place.
struct GroupMove {
    std::int32_t head = 0;
    std::int32_t from = 0;  // group, counted from slot 0: in chunk from / 32
    std::int32_t to = 0;
};

/// Copies groups bit for bit. No group is both read and written, none written twice.
struct KvGatherArgs {
    KvShape shape;
    const std::byte* const* from = nullptr;  // chunks by number; those that `moves` name are looked at
    std::byte* const* to = nullptr;          // the same
    const GroupMove* moves = nullptr;        // [n_moves], host memory; read until the stream has come by
    std::int64_t n_moves = 0;
};
void kv_gather(ExecRef exec, const KvGatherArgs& args);

}  // namespace slipstream
