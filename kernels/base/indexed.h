// A vector indexed by the signed numbers that this code counts in (positions, nodes, layers, chunks), so that no index
// has to be converted where it stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace slipstream {

/// A std::vector in all but the type of an index, which is in [0, size()).
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

}  // namespace slipstream
