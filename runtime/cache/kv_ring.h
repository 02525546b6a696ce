// Ring of KV chunks: how many chunks a layer with a sliding window keeps, and which of them queries read.
//
// A query of such a layer reads the last `window` positions only. The layer keeps R chunks: chunk c is in place c mod R
// (DeviceKv::place()), so it overwrites chunk c - R.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/matmul.h"

namespace slipstream {

/// A sequence can be cut by so many tokens without losing positions that windowed layers then need: longer than any
/// path that one pass commits, and than most turns of a chat.
inline constexpr std::int64_t kCutSlackTokens = 1024;

/// Returns how many KV chunks a layer with this window (0: none) keeps of a context of `n_chunks`. A ring has room for
/// the window, for a cut of kCutSlackTokens and for the other positions of a prefill chunk whose first query reads the
/// window; two KV chunks more, since window and prefill chunk begin within one.
[[nodiscard]] constexpr std::int64_t kept_chunks(std::int64_t window, std::int64_t n_chunks) {
    if (window <= 0 || window / kChunkTokens >= n_chunks) return n_chunks;
    return std::min(n_chunks, ceil_div(window + kCutSlackTokens + kPrefillChunkTokens - 1, kChunkTokens) + 2);
}

/// Returns the window of a layer, 0 if `windows` ([n_layers], or empty: no layer has one) has none.
[[nodiscard]] constexpr std::int64_t window_of(std::span<const std::int64_t> windows, std::int64_t layer) {
    return windows.empty() ? 0 : windows[layer];
}

/// Returns the first KV chunk that queries from slot `first_slot` on read in a layer with a window (0: none). Earlier
/// ones are wholly outside the window.
[[nodiscard]] constexpr std::int64_t first_chunk_in_window(std::int64_t window, std::int64_t first_slot) {
    return window > 0 ? std::max<std::int64_t>(first_slot + 1 - window, 0) / kChunkTokens : 0;
}

}  // namespace slipstream
