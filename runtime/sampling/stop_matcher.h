// Stop strings over streamed text: a stop may begin in one token and end in another, so text that could still become a
// stop is held back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

class StopMatcher {
public:
    /// Empty stop strings are ignored.
    explicit StopMatcher(std::vector<std::string> stops);

    /// Feeds text; returns what may be shown now. After a match the text before the earliest stop is returned, matched() is
    /// true and everything else is dropped. The view is valid until the next call.
    [[nodiscard]] std::string_view push(std::string_view text);
    /// Text still held back when generation ends for another reason.
    [[nodiscard]] std::string_view finish();
    [[nodiscard]] bool matched() const { return matched_; }

private:
    std::vector<std::string> stops_;
    std::string held_;
    std::string out_;
    bool matched_ = false;
};

}  // namespace slipstream
