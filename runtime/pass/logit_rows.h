// Logits of a pass, one row for each token for which they were requested. If the host shares the device's memory, they
// are a view. If not, rows stay on the device: with the pass, only the top logits of each row cross the link (its best
// tokens, and what else LogitRequest asks for). A whole row crosses it when it is read.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "runtime/model/model_config.h"

namespace slipstream {

/// What is computed for every row of a pass. What is not requested costs nothing. Whole rows need no request.
struct LogitRequest {
    std::int64_t n_best = 0;        // number of best tokens, at most kMostTopLogits (kernels/sampling.h)
    double sum_temperature = 0.0;   // temperature of TopLogits::sum; 0: no sum
    double draw_temperature = 0.0;  // temperature of TopLogits::drawn; 0: no draw
    std::uint64_t seed = 0;         // seed of the draw
    std::int64_t n_ids = 0;         // only ids below it are considered; 0: the whole vocabulary
};

/// Combines what two readers of a pass's logits request. n_ids of both must be 0 (CHECKed). If both request a sum, or
/// both a draw, the result has only that of `first`.
[[nodiscard]] LogitRequest both(const LogitRequest& first, const LogitRequest& second);

/// The best tokens of a row: those with higher logits, of equal logits the lower id; NaN and -inf never count.
struct TopLogits {
    std::span<const TokenId> ids;   // best first
    std::span<const float> logits;  // their logits, unchanged, except that -0 becomes 0
    bool complete = false;          // whether no other token has a logit above -inf
    double sum_temperature = 0.0;   // 0: no sum
    float sum = 0.0F;               // sum of exp((logit - greatest) / sum_temperature) over the row, see kLogitSumError
    double draw_temperature = 0.0;  // 0: no draw
    std::uint64_t seed = 0;
    std::int64_t position = 0;  // absolute position of the drawn token
    TokenId drawn = -1;         // drawn without filters and penalties (drafter-invariant sampling, E2); -1: none
};

/// Rows on a device whose memory the host does not share.
class RemoteLogits {
public:
    virtual ~RemoteLogits() = default;
    /// Returns the top logits of a row, valid as long as the LogitRows. There are no ids if neither best tokens nor a
    /// sum were requested.
    [[nodiscard]] virtual TopLogits top(std::int64_t row) const = 0;
    /// Returns the row, [vocab]. Copies it on the first call and waits for the copy.
    [[nodiscard]] virtual std::span<const float> row(std::int64_t row) = 0;
};

/// A view of the logits of a pass. Owns nothing; valid until the next pass of its Forward
/// begins, with logits or without: the layers use the same memory.
class LogitRows {
public:
    LogitRows() = default;
    /// Makes a view of whole rows [n, vocab], F32, in memory that the host can read.
    LogitRows(const ConstTensorView& rows) : view_(rows), n_(rows.rows()), vocab_(rows.cols()) {}
    /// Makes a view of `n` rows on a device, which are read through `remote`.
    LogitRows(RemoteLogits& remote, std::int64_t n, std::int64_t vocab) : remote_(&remote), n_(n), vocab_(vocab) {}

    [[nodiscard]] bool empty() const { return remote_ == nullptr && view_.empty(); }
    [[nodiscard]] std::int64_t rows() const { return n_; }
    /// Returns the size of the vocabulary.
    [[nodiscard]] std::int64_t cols() const { return vocab_; }
    /// Returns whether whole rows must be copied from the device to be read, so that top logits are cheaper.
    [[nodiscard]] bool on_device() const { return remote_ != nullptr; }
    /// Returns all rows. Requires that on_device() is false (CHECKed).
    [[nodiscard]] const ConstTensorView& view() const {
        CHECK(remote_ == nullptr, "rows that are on a device");
        return view_;
    }
    /// Returns the top logits of a row. Requires on_device() (CHECKed).
    [[nodiscard]] TopLogits top(std::int64_t row) const {
        CHECK(remote_ != nullptr && row >= 0 && row < n_, "top logits of row {} of {}", row, n_);
        return remote_->top(row);
    }
    /// Returns the row, [vocab]. If on_device(), its first call copies the row and waits for the copy.
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
