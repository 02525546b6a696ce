// Tokens a second where what guesses is not measured but assumed (`plan --assume`): chains of guesses of which each is
// accepted with one probability, drafting a part of which is hidden behind the pass.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/engine/engine.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

struct Assumptions {
    double acceptance = 0.0;                // of a guess, given that its parent was accepted
    double hidden = 0.0;                    // part of the drafting that takes no time of its own
    std::optional<double> draft_seconds{};  // of one guess; nothing: the target itself, over a view of its KV
    std::int64_t view_tokens = 4096;        // that the view keeps

    /// What the view takes of the devices; nothing where something else guesses.
    [[nodiscard]] std::optional<ViewNeeds> view(std::int64_t max_nodes) const;
};
/// `--assume`: "acceptance=.95,hidden=0,draft=0.003,view=4096"; nothing where it is not given. Throws UsageError.
[[nodiscard]] std::optional<Assumptions> assumed_setting(const Settings& settings);

/// The length of chain with which most tokens come a second, and how that follows.
struct AssumedRate {
    Assumptions assumed;
    double draft_seconds = 0.0;    // of one guess
    std::int64_t n_guesses = 0;    // of a chain
    double tokens_per_pass = 1.0;  // (1 - a^(n + 1)) / (1 - a)
    double pass_seconds = 0.0;     // of n + 1 tokens
    double seconds = 0.0;          // with the drafting that is not hidden: pass + (1 - hidden) n draft

    [[nodiscard]] double seconds_per_token() const { return seconds / tokens_per_pass; }
};
/// Of chains of fewer than `most_nodes` guesses: none to 16, then in steps of an eighth. `pass_seconds` by tokens of
/// the pass.
[[nodiscard]] AssumedRate best_chain(const Assumptions& assumed, double draft_seconds, std::int64_t most_nodes,
                                     const std::function<double(std::int64_t)>& pass_seconds);

}  // namespace slipstream::tools
