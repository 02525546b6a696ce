// A stable merge sort that stays within its array whatever the comparison answers: NaN compares with nothing, and the
// standard library's sorts may run out of bounds on such an order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace slipstream::jinja {

/// `before(a, b)` may throw; the items are then in some order, none twice or lost.
template <typename T, typename Before>
void merge_sort(std::vector<T>& items, Before before) {
    std::vector<T> other(items.size());
    for (std::size_t width = 1; width < items.size(); width *= 2) {
        for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
            const std::size_t middle = std::min(begin + width, items.size());
            const std::size_t end = std::min(begin + 2 * width, items.size());
            std::size_t left = begin;
            std::size_t right = middle;
            for (std::size_t to = begin; to < end; ++to) {
                // Equal items keep their order: the right one goes first only where it is really before the left.
                const bool take_right = right < end && (left == middle || before(items[right], items[left]));
                other[to] = items[take_right ? right++ : left++];
            }
        }
        items.swap(other);
    }
}

}  // namespace slipstream::jinja
