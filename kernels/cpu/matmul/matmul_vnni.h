// The table of inner kernels of matmul for AVX-512 with VNNI. The kernels of each weight type are compiled in a file of
// their own (vnni/). The float kernels are those of AVX-512.
#pragma once

#if defined(__x86_64__)
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/matmul_few.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu::vnni {

/// Row groups of codes that go over K together (numbers: kernels/NOTES.md).
enum class CodeGroups : std::uint8_t {
    Three,  // for Intel's cores: fewest loads of activations
    Two,    // for AMD's cores: their sums stay in registers
};

/// Most tokens of a tile: kernels exist for 1 to 8.
inline constexpr int kTileTokens = 8;
/// Most tokens of a tile whose sums of two row groups stay in registers, beside their dot products.
inline constexpr int kSumsInRegisters = 6;
constexpr int groups_of(CodeGroups groups) {
    return groups == CodeGroups::Three ? 3 : 2;
}

/// Most tokens of a tile of unpacked codes.
constexpr int code_tile_tokens(CodeGroups groups) {
    return groups == CodeGroups::Two ? kSumsInRegisters : kTileTokens;
}

/// Whether the kernels for unpacked codes of `type` exist. They depend only on the layout of scales and offsets, so
/// types with the same layout share those of one, which names the layout.
constexpr bool names_layout(DType type) {
    return type == DType::Q4_0 || type == DType::Q4_1 || type == DType::Q4_K || type == DType::Q6_K;
}

/// Sets the kernels of `type` in `form`, except those for few tokens (matmul_vnni_kernels.h).
template <DType type, CodeGroups groups>
void set_kernels(InterleavedForm& form);

/// Returns the kernels for few tokens of `type` (matmul_vnni_few.h).
template <DType type>
FewTokenKernels few_token_kernels();

/// Returns the table of kernels for AVX-512 with VNNI: that of AVX-512, with the code kernels of vnni/.
template <CodeGroups groups>
InterleavedForm make_form() {
    InterleavedForm form = interleaved_form_avx512();
    form.code_tile_tokens = code_tile_tokens(groups);
    form.packed_one_tile = kTileTokens;
    form.packed_tile_tokens = form.code_tile_tokens;
    form.code_groups = groups_of(groups);
    if (groups == CodeGroups::Two) {
        form.packed_chunk_elements = 4096;
        form.code_streams.most_tokens_of_one = 3;
        form.code_streams.several = {.l1 = 2 << 10, .l2 = 8 << 10};
    }
    form.multiply_codes = {};
    form.multiply_few = {};
    [&]<std::size_t... i>(std::index_sequence<i...>) {
        (set_kernels<static_cast<DType>(kFloatTypes + i), groups>(form), ...);
        ((form.multiply_few[kFloatTypes + i] = few_token_kernels<static_cast<DType>(kFloatTypes + i)>()), ...);
    }
    (std::make_index_sequence<kDTypeCount - kFloatTypes>());
    const auto share = [&](DType layout, std::initializer_list<DType> types) {
        for (const DType type : types)
            form.multiply_codes[static_cast<std::size_t>(type)] = form.multiply_codes[static_cast<std::size_t>(layout)];
    };
    // Q8_0 and Q2_K are always packed.
    share(DType::Q4_0, {DType::Q5_0, DType::IQ4_NL, DType::MXFP4});
    share(DType::Q4_1, {DType::Q5_1});
    share(DType::Q4_K, {DType::Q5_K, DType::IQ4_XS});  // IQ4_XS: unpacked as a type with minimums, which are 0
    share(DType::Q6_K, {DType::Q3_K});
    return form;
}

}  // namespace slipstream::cpu::vnni
#endif
