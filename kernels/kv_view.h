// Ops that build a KV view (sparse KV cache): scores that say how much each slot group matters to a query, and copies
// of slot groups between KV chunks. (Chunks of 8 tokens by their mean key: TriForce, Sun et al. 2024, arXiv 2404.11912,
// section 4.1. By attention mass: keys are on the device while a pass reads them, so all of them can be scored.)
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

inline constexpr std::int64_t kGroupTokens = 8;                            // slots of a group, chosen together
inline constexpr std::int64_t kChunkGroups = kChunkTokens / kGroupTokens;  // slot groups of a KV chunk

/// How the scores of slots, those of attention() before mask and softmax, become the score of their group.
enum class GroupScore : std::uint8_t {
    Mass,  // log of the sum of exp(score) over the slots of the group
    Mean,  // mean score of the slots of the group; without a softcap it is scale * q . (mean key)
};

/// Computes scores of the slot groups in some KV chunks, for one query per query head.
struct KvScoreArgs {
    KvLayout shape;
    ConstTensorView q;                         // [1, n_q_heads * head_dim], F32, rotated
    std::int64_t n_q_heads = 0;                // a multiple of n_kv_heads
    const std::byte* const* chunks = nullptr;  // KV chunks of this layer, by number; [first_chunk, end_chunk) are read
    std::int64_t first_chunk = 0;
    std::int64_t end_chunk = 0;
    std::int64_t n_committed = 0;  // slots from here on do not count; > (end_chunk - 1) * 256
    float scale = 1.0F;            // multiplies q . k
    float softcap = 0.0F;          // caps the scores of slots as in AttentionArgs; 0: they are not capped
    GroupScore score = GroupScore::Mass;
    float* out = nullptr;       // device memory, [n_q_heads, n_groups]. Entry g is slot group g, counted from slot 0.
                                // Written are the groups with committed slots in these KV chunks, no others
    std::int64_t n_groups = 0;  // length of a row of `out`; at least ceil(min(n_committed, 256 * end_chunk) / 8)
};
/// Computes the scores of `args`, in stream order. Scores serve only to choose groups: their bits may differ between
/// backends, but not between calls, nor with the way in which KV chunks are divided among calls.
void kv_score(ExecRef exec, const KvScoreArgs& args);

/// Copies one slot group of one kv head, K and V, to another place.
struct GroupMove {
    std::int32_t head = 0;  // kv head
    std::int32_t from = 0;  // slot group, counted from slot 0, so it is in KV chunk from / 32
    std::int32_t to = 0;    // slot group, counted in the same way
};

/// Copies slot groups bit for bit. No group may be both read and written, or be written twice.
struct KvGatherArgs {
    KvLayout shape;
    const std::byte* const* from = nullptr;  // KV chunks by number; only those that `moves` names are accessed
    std::byte* const* to = nullptr;          // KV chunks by number; only those that `moves` names are accessed
    const GroupMove* moves = nullptr;        // [n_moves], host memory; unchanged until the stream has passed this point
    std::int64_t n_moves = 0;
};
void kv_gather(ExecRef exec, const KvGatherArgs& args);

}  // namespace slipstream
