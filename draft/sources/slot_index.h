// A hash index of numbered slots: open addressing, linear probing, entries of 8 bytes. The owner keeps the keys in its
// slots, and supplies hash and comparison. The index keeps 32 bits of each hash, so that it can grow and close gaps
// without the keys. Erasing moves later entries back (Knuth, vol. 3, 6.4, algorithm R), so there are no tombstones to
// clean up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/check.h"

namespace slipstream::draft {

class SlotIndex {
public:
    using Slot = std::uint32_t;
    static constexpr Slot kNone = ~Slot{0};

    /// Returns the slot with this hash for which equal(slot) is true, or kNone.
    template <typename Equal>
    [[nodiscard]] Slot find(std::uint32_t hash, const Equal& equal) const {
        if (entries_.empty()) return kNone;
        for (std::size_t at = hash & mask(); entries_[at].slot != kNone; at = next(at))
            if (entries_[at].hash == hash && equal(entries_[at].slot)) return entries_[at].slot;
        return kNone;
    }

    /// Adds a slot, which must not be in the index. At most half of the places are ever used.
    void insert(std::uint32_t hash, Slot slot) {
        DCHECK(slot != kNone);
        if (2 * (n_ + 1) > entries_.size()) grow();
        place({hash, slot});
        ++n_;
    }

    /// Removes a slot, which must be in the index under this hash.
    void erase(std::uint32_t hash, Slot slot) {
        std::size_t gap = hash & mask();
        while (entries_[gap].slot != slot) {
            DCHECK(entries_[gap].slot != kNone);
            gap = next(gap);
        }
        for (std::size_t at = next(gap); entries_[at].slot != kNone; at = next(at)) {
            // An entry may move to the gap unless its home is past the gap, on the way to the entry.
            const std::size_t home = entries_[at].hash & mask();
            if (((at - home) & mask()) < ((at - gap) & mask())) continue;
            entries_[gap] = entries_[at];
            gap = at;
        }
        entries_[gap].slot = kNone;
        --n_;
    }

    /// Removes all slots; keeps the memory.
    void clear() {
        for (Entry& entry : entries_) entry.slot = kNone;
        n_ = 0;
    }

    [[nodiscard]] std::size_t size() const { return n_; }
    [[nodiscard]] std::size_t memory_bytes() const { return entries_.capacity() * sizeof(Entry); }

private:
    struct Entry {
        std::uint32_t hash = 0;
        Slot slot = kNone;
    };
    static constexpr std::size_t kFirstPlaces = 64;

    [[nodiscard]] std::size_t mask() const { return entries_.size() - 1; }
    [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
    void place(Entry entry) {
        std::size_t at = entry.hash & mask();
        while (entries_[at].slot != kNone) at = next(at);
        entries_[at] = entry;
    }
    void grow() {
        std::vector<Entry> old(entries_.empty() ? kFirstPlaces : 2 * entries_.size());
        old.swap(entries_);
        for (const Entry& entry : old)
            if (entry.slot != kNone) place(entry);
    }

    std::vector<Entry> entries_;  // size is a power of two
    std::size_t n_ = 0;
};

}  // namespace slipstream::draft
