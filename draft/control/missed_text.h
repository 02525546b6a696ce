// What tables missed of a text while nobody asked them, and hear when they are asked again: its tokens, without the
// logits that went with them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/loop/guesser.h"

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
        text_.clear();
        const bool nothing_missed = length - observation.n_new <= known && (observation.n_new > 0 || length <= known);
        if (nothing_missed) return observation;
        return {.text = observation.text, .n_new = length - known};
    }

    /// A pass that tables do not hear of now, or the beginning of another text.
    void miss(const Observation& observation) {
        const std::span<const TokenId> text = observation.text;
        const auto n_new = static_cast<std::size_t>(observation.n_new);
        if (n_new == text.size()) n_told_ = 0;
        if (text_.size() + n_new == text.size()) {
            text_.insert(text_.end(), text.last(n_new).begin(), text.last(n_new).end());
        } else {
            text_.assign(text.begin(), text.end());
        }
    }

    /// What tables would never hear otherwise, before their text ends; valid until the next call. They know it then.
    [[nodiscard]] std::optional<Observation> rest() {
        if (!behind(text_)) return std::nullopt;
        const std::int64_t known = n_told_;
        n_told_ = std::ssize(text_);
        return Observation{.text = text_, .n_new = n_told_ - known};
    }

    void reset() {
        n_told_ = 0;
        text_.clear();
    }

private:
    std::int64_t n_told_ = 0;    // tokens that tables have heard of
    std::vector<TokenId> text_;  // as of the last pass they missed since
};

}  // namespace slipstream::draft
