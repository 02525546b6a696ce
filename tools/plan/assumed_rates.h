// Tokens per second for a drafter that is assumed, not measured (`plan --assume`). Model: draft chains in which each
// draft token is accepted with the same probability, given that its parent was; a fraction of the drafting time
// overlaps with the pass.
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
    double acceptance = 0.0;  // acceptance probability of a draft token, given that its parent was accepted
    double hidden = 0.0;      // fraction of the drafting time that overlaps with the pass
    std::optional<double> draft_seconds{};  // per draft token; none: the target drafts, over a KV view
    std::int64_t view_tokens = 4096;        // tokens of that KV view
    ViewType view_type = ViewType::Rows;

    /// Returns the options of that KV view.
    [[nodiscard]] ViewOptions view_options() const { return {.type = view_type, .budget_tokens = view_tokens}; }
    /// Returns the needs of that KV view for trees of up to `max_nodes` nodes, or nullopt if
    /// draft_seconds is given.
    [[nodiscard]] std::optional<ViewNeeds> view(std::int64_t max_nodes) const;
};
/// What --assume states.
struct AssumedValues {
    std::optional<Assumptions> drafter{};  // none: no value of a drafter is given
    std::optional<double> hits{};          // hits of slots for experts, 0 to 1; none: not given
};
/// Parses `--assume` ("acceptance=.95,hidden=0,draft=0.003,view=4096,hits=.85"), and --view-type for its view. Throws
/// UsageError if it is malformed, out of range, or has values of a drafter without the acceptance.
[[nodiscard]] AssumedValues assumed_setting(const Settings& settings);

/// The draft chain length with the highest predicted tokens per second, and the terms of that prediction.
struct AssumedRate {
    Assumptions assumed;
    double draft_seconds = 0.0;    // per draft token
    std::int64_t n_guesses = 0;    // draft tokens of a chain
    double tokens_per_pass = 1.0;  // (1 - a^(n + 1)) / (1 - a), where a is the acceptance and n is n_guesses
    double pass_seconds = 0.0;     // time of a pass of n + 1 tokens
    double seconds = 0.0;  // pass and drafting that does not overlap: pass_seconds + (1 - hidden) n draft_seconds

    [[nodiscard]] double seconds_per_token() const { return seconds / tokens_per_pass; }
};
/// Returns the best of the chain lengths below `most_nodes`: 0 to 16, then in steps of one eighth. `pass_seconds`
/// returns the time of a pass of that many tokens.
[[nodiscard]] AssumedRate best_chain(const Assumptions& assumed, double draft_seconds, std::int64_t most_nodes,
                                     const std::function<double(std::int64_t)>& pass_seconds);

}  // namespace slipstream::tools
