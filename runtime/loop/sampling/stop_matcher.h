// Stop strings in streamed text: a stop may begin in one token and end in another, so text that could still become a
// stop is held back. The stop that is complete first wins, the longest of those that end at the same byte. How the text
// is divided among calls of push() does not matter.
//
// An automaton over all stops (Aho and Corasick 1975, "Efficient string matching"). Its state is the longest suffix of
// the text that is a prefix of a stop, so that suffix is what is held back. Each byte costs amortised O(1), whatever
// the stops are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream {

class StopMatcher {
public:
    /// Empty stop strings are ignored.
    explicit StopMatcher(const std::vector<std::string>& stops);

    /// Adds text; returns what may be shown now. After a match, returns the text before the stop and sets matched();
    /// the stop and all later text are dropped. The view is valid until the next call.
    [[nodiscard]] std::string_view push(std::string_view text);
    /// Returns the text still held back when generation ends for another reason; empty after a match. The view is valid
    /// until the next call.
    [[nodiscard]] std::string_view finish();
    [[nodiscard]] bool matched() const { return matched_; }
    /// Returns the stop that matched; empty before a match.
    [[nodiscard]] const std::string& matched_stop() const { return matched_stop_; }

private:
    /// A prefix of a stop, spelt by the path from the root (node 0).
    struct Node {
        std::vector<std::pair<unsigned char, std::uint32_t>> children;
        std::uint32_t fallback = 0;    // node of the longest proper suffix that is a prefix of a stop
        std::size_t depth = 0;         // bytes
        std::size_t match_length = 0;  // bytes of the longest stop that ends here; 0: none
    };
    // Returns the child of `node` for `byte`; 0: there is none.
    [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const;
    [[nodiscard]] std::uint32_t advance(std::uint32_t node, unsigned char byte) const;
    void add(std::string_view stop);
    void link();

    std::vector<Node> nodes_;
    std::uint32_t state_ = 0;
    std::string held_;  // the text of state_
    std::string out_;
    std::string matched_stop_;
    bool matched_ = false;
};

}  // namespace slipstream
