// Finds how an observed text continues the one that a source holds. A source appends the new tokens if it can, and
// starts over only if the text was cut or replaced (table_source.h: after construction, reset() or a cut any text may
// come).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "runtime/loop/proposer.h"

namespace slipstream::draft {

/// Follows the observations of one source, and needs every one of them.
class TextContinuation {
public:
    /// Returns the tokens after `held` if observation.text still contains `held` at [n_dropped, n_dropped +
    /// held.size()). Otherwise returns nothing, and the source must start over. Compares tokens only after a cut or a
    /// replaced text, and the first time.
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
    /// Allows any text as the next one: its tokens will be compared.
    void reset() { trusted_ = false; }

private:
    bool trusted_ = false;  // the last text was appended to, so an appended one needs no comparison
};

}  // namespace slipstream::draft
