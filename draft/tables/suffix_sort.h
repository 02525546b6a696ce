// The suffix array of a text of integers, by prefix doubling (Manber, Myers 1990) in the form of Larsson and Sadakane
// (1999). Suffixes are sorted by their first token. Then each group of suffixes whose first h tokens are equal is
// sorted by the ranks of the suffixes h further on, and h doubles. A group of one suffix is done. There are O(log n)
// rounds of sorting, few in natural text, where suffixes differ after about ten tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace slipstream::draft {

/// Called about every 2^20 sorted suffixes with the suffixes that are done and all suffixes. May throw to cancel.
using SortProgress = std::function<void(double done, double all)>;

/// Returns the starts of all suffixes of `text` [n] in ascending order; the end of the text is smaller than any token.
/// Tokens must be >= 0, and n < 2^32 - 1 (CHECKed). `progress` may be empty. Needs memory beside `text` and the result:
/// 4 bytes per token for the ranks, 8 to 16 for the keys of the largest group.
[[nodiscard]] std::vector<std::uint32_t> suffix_array(std::span<const std::int32_t> text, const SortProgress& progress);

}  // namespace slipstream::draft
