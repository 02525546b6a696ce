// The logits of a pass, a row a token that they were asked of. Where the host shares the device's memory they are a
// view and nothing else. Where it does not, rows stay on the device: what crosses the link with the pass is each row's
// top logits, its best tokens and what else LogitRequest asked for, and a row itself only when somebody asks for it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "runtime/model/model_config.h"

namespace slipstream {

/// What is wanted of every row of a pass whatever becomes of it. What is not asked for costs nothing; whole rows need
/// not be asked for, they can always be had.
struct LogitRequest {
    std::int64_t n_best = 0;        // best tokens, up to kMostTopLogits (kernels/sampling.h)
    double sum_temperature = 0.0;   // of TopLogits::sum; 0: no sum
    double draw_temperature = 0.0;  // of TopLogits::drawn; 0: no draw
    std::uint64_t seed = 0;         // of the draw
    std::int64_t n_ids = 0;         // ids below it count, others are left out; 0: the whole vocabulary
};

/// Of two parties that read the same rows, all ids of them. Where both want a sum, or a draw, the first one's is made.
[[nodiscard]] LogitRequest both(const LogitRequest& first, const LogitRequest& second);

/// A row's best tokens. "Best": higher logit, then lower id; NaN and -inf are left out.
struct TopLogits {
    std::span<const TokenId> ids;   // best first
    std::span<const float> logits;  // of them, as they came, but -0 is 0
    bool complete = false;          // no other token is above -inf
    double sum_temperature = 0.0;   // 0: no sum
    float sum = 0.0F;               // of exp((logit - greatest) / temperature) over the row, within kLogitSumError
    double draw_temperature = 0.0;  // 0: no draw
    std::uint64_t seed = 0;
    std::int64_t position = 0;  // of the token that was drawn
    TokenId drawn = -1;         // E2's draw without filters and penalty; -1: no logit is above -inf
};

/// Rows that lie on a device.
class RemoteLogits {
public:
    virtual ~RemoteLogits() = default;
    /// No ids where LogitRequest asked for none. Views as those of LogitRows.
    [[nodiscard]] virtual TopLogits top(std::int64_t row) const = 0;
    /// [vocab]. Waits for a copy of it unless it came before.
    [[nodiscard]] virtual std::span<const float> row(std::int64_t row) = 0;
};

/// Non-owning, as a view. Valid until the pass after the one that made it.
class LogitRows {
public:
    LogitRows() = default;
    /// Whole rows [n, vocab], F32, that the host reads.
    LogitRows(const ConstTensorView& rows) : view_(rows), n_(rows.rows()), vocab_(rows.cols()) {}
    LogitRows(RemoteLogits& remote, std::int64_t n, std::int64_t vocab) : remote_(&remote), n_(n), vocab_(vocab) {}

    [[nodiscard]] bool empty() const { return remote_ == nullptr && view_.empty(); }
    [[nodiscard]] std::int64_t rows() const { return n_; }
    /// The vocabulary.
    [[nodiscard]] std::int64_t cols() const { return vocab_; }
    /// Whether rows have to be fetched, and top logits spare that.
    [[nodiscard]] bool on_device() const { return remote_ != nullptr; }
    /// All of them, where not on_device().
    [[nodiscard]] const ConstTensorView& view() const {
        CHECK(remote_ == nullptr, "rows that lie on a device");
        return view_;
    }
    /// Where on_device().
    [[nodiscard]] TopLogits top(std::int64_t row) const {
        CHECK(remote_ != nullptr && row >= 0 && row < n_, "top logits of row {} of {}", row, n_);
        return remote_->top(row);
    }
    /// The whole row, [vocab]; from a device on the first call.
    [[nodiscard]] std::span<const float> row(std::int64_t row) const {
        CHECK(row >= 0 && row < n_, "row {} of {}", row, n_);
        if (remote_ != nullptr) return remote_->row(row);
        return {float_row(view_, row), static_cast<std::size_t>(vocab_)};
    }

private:
    ConstTensorView view_;
    RemoteLogits* remote_ = nullptr;
    std::int64_t n_ = 0;
    std::int64_t vocab_ = 0;
};

}  // namespace slipstream
