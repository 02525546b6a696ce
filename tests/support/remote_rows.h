// Logits rows that stay in device memory, as after a pass on a GPU; their best tokens are found by the CPU's ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu_device.h"
#include "runtime/pass/device_logits.h"

namespace slipstream {

class RemoteRows {
public:
    explicit RemoteRows(std::int64_t n, std::int64_t vocab, std::vector<float> logits)
        : vocab_(vocab),
          logits_(std::move(logits)),
          heads_(DeviceLogits::top_bytes(n)),
          remote_(device_, n, vocab),
          n_(n) {}

    LogitRows with_top(const LogitRequest& needs, std::span<const std::int64_t> positions) {
        remote_.enqueue_top({device_, *stream_}, matrix_view(std::as_const(logits_).data(), n_, vocab_), needs,
                            positions, heads_.data());
        return {remote_, n_, vocab_};
    }
    std::span<const float> row(std::int64_t i) const {
        return std::span(logits_).subspan(static_cast<std::size_t>(i * vocab_), static_cast<std::size_t>(vocab_));
    }
    std::int64_t n_fetched() const { return remote_.figures().fetched; }
    const LogitFigures& figures() const { return remote_.figures(); }

private:
    CpuDevice device_{{.n_threads = 1}};
    std::unique_ptr<Stream> stream_ = device_.make_stream(StreamKind::Compute);
    std::int64_t vocab_;
    std::vector<float> logits_;
    std::vector<std::byte> heads_;
    DeviceLogits remote_;
    std::int64_t n_;
};

}  // namespace slipstream
