// Layout of a view page in the memory of a CPU device. Codes lie in words of 32 bits, each of which holds eight of
// them, the first in the lowest bits:
//
// clang-format off
//   K codes:  [head_dim][8] words   word i of a dimension: slots i, 8 + i, 16 + i, ..., 56 + i
//   V codes:  [8][head_dim] words   word e of row g: dimension e of slots 8 g, 8 g + 1, ..., 8 g + 7; if head_dim is
//                                   odd, 32 unused bytes follow
//   K scales [head_dim], K minimums [head_dim], V scales [64], V minimums [64]: F16
// clang-format on
//
// So a vector of words, shifted by a multiple of four bits, gives codes of consecutive slots of one dimension of K, and
// of consecutive dimensions of one slot of V. Words, and nothing more, are aligned. Slots that a page does not have are
// 0 in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/float16.h"
#include "kernels/view_pages.h"

namespace slipstream::cpu {

inline constexpr std::int64_t kWordCodes = 8;                        // codes of a word
inline constexpr std::int64_t kSlotWords = kPageSlots / kWordCodes;  // words of a dimension of K; rows of words of V

/// The parts of a page; `Byte` is std::byte or const std::byte.
template <typename Byte>
struct PageParts {
    template <typename T>
    using Of = std::conditional_t<std::is_const_v<Byte>, const T, T>;

    Of<std::uint32_t>* k_codes;
    Of<std::uint32_t>* v_codes;
    Of<Half>* k_scales;
    Of<Half>* k_minimums;
    Of<Half>* v_scales;
    Of<Half>* v_minimums;

    PageParts(Byte* page, std::int64_t head_dim) {
        const std::int64_t k_bytes = head_dim * kPageSlots / 2;
        k_codes = reinterpret_cast<Of<std::uint32_t>*>(page);
        v_codes = reinterpret_cast<Of<std::uint32_t>*>(page + k_bytes);
        k_scales = reinterpret_cast<Of<Half>*>(page + k_bytes + kPageSlots * ((head_dim + 1) / 2));
        k_minimums = k_scales + head_dim;
        v_scales = k_minimums + head_dim;
        v_minimums = v_scales + kPageSlots;
    }
};

}  // namespace slipstream::cpu
