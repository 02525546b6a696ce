#include "kernels/base/dtype.h"

#include <array>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

// Name, elements and bytes of the quantisation block of each type, in the order of DType. The bytes are the sum of the
// fields of ggml's struct for the block.
constexpr std::array<DTypeInfo, kDTypeCount> kInfo{{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q8_0", 32, 2 + 32},
    {"Q4_0", 32, 2 + 16},
    {"Q4_1", 32, 2 + 2 + 16},
    {"Q5_0", 32, 2 + 4 + 16},
    {"Q5_1", 32, 2 + 2 + 4 + 16},
    {"Q3_K", 256, 32 + 64 + 12 + 2},
    {"Q4_K", 256, 2 + 2 + 12 + 128},
    {"Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    {"Q6_K", 256, 128 + 64 + 16 + 2},
    {"IQ4_NL", 32, 2 + 16},
    {"MXFP4", 32, 1 + 16},
    {"IQ4_XS", 256, 2 + 2 + 4 + 128},
    {"Q2_K", 256, 16 + 64 + 2 + 2},
}};

}  // namespace

const DTypeInfo& dtype_info(DType type) {
    const auto index = static_cast<std::size_t>(type);
    CHECK(index < kInfo.size(), "dtype {}", index);
    return kInfo[index];
}

std::size_t row_bytes(DType type, std::int64_t n_elements) {
    const DTypeInfo& info = dtype_info(type);
    CHECK(n_elements >= 0 && n_elements % info.block_elements == 0,
          "{} elements of {}, whose quantisation block has {}", n_elements, info.name, info.block_elements);
    return static_cast<std::size_t>(n_elements / info.block_elements) * info.block_bytes;
}

}  // namespace slipstream
