#include "runtime/formats/gguf_types.h"

#include <algorithm>
#include <array>

namespace slipstream {

namespace {

// Makes a type without a DType. Sizes are those of the gguf Python package 0.19 (GGML_QUANT_SIZES), that of Q2_0, which
// is newer, of ggml's struct.
constexpr GgmlType other(std::uint32_t id, std::string_view name, std::int64_t elements, std::size_t bytes) {
    return {id, name, elements, bytes, std::nullopt};
}

struct Served {
    std::uint32_t id;
    DType dtype;
};

constexpr std::array kServed{
    Served{0, DType::F32},   Served{1, DType::F16},     Served{2, DType::Q4_0},    Served{3, DType::Q4_1},
    Served{6, DType::Q5_0},  Served{7, DType::Q5_1},    Served{8, DType::Q8_0},    Served{11, DType::Q3_K},
    Served{12, DType::Q4_K}, Served{13, DType::Q5_K},   Served{14, DType::Q6_K},   Served{30, DType::BF16},
    Served{10, DType::Q2_K}, Served{20, DType::IQ4_NL}, Served{23, DType::IQ4_XS}, Served{39, DType::MXFP4},
};
static_assert(kServed.size() == kDTypeCount);

constexpr std::array kOthers{
    other(9, "Q8_1", 32, 40),     other(15, "Q8_K", 256, 292),   other(16, "IQ2_XXS", 256, 66),
    other(17, "IQ2_XS", 256, 74), other(18, "IQ3_XXS", 256, 98), other(19, "IQ1_S", 256, 50),
    other(21, "IQ3_S", 256, 110), other(22, "IQ2_S", 256, 82),   other(24, "I8", 1, 1),
    other(25, "I16", 1, 2),       other(26, "I32", 1, 4),        other(27, "I64", 1, 8),
    other(28, "F64", 1, 8),       other(29, "IQ1_M", 256, 56),   other(34, "TQ1_0", 256, 54),
    other(35, "TQ2_0", 256, 66),  other(40, "NVFP4", 64, 36),    other(41, "Q1_0", 128, 18),
    other(42, "Q2_0", 64, 18),
};

std::array<GgmlType, kServed.size() + kOthers.size()> make_table() {
    std::array<GgmlType, kServed.size() + kOthers.size()> table{};
    std::size_t at = 0;
    for (const Served& served : kServed) {
        const DTypeInfo& info = dtype_info(served.dtype);
        table[at++] = {served.id, info.name, info.block_elements, info.block_bytes, served.dtype};
    }
    std::copy(kOthers.begin(), kOthers.end(), table.begin() + static_cast<std::ptrdiff_t>(at));
    return table;
}

}  // namespace

const GgmlType* find_ggml_type(std::uint32_t id) {
    static const auto table = make_table();
    const auto* found = std::find_if(table.begin(), table.end(), [&](const GgmlType& type) { return type.id == id; });
    return found == table.end() ? nullptr : found;
}

std::string served_type_names() {
    std::string names;
    for (int i = 0; i < kDTypeCount; ++i) {
        if (i > 0) names += ", ";
        names += dtype_name(static_cast<DType>(i));
    }
    return names;
}

std::string_view served_file_kinds() {
    return "BF16, F16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, Q4_1, Q4_0, MXFP4_MOE, IQ4_NL, IQ4_XS, "
           "Q3_K_L, Q3_K_M, Q3_K_S or Q2_K";
}

}  // namespace slipstream
