// The error of a grouped product whose activations are not finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

/// Thrown by grouped_matmul() on CPU devices if a row of x of a product has an infinity or NaN. Products before that
/// one may have been computed; nothing else has changed.
class NonFiniteRow : public FormatError {
public:
    NonFiniteRow(std::size_t product, std::int64_t row)
        : FormatError(fmt::format("row {} of product {} has numbers that are not finite", row, product)),
          product_(product),
          row_(row) {}
    /// The first such product, and its first such row.
    [[nodiscard]] std::size_t product() const { return product_; }
    [[nodiscard]] std::int64_t row() const { return row_; }

private:
    std::size_t product_;
    std::int64_t row_;
};

}  // namespace slipstream
