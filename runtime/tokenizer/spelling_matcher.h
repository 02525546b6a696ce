// Finds pieces that are matched by their spelling before any merging: special tokens, user-defined pieces. The longest
// match at a place wins, places are tried from left to right.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model_config.h"

namespace slipstream {

class SpellingMatcher {
public:
    struct Match {
        std::size_t begin;
        std::size_t length;
        TokenId id;
    };

    /// Empty spellings are ignored; of equal spellings the first added wins.
    void add(std::string spelling, TokenId id);
    [[nodiscard]] bool empty() const { return empty_; }
    /// The first match at or after `from`.
    [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const;

private:
    struct Entry {
        std::string spelling;
        TokenId id;
    };
    std::array<std::vector<Entry>, 256> by_first_byte_;  // each longest first
    bool empty_ = true;
};

}  // namespace slipstream
