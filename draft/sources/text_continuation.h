// How an observed text continues the one that a source holds. A source appends what is new wherever it can; only where
// the text was cut or replaced does it start over (source.h: after construction, reset() or a cut any text may come).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "runtime/loop/proposer.h"

namespace slipstream::draft {

class TextContinuation {
public:
    /// The tokens behind `held`, where observation.text still holds it at [n_dropped, n_dropped + held.size()); nothing
    /// where it does not, and the source has to start over. Compares tokens only after a cut, and the first time.
    [[nodiscard]] std::optional<std::span<const TokenId>> added(const Observation& observation,
                                                                std::span<const TokenId> held, std::size_t n_dropped) {
        const std::span<const TokenId> text = observation.text;
        const std::size_t n_known = n_dropped + held.size();
        const bool appends =
            observation.n_new > 0 && text.size() == n_known + static_cast<std::size_t>(observation.n_new);
        const bool trusted = std::exchange(trusted_, observation.n_new > 0) && appends;
        if (text.size() < n_known) return std::nullopt;
        if (!trusted && !std::ranges::equal(held, text.subspan(n_dropped, held.size()))) return std::nullopt;
        return text.subspan(n_known);
    }
    /// The next text may be any.
    void reset() { trusted_ = false; }

private:
    bool trusted_ = false;
};

}  // namespace slipstream::draft
