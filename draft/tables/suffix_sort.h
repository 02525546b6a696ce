// The suffix array of a text of integers, by prefix doubling (Manber, Myers 1990) in the form of Larsson and Sadakane
// (1999): suffixes are sorted by their first token, then groups that are still equal over their first h tokens are
// sorted by the rank of the suffix h further on, which doubles h. Groups of one are done. O(n log n) steps of sorting,
// few of them in running text, where suffixes differ after some ten tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace slipstream::draft {

/// What is done, out of what; called about every 2^20 suffixes. May throw to give up.
using SortProgress = std::function<void(double done, double all)>;

/// Starts of all suffixes of `text` [n] in ascending order; the end of the text is smaller than any token. Tokens are
/// >= 0, n < 2^32 - 1 (CHECKed). Needs 8 bytes a token beside the result, and up to 8 more while sorting.
[[nodiscard]] std::vector<std::uint32_t> suffix_array(std::span<const std::int32_t> text, const SortProgress& progress);

}  // namespace slipstream::draft
