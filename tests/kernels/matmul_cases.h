// Inputs and shapes that the matmul tests share: seeded weights of every type, activations with outliers, views with
// padding and odd alignment, outputs between guard bands.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/float16.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/cpu_device.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"

namespace slipstream::testing_matmul {

inline constexpr std::uint32_t kSeed = 20240607;

inline constexpr DType kAllTypes[] = {DType::F32,    DType::F16,   DType::BF16,   DType::Q8_0, DType::Q4_0, DType::Q4_1,
                                      DType::Q5_0,   DType::Q5_1,  DType::Q3_K,   DType::Q4_K, DType::Q5_K, DType::Q6_K,
                                      DType::IQ4_NL, DType::MXFP4, DType::IQ4_XS, DType::Q2_K};

/// The types that GPUs have kernels for.
inline const std::vector<DType>& cuda_types() {
    static const std::vector<DType> types = [] {
        std::vector<DType> all(std::begin(kAllTypes), std::end(kAllTypes));
        std::erase_if(all, [](DType type) { return !multiplies(DeviceKind::Cuda, type); });
        return all;
    }();
    return types;
}

/// The forms that this machine runs.
inline std::vector<CpuForm> forms() {
    std::vector<CpuForm> all;
    for (const CpuForm form : kCpuForms)
        if (cpu_has_form(form)) all.push_back(form);
    return all;
}

inline std::vector<CpuForm> vector_forms() {
    std::vector<CpuForm> all = forms();
    std::erase(all, CpuForm::Scalar);
    return all;
}

struct Shape {
    std::int64_t m;
    std::int64_t k;
    std::int64_t n;
};

/// Rows of `k` weights, encoded, each `stride_bytes` behind the last, the first `offset` bytes into `bytes`.
struct Weights {
    DType type;
    std::int64_t m;
    std::int64_t k;
    std::size_t offset;
    std::size_t stride_bytes;
    std::vector<std::byte> bytes;

