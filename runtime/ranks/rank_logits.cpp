#include "runtime/ranks/rank_logits.h"

#include <algorithm>
#include <cstddef>

#include "kernels/base/check.h"

namespace slipstream {

RankLogits::RankLogits(std::span<const Rank> ranks, std::int64_t max_rows) : parts_(ranks.size()) {
    for (const Rank& rank : ranks) {
        CHECK(rank.first_vocab == vocab_, "rows of the LM head from {}, {} before", rank.first_vocab, vocab_);
        columns_.push_back(rank.forward->model().config().vocab);
        vocab_ += columns_.back();
    }
    if (ranks.size() > 1) rows_ = std::make_unique_for_overwrite<float[]>(max_rows * vocab_);
}

LogitRows RankLogits::gather(std::int64_t n_rows) {
    if (n_rows == 0) return {};
    if (parts_.size() == 1) return parts_.front();
    const TensorView rows = matrix_view(rows_.get(), n_rows, vocab_);
    std::int64_t column = 0;
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
        const ConstTensorView part = parts_[rank].view();
        for (std::int64_t row = 0; row < n_rows; ++row)
            std::copy_n(float_row(part, row), columns_[rank], float_row(rows, row) + column);
        column += columns_[rank];
    }
    return {ConstTensorView(rows)};
}

}  // namespace slipstream
