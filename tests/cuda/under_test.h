// The CUDA device that a test of ops runs on: a card where the binary was made for one, else the emulated machine. The
// tests know no difference; only how large their cases are follows it.
#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda/host/cuda_device.h"

namespace slipstream::testing_cuda {

struct ModuleUnderTest {
    const cuda::Module* module = nullptr;
    std::string why_not{};            // where there is none
    bool is_card = false;             // cases may be large
    std::shared_ptr<void> machine{};  // kept as long as the module is used
};
/// Defined by the binary: emulated_under_test.cpp or card_under_test.cpp.
[[nodiscard]] ModuleUnderTest module_under_test();

/// A device with its compute stream; skips the test where there is no card.
class CudaOps : public testing::Test {
protected:
    void SetUp() override {
        under_ = module_under_test();
        if (under_.module == nullptr) GTEST_SKIP() << under_.why_not;
        device_ = std::make_unique<CudaDevice>(
            *under_.module, CudaDeviceOptions{.memory_bytes = {}, .n_threads = 2, .allocation_bytes = 1});
        stream_ = device_->make_stream(StreamKind::Compute);
    }
    void TearDown() override {
        if (stream_) stream_->synchronize();
        stream_.reset();
        device_.reset();
        under_ = {};
    }
    [[nodiscard]] bool is_card() const { return under_.is_card; }
    [[nodiscard]] CudaDevice& device() { return *device_; }
    [[nodiscard]] ExecRef exec() { return {*device_, *stream_}; }

private:
    ModuleUnderTest under_;
    std::unique_ptr<CudaDevice> device_;
    std::unique_ptr<Stream> stream_;
};

}  // namespace slipstream::testing_cuda
