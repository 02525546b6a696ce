// Memory of a device that a test fills and reads back: between guard bands, NaN where nothing was written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream::testing_cuda {

/// Bytes on the device, a copy of `host`.
inline Buffer upload_bytes(ExecRef exec, std::span<const std::byte> host) {
    Buffer buffer = exec.device.allocate(std::max<std::size_t>(host.size(), 1), MemoryTag::Workspace, "test data");
    exec.stream.copy(buffer.data(), host.data(), host.size());
    exec.stream.synchronize();
    return buffer;
}

inline std::vector<std::byte> download_bytes(ExecRef exec, const std::byte* data, std::size_t bytes) {
    std::vector<std::byte> host(bytes);
    exec.stream.copy(host.data(), data, bytes);
    exec.stream.synchronize();
    return host;
}

/// A float matrix [rows, cols] with `padding` floats behind each row.
class DeviceFloats {
public:
    DeviceFloats(ExecRef exec, std::int64_t rows, std::int64_t cols, std::int64_t padding = 0)
        : exec_(exec),
          rows_(rows),
          cols_(cols),
          stride_(cols + padding),
          buffer_(upload_bytes(exec, std::as_bytes(std::span<const float>(fill())))) {}
    DeviceFloats(ExecRef exec, std::int64_t rows, std::int64_t cols, const std::vector<float>& values,
                 std::int64_t padding = 0)
        : DeviceFloats(exec, rows, cols, padding) {
        std::vector<float> all = fill();
        for (std::int64_t row = 0; row < rows; ++row)
            std::copy_n(values.begin() + row * cols, cols, all.begin() + kGuard + row * stride_);
        exec.stream.copy(buffer_.data(), all.data(), all.size() * sizeof(float));
        exec.stream.synchronize();
    }
    [[nodiscard]] TensorView view() const {
        return {buffer_.data() + kGuard * sizeof(float),
                DType::F32,
                2,
                {rows_, cols_},
                static_cast<std::size_t>(stride_) * sizeof(float)};
    }
    [[nodiscard]] float* data() const { return reinterpret_cast<float*>(view().data); }
    /// [rows, cols]; checks that nothing else was written.
    [[nodiscard]] std::vector<float> read() const {
        std::vector<float> all = fill();
        const std::vector<float> untouched = all;
        exec_.stream.copy(all.data(), buffer_.data(), all.size() * sizeof(float));
        exec_.stream.synchronize();
        std::vector<float> values;
        for (std::int64_t i = 0; i < std::ssize(all); ++i) {
            const std::int64_t inside = i - kGuard;
            if (inside >= 0 && inside < rows_ * stride_ && inside % stride_ < cols_)
                values.push_back(all[i]);
            else if (std::memcmp(&all[i], &untouched[i], 4) != 0)
                ADD_FAILURE() << "written outside, at float " << inside;
        }
        return values;
    }

private:
    static constexpr std::int64_t kGuard = 64;
    [[nodiscard]] std::vector<float> fill() const {
        return std::vector<float>(static_cast<std::size_t>(2 * kGuard + rows_ * stride_),
                                  std::numeric_limits<float>::quiet_NaN());
    }
    ExecRef exec_;
    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t stride_;
    Buffer buffer_;
};

/// The same bits; NaN equals itself.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace slipstream::testing_cuda
