// What tables missed of a text while nobody asked them, and hear when they are asked again: its tokens, without the
// logits that went with them.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/guesser.h"

namespace slipstream::draft {

class MissedText {
public:
    /// Whether tables do not know all of `text`, of which they know a beginning.
    [[nodiscard]] bool behind(std::span<const TokenId> text) const { return std::ssize(text) > n_told_; }

    /// What tables are to hear of `observation`: itself, or where they missed what came before it, all they do not
    /// know. They know all of its text then.
    [[nodiscard]] Observation told(const Observation& observation) {
        const std::int64_t length = std::ssize(observation.text);
        const std::int64_t known = n_told_;
        n_told_ = length;
        const bool cut_behind_them = observation.n_new == 0 && length > known;
        if (length - observation.n_new <= known && !cut_behind_them) return observation;
        return {.text = observation.text, .n_new = length - known};
    }

    void reset() { n_told_ = 0; }

private:
    std::int64_t n_told_ = 0;  // tokens that tables have heard of
};

}  // namespace slipstream::draft
