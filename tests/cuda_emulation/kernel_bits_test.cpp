// The bits of emulated kernels, as hashes that were written down: whoever rewrites a kernel shows here that no output
// has changed. Inputs are seeded and made without library distributions of floats where that is possible; a hash may be
// written anew only by a change that means to give other bits, and says so.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>

#include "kernels/cuda/elementwise_launch.h"
#include "tests/cuda_emulation/matmul_cases.h"

namespace slipstream::cuda {
namespace {

using testing_matmul::cuda_types;
using testing_matmul::kSeed;
using testing_matmul::random_weights;

/// FNV-1a, 64 bits, over the bits of floats.
class BitHash {
public:
    void add(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        for (int i = 0; i < 4; ++i) hash_ = (hash_ ^ (bits >> (8 * i) & 0xffU)) * 0x100000001b3ULL;
    }
    [[nodiscard]] std::uint64_t value() const { return hash_; }

private:
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

std::int64_t matmul_k(DType type) {
    return is_quantized(type) ? (dtype_info(type).block_elements == 256 ? 2560 : 1056) : 1085;
}

/// Of passes of 1, 5, 17 and 66 tokens in both forms, rows of one short group among them.
std::uint64_t matmul_hash(DType type) {
    const std::int64_t m = 37;
    const std::int64_t k = matmul_k(type);
    const Weights weights = random_weights(type, m, k);
    GuardedBytes packed = packed_fragments(weights);
    GuardedMatrix x(66, k);
    x.randomise(kSeed);
    BitHash hash;
    for (const std::int64_t n : {1, 5, 17, 66})
        for (const MatmulForm form : {MatmulForm::Split, MatmulForm::Tiles}) {
            GuardedMatrix y(n, m);
            MatmulRun{type, m, k, packed.data()}(x, 66 - n, n, y, {.form = form});
            for (std::int64_t t = 0; t < n; ++t)
                for (std::int64_t r = 0; r < m; ++r) hash.add(y.at(t, r));
        }
    return hash.value();
}

std::uint64_t norm_hash() {
    const std::int64_t n = 5;
    const std::int64_t d = 1028;
    GuardedMatrix x(n, d);
    x.randomise(kSeed);
    GuardedMatrix weight(1, d);
    weight.randomise(2);
    GuardedMatrix y(n, d);
    launch_rms_norm({.n_rows = n,
                     .d = d,
                     .x = &x.at(0, 0),
                     .x_stride = &x.at(1, 0) - &x.at(0, 0),
                     .weight = &weight.at(0, 0),
                     .y = &y.at(0, 0),
                     .y_stride = &y.at(1, 0) - &y.at(0, 0),
                     .eps = 1e-5F},
                    nullptr);
    BitHash hash;
    for (std::int64_t t = 0; t < n; ++t)
        for (std::int64_t i = 0; i < d; ++i) hash.add(y.at(t, i));
    return hash.value();
}

TEST(KernelBits, AreThoseThatWereWrittenDown) {
    const std::map<std::string, std::uint64_t> written{
        {"matmul BF16", 0xc38035c8d8e84d75},   {"matmul F16", 0xedb3e02700714025},
        {"matmul F32", 0x2985a2df700211b5},    {"matmul Q3_K", 0x534fa1a571206e71},
        {"matmul Q4_0", 0xf7abfa7904f9751d},   {"matmul Q4_1", 0x93d8490a131cfe59},
        {"matmul Q4_K", 0xd28eceff85dd2f1d},   {"matmul Q5_0", 0xde8cf3f0bdc53f79},
        {"matmul Q5_1", 0xe2e5dc74f44c59e5},   {"matmul Q5_K", 0x54840cadf4073109},
        {"matmul Q6_K", 0xdd810d78caa38c39},   {"matmul Q8_0", 0x69fa73b849e17131},
        {"matmul IQ4_NL", 0x5559b929d9df47d1}, {"matmul MXFP4", 0x23bc4da3f8ea9ff9},
        {"rms_norm", 0x1e93473dd4b4e05e},
    };
    std::map<std::string, std::uint64_t> now{{"rms_norm", norm_hash()}};
    for (const DType type : cuda_types()) now[fmt::format("matmul {}", dtype_name(type))] = matmul_hash(type);
    for (const auto& [what, hash] : now) {
        const auto known = written.find(what);
        EXPECT_TRUE(known != written.end() && known->second == hash)
            << fmt::format("{{\"{}\", 0x{:016x}}},", what, hash);
    }
}

}  // namespace
}  // namespace slipstream::cuda
