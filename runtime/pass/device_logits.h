// Logits on a device whose memory the host does not share. The device computes the top logits of the rows
// (kernels/sampling.h), which take one copy per pass. Whole rows are copied one by one, when they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

/// Traffic of logits on the link since the DeviceLogits was created.
struct LogitFigures {
    std::int64_t passes = 0;   // passes with logits
    std::int64_t rows = 0;     // rows that these passes computed
    std::int64_t fetched = 0;  // rows that were copied whole
    std::uint64_t bytes = 0;   // bytes copied, of top logits and whole rows
};

class DeviceLogits final : public RemoteLogits {
public:
    /// Allocates page-locked host memory for `max_rows` rows and their top logits; takes no device memory.
    DeviceLogits(Device& device, std::int64_t max_rows, std::int64_t vocab);
    /// Returns the bytes of device memory that enqueue_top() needs for `max_rows` rows.
    [[nodiscard]] static std::size_t top_bytes(std::int64_t max_rows);

    /// Enqueues on exec.stream the computation of the top logits that `needs` asks for, and their copy to the host.
    /// `logits` [n, vocab], n at most max_rows (CHECKed), is device memory that earlier work of this stream fills. It
    /// must stay unchanged, and the stream must live, until the next call: row() copies from it. `positions` [n] are
    /// those of the tokens that follow each row. `top` is device memory of top_bytes(n), free again when the stream has
    /// passed this point. The results of earlier calls become invalid; the new ones are valid from when the stream has
    /// passed this point until the next call.
    void enqueue_top(ExecRef exec, const ConstTensorView& logits, const LogitRequest& needs,
                     std::span<const std::int64_t> positions, std::byte* top);
    /// Enqueues the copy of all rows to the host, and computes no top logits. Returns the rows [n, vocab] in host
    /// memory, valid from when the stream has passed this point until the next call.
    [[nodiscard]] ConstTensorView enqueue_rows(ExecRef exec, const ConstTensorView& logits);

    [[nodiscard]] TopLogits top(std::int64_t row) const override;
    [[nodiscard]] std::span<const float> row(std::int64_t row) override;
    [[nodiscard]] const LogitFigures& figures() const { return figures_; }

private:
    // Offsets of the parts of the top logits of n rows, in bytes. The parts are consecutive, so that one copy takes
    // them.
    struct HeadPlaces {
        std::size_t ids, values, sums, drawn, scores, end;  // in the order of the offsets; `ids` is 0
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
    std::vector<bool> here_;  // [n]: whether host_rows_ holds the row
    // State of the last pass; stream_ is the stream that computed its logits, null before the first pass.
    Stream* stream_ = nullptr;
    ConstTensorView logits_;
    LogitRequest needs_;
    HeadPlaces places_{};
    std::vector<std::int64_t> positions_;
    LogitFigures figures_;
};

}  // namespace slipstream
