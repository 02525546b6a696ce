// Ring of a windowed layer: how many KV chunks a layer with a sliding window keeps, and where a chunk is among them.
//
// A windowed layer reads its last `window` positions only. It keeps R chunks, and chunk c is in place c mod R, so that
// it replaces chunk c - R. R is large enough for the window, a cut of kCutSlackTokens, and two prefill chunks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

/// A sequence can be cut by so many tokens without losing positions that windowed layers then need: longer than any
/// path that one pass commits, and than most turns of a chat.
inline constexpr std::int64_t kCutSlackTokens = 1024;

/// Returns how many KV chunks a layer with this window keeps (0: no window), of a context of `n_chunks`.
[[nodiscard]] constexpr std::int64_t kept_chunks(std::int64_t window, std::int64_t n_chunks) {
    if (window <= 0 || window / kChunkTokens >= n_chunks) return n_chunks;
    return std::min(n_chunks, (window + kCutSlackTokens + 511 + kChunkTokens - 1) / kChunkTokens + 2);
}

/// Returns the window of a layer, 0 if `windows` ([n_layers], or empty: no layer has one) has none.
[[nodiscard]] constexpr std::int64_t window_of(std::span<const std::int64_t> windows, std::int64_t layer) {
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer)];
}

/// Returns the first chunk that queries from slot `first_slot` on read in a layer with a window (0: none). Earlier
/// chunks are wholly outside the window.
[[nodiscard]] constexpr std::int64_t first_chunk_in_window(std::int64_t window, std::int64_t first_slot) {
    return window > 0 ? std::max<std::int64_t>(first_slot + 1 - window, 0) / kChunkTokens : 0;
}

}  // namespace slipstream
