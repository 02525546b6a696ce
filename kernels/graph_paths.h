// The longest paths that launches of a graph can read. The tree of a draft model grows level by level, so the path of
// one token may have many rows of earlier passes.
#pragma once

#include <cstdint>

namespace slipstream {

/// Returns the number of scratch rows per path for which the attention of a graph has room, if the longest path of the
/// pass has `n` rows: the next power of two, at least 64. Passes with the same result share a graph.
[[nodiscard]] constexpr std::int64_t graph_path_rows(std::int64_t n) {
    std::int64_t room = 64;
    while (room < n) room *= 2;
    return room;
}

}  // namespace slipstream
