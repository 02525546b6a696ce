// Parameters of the kernels that KV views are made with. Chunks lie as in kv_launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

/// Scores of the groups of chunks, one query a head; kernels/kv_view.h says what they are.
struct KvScoreLaunch {
    KvType type = KvType::F16;
    bool mass = true;         // else the mean
    bool on_16_bytes = true;  // rows of keys lie so
    std::int32_t n_q_heads = 0;
    std::int32_t n_kv_heads = 0;
    std::int32_t head_dim = 0;
    const float* q = nullptr;                  // [n_q_heads, head_dim]
    const std::byte* const* chunks = nullptr;  // [n_chunks]
    std::int32_t n_chunks = 0;
    std::int32_t first_chunk = 0;  // number of chunks[0]
    std::int64_t n_committed = 0;
    float scale = 1.0F;
    float* out = nullptr;  // [n_q_heads, n_groups], groups counted from slot 0
    std::int64_t n_groups = 0;
};
void launch_kv_score(const KvScoreLaunch& launch, void* stream);

/// Keys of a group, wherever they lie; its values lie a part behind.
struct KvGroupMove {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
};
struct KvGatherLaunch {
    std::int32_t n_moves = 0;
    std::int32_t group_pieces = 0;  // of 16 bytes, of its keys
    std::int64_t part_bytes = 0;
    const KvGroupMove* moves = nullptr;  // [n_moves]
};
void launch_kv_gather(const KvGatherLaunch& launch, void* stream);

}  // namespace slipstream::cuda
