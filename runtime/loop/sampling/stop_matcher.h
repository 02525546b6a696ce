// Stop strings over streamed text: a stop may begin in one token and end in another, so text that could still become a
// stop is held back. The stop that is complete first wins, the longest of those that end at the same byte; how the text
// is cut into prefill chunks changes nothing.
//
// An automaton over all stops (Aho and Corasick 1975, "Efficient string matching"): its state is the longest end of the
// text that begins a stop, so that is what is held, and each byte costs amortised O(1) whatever the stops are.
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

    /// Feeds text; returns what may be shown now. After a match the text before the stop is returned, matched() is
    /// true and everything else is dropped. The view is valid until the next call.
    [[nodiscard]] std::string_view push(std::string_view text);
    /// Text still held back when generation ends for another reason.
    [[nodiscard]] std::string_view finish();
    [[nodiscard]] bool matched() const { return matched_; }

private:
    /// One beginning of a stop, spelt by the way from the root (node 0).
    struct Node {
        std::vector<std::pair<unsigned char, std::uint32_t>> children;
        std::uint32_t fallback = 0;    // the longest proper end of this that begins a stop
        std::size_t depth = 0;         // bytes
        std::size_t match_length = 0;  // of the longest stop that ends here, 0: none
    };
    [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const;  // 0: none
    [[nodiscard]] std::uint32_t advance(std::uint32_t node, unsigned char byte) const;
    void add(std::string_view stop);
    void link();

    std::vector<Node> nodes_;
    std::uint32_t state_ = 0;
    std::string held_;  // the text that state_ stands for
    std::string out_;
    bool matched_ = false;
};

}  // namespace slipstream
