// How long the paths may be that launches of a graph read: a draft model's tree grows level by level, so one token may
// stand at the end of many rows of earlier passes.
#pragma once

#include <cstdint>

namespace slipstream {

/// Scratch rows of a path that attention of a graph has room for where a pass's longest has `n`: the next power of two
/// from 64 on. Passes within the same number share a graph.
[[nodiscard]] constexpr std::int64_t graph_path_rows(std::int64_t n) {
    std::int64_t room = 64;
    while (room < n) room *= 2;
    return room;
}

}  // namespace slipstream
