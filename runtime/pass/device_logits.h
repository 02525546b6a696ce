// Logits on a device whose memory the host does not share: top logits of rows worked out there by the ops of
// kernels/sampling.h, one copy of them a pass, and rows that are asked for brought over one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

/// What crossed the link as logits since the device_logits were made.
struct LogitFigures {
    std::int64_t passes = 0;   // that asked for logits
    std::int64_t rows = 0;     // that passes made
    std::int64_t fetched = 0;  // of them, that crossed whole
    std::uint64_t bytes = 0;   // top logits and whole rows
};

class DeviceLogits final : public RemoteLogits {
public:
    /// Takes page-locked host memory for all rows and their top logits, nothing of the device's.
    DeviceLogits(Device& device, std::int64_t max_rows, std::int64_t vocab);
    /// Device memory that top logits of so many rows are made in.
    [[nodiscard]] static std::size_t top_bytes(std::int64_t max_rows);

    /// Enqueues on exec's stream, behind what makes `logits` [n, vocab] (device memory, which keeps them until the next
    /// call), the making of top logits and their copy to the host. `positions`: [n], of the tokens that follow each
    /// row. `top`: top_bytes(n) of device memory, free when the stream has passed. What came before is invalid now;
    /// they are there when the stream has passed this point.
    void enqueue_top(ExecRef exec, const ConstTensorView& logits, const LogitRequest& needs,
                     std::span<const std::int64_t> positions, std::byte* top);
    /// The same with all rows whole and no top logits.
    [[nodiscard]] ConstTensorView enqueue_rows(ExecRef exec, const ConstTensorView& logits);

    [[nodiscard]] TopLogits top(std::int64_t row) const override;
    [[nodiscard]] std::span<const float> row(std::int64_t row) override;
    [[nodiscard]] const LogitFigures& figures() const { return figures_; }

private:
    // Where the parts of top logits of n rows lie, one behind the other, so that one copy takes them all.
    struct HeadPlaces {
        std::size_t ids, values, sums, drawn, scores, end;  // bytes
    };
    [[nodiscard]] static HeadPlaces places(std::int64_t n_rows, std::int64_t n_best);
    template <typename T>
    [[nodiscard]] const T* host_part(std::size_t place) const {
        return reinterpret_cast<const T*>(host_top_.data() + place);
    }
    void begin(const ConstTensorView& logits);

    std::int64_t max_rows_;
    std::int64_t vocab_;
    Buffer host_top_;         // [top_bytes(max_rows)]
    Buffer host_rows_;        // [max_rows, vocab]
    std::vector<bool> here_;  // [n]: rows that host_rows_ holds
    // Of the last pass.
    Stream* stream_ = nullptr;
    ConstTensorView logits_;
    LogitRequest needs_;
    HeadPlaces places_{};
    std::vector<std::int64_t> positions_;
    LogitFigures figures_;
};

}  // namespace slipstream
