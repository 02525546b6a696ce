#include "kernels/cpu/matmul/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/float16.h"

namespace slipstream::cpu {

namespace {

// Floats of a Q8_0 block, fixed by the format.
constexpr std::size_t kBlock = 32;
// The largest finite binary16: a scale is limited to it, since a larger one would become infinite.
constexpr float kLargestHalf = 65504.0F;

}  // namespace

void quantize_row_q8_0(std::span<const float> values, std::byte* dst) {
    CHECK(values.size() % kBlock == 0, "{} values", values.size());
    for (std::size_t begin = 0; begin < values.size(); begin += kBlock, dst += sizeof(Half) + kBlock) {
        const std::span<const float> block = values.subspan(begin, kBlock);
        float greatest = 0.0F;
        for (const float value : block)
            greatest = std::max(greatest, std::abs(value));  // a comparison with NaN is false, so NaN
                                                             // is never the maximum
        const Half scale = to_half(std::min(greatest / 127.0F, kLargestHalf));
        std::memcpy(dst, &scale, sizeof(Half));
        const float kept = to_float(scale);
        for (std::size_t i = 0; i < kBlock; ++i) {
            const float code = kept > 0.0F ? std::round(block[i] / kept) : 0.0F;
            const float clamped = code > 127.0F ? 127.0F : code < -127.0F ? -127.0F : code == code ? code : 0.0F;
            dst[sizeof(Half) + i] = static_cast<std::byte>(static_cast<std::int8_t>(clamped));
        }
    }
}

}  // namespace slipstream::cpu
