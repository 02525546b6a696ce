// Which experts of a layer have slots (device memory of one expert): those that the text chose most often, by decayed
// counts. Pure: no clocks, no devices. Layers are chosen for one by one, each with slots of its own: one set for all
// layers would lose every expert before its layer comes again, once a token's experts exceed it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

/// Decayed counts of how often the experts of a layer were chosen: each token multiplies all counts by kDecay, then
/// adds 1 to those of the experts that it chose.
class ExpertCounts {
public:
    static constexpr float kDecay = 0.98F;

    explicit ExpertCounts(std::int64_t n_experts) : counts_(static_cast<std::size_t>(n_experts)) {}
    /// Goes on from `counts`.
    explicit ExpertCounts(std::span<const float> counts) : counts_(counts.begin(), counts.end()) {}

    /// `chosen`: the experts that a token chose.
    void add(std::span<const std::uint16_t> chosen);
    /// [n_experts]
    [[nodiscard]] std::span<const float> counts() const { return counts_; }

private:
    std::vector<float> counts_;
};

inline constexpr std::int32_t kNoVictim = -1;

/// An expert that gets a slot, and the one whose slot it takes; kNoVictim: the slot is free.
struct SlotTake {
    std::int32_t expert = 0;
    std::int32_t victim = kNoVictim;
    friend bool operator==(const SlotTake&, const SlotTake&) = default;
};

/// What a pass needs in a layer, and what has slots there.
struct SlotNeed {
    std::span<const float> counts;          // [n_experts], with what the pass's own tokens chose
    std::span<const std::uint8_t> held;     // [n_experts]: 1 if the expert has a slot
    std::span<const std::uint16_t> needed;  // experts that the pass needs, each once
    std::int64_t n_free = 0;                // slots that no expert has
    std::int64_t most_replaced = 1;         // most experts that lose their slot
};

/// An expert takes the slot of another once its count is so much higher. Less would copy experts to and fro whose
/// counts are alike.
inline constexpr float kSlotMargin = 0.25F;

/// Writes to `takes` which of the needed experts without a slot get one, those of the highest counts first (ties: lower
/// id): a free slot, or that of the expert with the lowest count (ties: lower id) that the pass does not need, if this
/// count is at least kSlotMargin lower.
void choose_slots(const SlotNeed& need, std::vector<SlotTake>& takes);

}  // namespace slipstream
