// Fills a KV cache without a forward pass, for benchmarks: rows of seeded normal numbers are written to scratch rows
// and committed like real ones, so a cache of a long text is ready as fast as it can be written. The time of a pass
// depends on the number of rows that it reads, not on their values, so a pass takes as long as over a real text of this
// length; its logits mean nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/device.h"
#include "runtime/cache/kv_cache.h"

namespace slipstream {

/// Appends rows to `cache` until `n_tokens` positions are committed. The cache must have no nodes, and n_committed() <=
/// n_tokens <= context_tokens() (CHECKed). The values of a position depend only on (seed, layer, position) and the
/// layouts of the layers. `on_progress` gets the number of committed positions, after every 64 positions or fewer; it
/// may throw, and the cache then holds these positions.
void fill_cache(KvCache& cache, ExecRef exec, std::int64_t n_tokens, std::uint64_t seed,
                const std::function<void(std::int64_t)>& on_progress = {});

/// Returns the most bytes of device memory that fill_cache() takes while it runs, over layers with these layouts.
[[nodiscard]] std::size_t fill_cache_bytes(std::span<const KvLayout> layouts);

}  // namespace slipstream
