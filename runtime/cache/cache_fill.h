// Fills a KV cache without a forward pass, for benches: rows of seeded normal numbers go the way of real ones, through
// scratch and commit, so the cache of a long text is there in the time of writing it. What a pass costs depends on how
// many rows it reads, not on what they hold (E1), so its time is that of a real text of this length; its logits mean
// nothing.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/device.h"
#include "runtime/cache/kv_cache.h"

namespace slipstream {

/// Appends rows to `cache` (which has no nodes, and no more than `n_tokens` positions committed) until `n_tokens`, at
/// most its context, are committed. The values of a position depend on (seed, layer, position) and on the shape only.
/// `on_progress` hears of positions committed, after each piece; it may throw, the cache then holds what it heard of.
void fill_cache(KvCache& cache, ExecRef exec, std::int64_t n_tokens, std::uint64_t seed,
                const std::function<void(std::int64_t)>& on_progress = {});

}  // namespace slipstream
