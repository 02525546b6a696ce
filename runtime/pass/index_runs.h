// Runs of consecutive numbers in a list of rows, each of which one copy can move.
#pragma once

#include <cstdint>
#include <span>

namespace slipstream {

/// Calls `call`(begin, n) for each longest run: `row_of`(rows[begin + i]) is row_of(rows[begin]) + i for 0 <= i < n.
template <typename Row, typename RowOf, typename Call>
void for_each_run(std::span<const Row> rows, const RowOf& row_of, const Call& call) {
    for (std::int64_t begin = 0, end = 0; begin < std::ssize(rows); begin = end) {
        for (end = begin + 1; end < std::ssize(rows) && row_of(rows[end]) == row_of(rows[begin]) + end - begin;) ++end;
        call(begin, end - begin);
    }
}

}  // namespace slipstream
