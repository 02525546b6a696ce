// Rows of logits whose columns several ranks make, put together on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/pass/forward.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

class RankLogits {
public:
    /// Up to `max_rows`, of all columns that the models of `ranks` make, in that order.
    RankLogits(std::span<Forward* const> ranks, std::int64_t max_rows);

    [[nodiscard]] std::int64_t vocab() const { return vocab_; }
    /// [ranks]: for whoever runs a pass, whole rows of each.
    [[nodiscard]] std::span<LogitRows> parts() { return parts_; }
    /// The first `n_rows`, once all parts are in host memory; valid until the next call.
    [[nodiscard]] LogitRows gather(std::int64_t n_rows);

private:
    std::vector<LogitRows> parts_;       // [ranks]
    std::vector<std::int64_t> columns_;  // [ranks]
    std::int64_t vocab_ = 0;
    std::unique_ptr<float[]> rows_;  // [max_rows, vocab]
};

}  // namespace slipstream
