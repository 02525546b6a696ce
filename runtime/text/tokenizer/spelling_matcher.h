// Finds pieces that are matched by their spelling before any merging: special tokens, user-defined pieces. The longest
// match at a place wins, places are tried from left to right.
//
// The spellings lie sorted. At a place, the run of those that begin like the text is narrowed byte by byte, by binary
// search; a spelling that is complete stands first in its run. So building takes O(n log n) comparisons, and a place
// O(log n) for each byte in which the text and any spelling agree, however many spellings there are.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/token_id.h"

namespace slipstream {

class SpellingMatcher {
public:
    struct Entry {
        std::string spelling;
        TokenId id;
    };
    struct Match {
        std::size_t begin;
        std::size_t length;
        TokenId id;
    };

    /// Empty spellings are ignored; of equal spellings the first wins.
    explicit SpellingMatcher(std::vector<Entry> entries);

    [[nodiscard]] bool empty() const { return entries_.empty(); }
    /// The longest match at the beginning of `text`.
    [[nodiscard]] std::optional<Match> match_at_begin(std::string_view text) const;
    /// The first match at or after `from`.
    [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

private:
    [[nodiscard]] const Entry* longest(std::string_view text) const;

    std::vector<Entry> entries_;                 // sorted by spelling, each once
    std::array<std::size_t, 257> first_byte_{};  // entries that begin with byte b: [first_byte_[b], first_byte_[b + 1])
};

}  // namespace slipstream
