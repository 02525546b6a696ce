// Parameters of the kernels of view pages (kernels/view_pages.h). All pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_launch.h"

namespace slipstream::cuda {

/// A page that is written: addresses of the keys and values of a step of 64 slots (kv_launch.h).
struct PagePlace {
    const std::byte* k = nullptr;
    const std::byte* v = nullptr;
    std::int32_t n_slots = 0;
    std::int32_t page = 0;
};
/// Rounds rows to pages. No page may be written twice.
struct PagesWriteLaunch {
    KvType type = KvType::F16;
    std::int32_t head_dim = 0;
    std::int32_t n_fills = 0;
    const PagePlace* fills = nullptr;  // [n_fills]
    std::byte* pages = nullptr;        // aligned to words of four bytes
};
/// Enqueues the kernel of `launch` on `stream`.
void launch_pages_write(const PagesWriteLaunch& launch, void* stream);

/// Folds pages into a fresh state.
struct PagesAttentionLaunch {
    // Queries, scale, softcap, sinks, `state`, and the memory of waves. Chunk c of a kv head is its pages 4 c to 4 c +
    // 3; the launch is made for chunks [0, end_chunk), also where the head has fewer.
    AttentionLaunch fold{};
    const std::byte* pages = nullptr;
    const std::int32_t* ranges = nullptr;  // [n_kv_heads][2]: first page, number of slots
};
/// Enqueues the kernels of `launch` on `stream`.
void launch_pages_attention(const PagesAttentionLaunch& launch, void* stream);

}  // namespace slipstream::cuda
