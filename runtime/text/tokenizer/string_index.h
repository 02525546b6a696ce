// From strings to ids: an open-addressing hash table that keeps hashes and ids, while the strings stay with their
// owner. Built in one go for a known number of strings; a look-up costs one hash and, nearly always, one comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/text/token_id.h"

namespace slipstream {

/// A 64-bit hash of short strings.
[[nodiscard]] std::uint64_t hash_of(std::string_view text);

class StringIndex {
public:
    StringIndex() = default;
    explicit StringIndex(std::size_t n_strings);

    /// The id of `text`, or -1. `spelling(id)` gives the string of an id.
    template <typename Spelling>
    [[nodiscard]] TokenId find(std::string_view text, const Spelling& spelling) const {
        if (slots_.empty()) return -1;
        const std::uint64_t hash = hash_of(text);
        for (std::size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_)
            if (slots_[at].tag == tag_of(hash) && spelling(slots_[at].id) == text) return slots_[at].id;
        return -1;
    }
    /// Adds a string, unless an equal one is there: its id is returned then, else -1. Not more strings than announced.
    template <typename Spelling>
    TokenId insert(std::string_view text, TokenId id, const Spelling& spelling) {
        const std::uint64_t hash = hash_of(text);
        std::size_t at = hash & mask_;
        for (; slots_[at].id >= 0; at = (at + 1) & mask_)
            if (slots_[at].tag == tag_of(hash) && spelling(slots_[at].id) == text) return slots_[at].id;
        slots_[at] = {tag_of(hash), id};
        return -1;
    }

private:
    struct Slot {
        std::uint32_t tag = 0;
        TokenId id = -1;
    };
    static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

    std::vector<Slot> slots_;  // a power of two, at most half full
    std::size_t mask_ = 0;
};

}  // namespace slipstream
