// Damages files for tests: ranges of a file, grouped into classes of bytes, are flipped, cut, zeroed, doubled or
// removed at random places. The full matrix has each class with each kind of damage several times; a test takes every
// n-th file of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream {

enum class DamageKind : std::uint8_t { Flipped, Cut, Zeroed, Doubled, Removed };
inline constexpr std::string_view kDamageNames[] = {"flipped", "cut", "zeroed", "doubled", "removed"};

struct ByteRange {
    std::size_t begin = 0;
    std::size_t n_bytes = 0;
};
/// Ranges of a file whose bytes have the same meaning, such as "head of tokens".
struct ByteClass {
    std::string name;
    std::vector<ByteRange> places;
};

struct DamagedFile {
    std::string name;  // such as "head of tokens, zeroed, 7"
    DamageKind kind = DamageKind::Flipped;
    ByteRange where{};  // changed bytes of the undamaged file; Cut: all from begin on; Doubled: the doubled bytes
    std::vector<std::byte> bytes;
};

/// Returns `bytes` with one damage at a random place within `place`: one bit flipped, the file cut there, or up to
/// `most_bytes` bytes zeroed, doubled or removed.
inline DamagedFile damage(std::span<const std::byte> bytes, ByteRange place, DamageKind kind, std::mt19937& random,
                          std::size_t most_bytes) {
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    DamagedFile made{.kind = kind, .bytes = {bytes.begin(), bytes.end()}};
    // A `place` of at most most_bytes is damaged as a whole half of the time.
    std::size_t n =
        place.n_bytes <= most_bytes && below(2) == 0 ? place.n_bytes : 1 + below(std::min(place.n_bytes, most_bytes));
    const std::size_t at = place.begin + (place.n_bytes > n ? below(place.n_bytes - n + 1) : 0);
    const auto here = made.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (kind) {
        case DamageKind::Flipped:
            n = 1;
            *here ^= std::byte{1} << below(8);
            break;
        case DamageKind::Cut:
            n = bytes.size() - at;
            made.bytes.resize(at);
            break;
        case DamageKind::Zeroed:
            std::fill_n(here, n, std::byte{});
            break;
        case DamageKind::Doubled:
            made.bytes.insert(here, here, here + static_cast<std::ptrdiff_t>(n));
            break;
        case DamageKind::Removed:
            made.bytes.erase(here, here + static_cast<std::ptrdiff_t>(n));
            break;
    }
    made.where = {at, n};
    return made;
}

/// Calls `check` with every `stride`-th damaged file of the full matrix, which has `n_each` files for each class of
/// bytes and each kind of damage. Returns the number of calls.
template <typename Check>
std::size_t for_each_damage(std::span<const std::byte> bytes, const std::vector<ByteClass>& classes, std::size_t n_each,
                            std::size_t stride, const Check& check) {
    constexpr std::size_t kMostBytes = 4096;  // one page
    std::size_t n_files = 0;
    std::size_t i = 0;
    for (const ByteClass& one : classes) {
        for (const DamageKind kind :
             {DamageKind::Flipped, DamageKind::Cut, DamageKind::Zeroed, DamageKind::Doubled, DamageKind::Removed}) {
            for (std::size_t n = 0; n < n_each; ++n) {
                if (i++ % stride != 0) continue;
                std::mt19937 random(static_cast<unsigned>(i));
                const ByteRange place = one.places[random() % one.places.size()];
                DamagedFile made = damage(bytes, place, kind, random, kMostBytes);
                made.name = one.name + ", " + std::string(kDamageNames[static_cast<std::size_t>(kind)]) + ", " +
                            std::to_string(n) + ": bytes " + std::to_string(made.where.begin) + " + " +
                            std::to_string(made.where.n_bytes) + " of " + std::to_string(bytes.size());
                check(std::move(made));
                ++n_files;
            }
        }
    }
    return n_files;
}

}  // namespace slipstream
