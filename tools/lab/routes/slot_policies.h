// Replays policies that decide which experts of a layer have slots, over the routes of a text, token by token. Pure.
// The policy that looks at decayed counts is the runtime's (runtime/experts/slot_choice.h); the others are to compare
// with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "tools/lab/routes/route_trace.h"

namespace slipstream::tools {

enum class SlotPolicy : std::uint8_t {
    /// Each expert that was chosen without a slot takes a free one, or that of the expert whose last use is longest ago
    /// (ties: lower id); none that the token needs.
    Lru,
    /// choose_slots() with the counts after the token.
    Counts,
    /// The experts that the first half of the text chose most often (ties: lower id), for ever.
    Fixed,
    /// Knows the future: holds, of what it held and the token chose, the experts whose next use is nearest (Belady,
    /// "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966), those that are
    /// never used again left out. It begins the second half with the experts that this half uses first. No policy that
    /// takes only what a token chose has more hits there.
    Best,
};
inline constexpr std::array<std::pair<std::string_view, SlotPolicy>, 4> kSlotPolicies{{{"lru", SlotPolicy::Lru},
                                                                                       {"counts", SlotPolicy::Counts},
                                                                                       {"fixed", SlotPolicy::Fixed},
                                                                                       {"best", SlotPolicy::Best}}};

/// Sums over the tokens of the second half; the first half only fills the slots. They are 0 for a single token.
struct SlotFigures {
    std::int64_t n_tokens = 0;
    std::int64_t chosen = 0;  // experts that the tokens chose
    std::int64_t hits = 0;    // of those: had a slot before the token
    std::int64_t copied = 0;  // experts that got a slot

    [[nodiscard]] double hit_share() const;
    [[nodiscard]] double copied_a_token() const;
};

/// Replays `policy` over a layer of `n_tokens` tokens with `n_slots` (at least 1) slots.
[[nodiscard]] SlotFigures replay_slots(SlotPolicy policy, const RoutedLayer& layer, std::int64_t n_tokens,
                                       std::int64_t n_slots);

/// Returns the slots that are this share of a layer's experts, rounded; at least 1.
[[nodiscard]] std::int64_t slots_of(double share, std::int64_t n_experts);

}  // namespace slipstream::tools
