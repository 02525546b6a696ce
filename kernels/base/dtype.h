// Element types of weights, KV rows and activations. The elements of a quantised type are stored in quantisation blocks
// of a fixed number of elements and bytes. Sizes in bytes are computed with the helpers here, nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slipstream {

/// The element type of a tensor. Quantisation blocks have the layouts of ggml (ggml/src/ggml-common.h);
/// kernels/cpu/matmul/dequantize.cpp decodes each of them.
enum class DType : std::uint8_t {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    MXFP4,
    IQ4_XS,
    Q2_K
};

inline constexpr int kDTypeCount = 16;

struct DTypeInfo {
    std::string_view name;        // as GGUF tools print it: "F32", "Q4_K"
    std::int64_t block_elements;  // elements of one quantisation block, along the last dimension; 1 for plain floats
    std::size_t block_bytes;      // size of one quantisation block with its scales; of one element for plain floats
};

[[nodiscard]] const DTypeInfo& dtype_info(DType type);
[[nodiscard]] inline std::string_view dtype_name(DType type) {
    return dtype_info(type).name;
}
[[nodiscard]] inline bool is_quantized(DType type) {
    return dtype_info(type).block_elements > 1;
}

/// Returns the bytes of a row of `n_elements`, which must be a multiple of block_elements (CHECKed).
[[nodiscard]] std::size_t row_bytes(DType type, std::int64_t n_elements);

}  // namespace slipstream