    [[nodiscard]] ConstTensorView view() const { return {bytes.data() + offset, type, 2, {m, k}, stride_bytes}; }
    [[nodiscard]] std::vector<float> decoded_row(std::int64_t row) const {
        std::vector<float> out(static_cast<std::size_t>(k));
        cpu::dequantize_row(type, view().row(row), out.data(), k);
        return out;
    }
};

/// Byte offsets of the binary16 fields of a quantised block.
inline std::vector<std::size_t> half_fields(DType type) {
    switch (type) {
        case DType::F32:
        case DType::F16:
        case DType::BF16:
        case DType::MXFP4:
            return {};
        case DType::Q8_0:
        case DType::Q4_0:
        case DType::Q5_0:
        case DType::IQ4_NL:
        case DType::IQ4_XS:
            return {0};
        case DType::Q2_K:
            return {80, 82};
        case DType::Q3_K:
            return {108};
        case DType::Q6_K:
            return {208};
        default:
            return {0, 2};
    }
}

/// Plain types: normal numbers, every 37th an outlier of 50 times. Quantised: any codes, scales from 2^-10 to 2^4.
inline Weights random_weights(DType type, std::int64_t m, std::int64_t k, std::size_t offset = 0,
                              std::size_t padding = 0) {
    std::mt19937 random(kSeed + static_cast<std::uint32_t>(type));
    std::normal_distribution<float> normal;
    const std::size_t packed = row_bytes(type, k);
    Weights weights{type, m, k, offset, packed + padding, {}};
    weights.bytes.resize(offset + static_cast<std::size_t>(m) * weights.stride_bytes);
    for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(random());
    for (std::int64_t row = 0; row < m; ++row) {
        std::byte* at = weights.bytes.data() + offset + static_cast<std::size_t>(row) * weights.stride_bytes;
        if (is_quantized(type)) {
            for (std::size_t block = 0; block < packed; block += dtype_info(type).block_bytes) {
                for (const std::size_t field : half_fields(type)) {
                    const Half half = to_half(std::ldexp(normal(random), static_cast<int>(random() % 15) - 10));
                    std::memcpy(at + block + field, &half, sizeof(half));
                }
                if (type == DType::MXFP4) at[block] = static_cast<std::byte>(128 - 10 + random() % 15);
            }
            continue;
        }
        for (std::int64_t i = 0; i < k; ++i) {
            const float value = normal(random) * (random() % 37 == 0 ? 50.0F : 1.0F);
            if (type == DType::F32) std::memcpy(at + 4 * i, &value, 4);
            if (const Half half = to_half(value); type == DType::F16) std::memcpy(at + 2 * i, &half, 2);
            if (const BFloat16 bf = to_bfloat16(value); type == DType::BF16) std::memcpy(at + 2 * i, &bf, 2);
        }
    }
    return weights;
}

/// A float matrix [rows, cols] with `padding` floats behind each row and kGuard floats around all, NaN at first.
class GuardedMatrix {
public:
    GuardedMatrix(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0)
        : rows_(rows), cols_(cols), stride_(cols + padding) {
        data_.assign(static_cast<std::size_t>(2 * kGuard + rows * stride_), kFill());
    }
    [[nodiscard]] TensorView view() {
        return {reinterpret_cast<std::byte*>(data_.data() + kGuard),
                DType::F32,
                2,
                {rows_, cols_},
                static_cast<std::size_t>(stride_) * sizeof(float)};
    }
    [[nodiscard]] float& at(std::int64_t row, std::int64_t col) { return data_[kGuard + row * stride_ + col]; }
    /// Fills with normal numbers, every 53rd an outlier of 100 times.
    void randomise(std::uint32_t seed) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (std::int64_t row = 0; row < rows_; ++row)
            for (std::int64_t col = 0; col < cols_; ++col)
                at(row, col) = normal(random) * (random() % 53 == 0 ? 100.0F : 1.0F);
    }
    void expect_guards_intact() {
        const float fill = kFill();
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(data_.size()); ++i) {
            const std::int64_t inside = i - kGuard;
            const bool element = inside >= 0 && inside < rows_ * stride_ && inside % stride_ < cols_;
            if (element) continue;
            ASSERT_EQ(std::memcmp(&data_[i], &fill, sizeof(fill)), 0) << "written outside, at float " << inside;
        }
    }

private:
    static constexpr std::int64_t kGuard = 64;
    static float kFill() { return std::numeric_limits<float>::quiet_NaN(); }
    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t stride_;
    std::vector<float> data_;
};

/// A CPU device of one form with its compute stream.
class Runner {
public:
    explicit Runner(CpuForm form, int n_threads = 1)
        : device_({.n_threads = n_threads, .form = form}), stream_(device_.make_stream(StreamKind::Compute)) {}
    void operator()(const MatmulArgs& args) { matmul({device_, *stream_}, args); }
    /// The weights packed; the view lives until the next call.
    ConstTensorView pack(const ConstTensorView& weights) {
        const std::int64_t m = weights.shape[0];
        const std::int64_t k = weights.shape[1];
        const std::size_t bytes = packed_bytes(weights.dtype, m, k);
        packed_ = device_.allocate(bytes, MemoryTag::Weights, "packed weights");
        std::memset(packed_.data(), 0xff, bytes);
        const TensorView view = packed_view(packed_.data(), weights.dtype, m, k);
        pack_weights({device_, *stream_}, {.weights = weights, .packed = view});
        return view;
    }
    ConstTensorView in_layout(Layout layout, const ConstTensorView& weights) {
        return layout == Layout::RowMajor ? weights : pack(weights);
    }

private:
    CpuDevice device_;
    std::unique_ptr<Stream> stream_;
    Buffer packed_;
};

inline constexpr Layout kLayouts[] = {Layout::RowMajor, Layout::Interleaved16};

/// Instance of a parameterised test: a form and a type, named "avx2_Q4_K".
using FormAndType = std::tuple<CpuForm, DType>;
inline std::string case_name(const testing::TestParamInfo<FormAndType>& param) {
    return fmt::format("{}_{}", cpu_form_name(std::get<0>(param.param)), dtype_name(std::get<1>(param.param)));
}

}  // namespace slipstream::testing_matmul
