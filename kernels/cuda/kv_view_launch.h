// Parameters of the kernels that build KV views. Layout of KV chunks: kv_launch.h. All pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

/// Scores of the slot groups in some KV chunks, for one query per query head (meaning of scores: kernels/kv_view.h).
struct KvScoreLaunch {
    KvType type = KvType::F16;
    bool mass = true;         // true: GroupScore::Mass; false: GroupScore::Mean
    bool on_16_bytes = true;  // whether all rows of keys begin at a multiple of 16 bytes
    std::int32_t n_q_heads = 0;
    std::int32_t n_kv_heads = 0;
    std::int32_t head_dim = 0;
    const float* q = nullptr;                  // [n_q_heads, head_dim]
    const std::byte* const* chunks = nullptr;  // [n_chunks]
    std::int32_t n_chunks = 0;
    std::int32_t first_chunk = 0;  // number, in the layer, of the KV chunk to which chunks[0] points
    std::int64_t n_committed = 0;  // committed positions; slots from here on do not count
    float scale = 1.0F;            // multiplies q . k; with a softcap, 2 log2(e) / softcap times that (softcap.cuh)
    float softcap = 0.0F;          // 0: scores of slots are not capped
    float* out = nullptr;          // [n_q_heads, n_groups], slot groups counted from slot 0
    std::int64_t n_groups = 0;
};
/// Enqueues the kernel of `launch` on `stream`.
void launch_kv_score(const KvScoreLaunch& launch, void* stream);

/// A slot group to copy: addresses of its keys, 16-byte aligned. Its values are part_bytes further on.
struct KvGroupMove {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
};
/// Copies slot groups. No slot group may be both read and written, or be written twice.
struct KvGatherLaunch {
    std::int32_t n_moves = 0;
    std::int32_t group_pieces = 0;       // pieces of 16 bytes in the keys of a slot group
    std::int64_t part_bytes = 0;         // bytes from the keys of a kv head to its values, in a KV chunk
    const KvGroupMove* moves = nullptr;  // [n_moves]
};
/// Enqueues the kernel of `launch` on `stream`.
void launch_kv_gather(const KvGatherLaunch& launch, void* stream);

}  // namespace slipstream::cuda
