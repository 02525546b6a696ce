// Containers with signed indices: a vector, and a function for spans and arrays. This code counts positions, nodes,
// layers and KV chunks in signed integers; with these, callers need no cast at each index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace slipstream {

/// A std::vector whose operator[] takes a signed index. The index must be in [0, size()); it is not checked.
template <class T>
class Indexed : public std::vector<T> {
public:
    using std::vector<T>::vector;
    Indexed() = default;
    Indexed(std::vector<T> values) : std::vector<T>(std::move(values)) {}

    [[nodiscard]] decltype(auto) operator[](std::int64_t i) {
        return std::vector<T>::operator[](static_cast<std::size_t>(i));
    }
    [[nodiscard]] decltype(auto) operator[](std::int64_t i) const {
        return std::vector<T>::operator[](static_cast<std::size_t>(i));
    }
};

/// Returns values[i] of a span or an array. `i` is a signed integer or an enumerator in [0, size); it is not checked.
template <class Values, class Index>
[[nodiscard]] constexpr decltype(auto) nth(Values&& values, Index i) {
    static_assert(!std::is_same_v<Index, char>, "a char is not an index");
    return values[static_cast<std::size_t>(i)];
}

}  // namespace slipstream
