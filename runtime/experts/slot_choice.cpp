#include "runtime/experts/slot_choice.h"

#include <algorithm>

namespace slipstream {

namespace {

/// Returns the expert with a slot of the lowest count that is neither needed nor a victim already; kNoVictim if there
/// is none.
std::int32_t lowest_held(const SlotNeed& need, std::span<const SlotTake> takes) {
    std::int32_t lowest = kNoVictim;
    for (std::int32_t expert = 0; expert < std::ssize(need.counts); ++expert) {
        if (need.held[expert] == 0) continue;
        if (lowest != kNoVictim && need.counts[expert] >= need.counts[lowest]) continue;
        if (std::ranges::find(need.needed, expert) != need.needed.end()) continue;
        if (std::ranges::find(takes, expert, &SlotTake::victim) != takes.end()) continue;
        lowest = expert;
    }
    return lowest;
}

}  // namespace

void ExpertCounts::add(std::span<const std::uint16_t> chosen) {
    for (float& count : counts_) count *= kDecay;
    for (const std::uint16_t expert : chosen) counts_[expert] += 1.0F;
}

void choose_slots(const SlotNeed& need, std::vector<SlotTake>& takes) {
    takes.clear();
    for (const std::uint16_t expert : need.needed)
        if (need.held[expert] == 0) takes.push_back({expert});
    std::ranges::sort(takes, [&](const SlotTake& a, const SlotTake& b) {
        if (need.counts[a.expert] != need.counts[b.expert]) return need.counts[a.expert] > need.counts[b.expert];
        return a.expert < b.expert;
    });
    const auto n_free = static_cast<std::size_t>(std::max<std::int64_t>(need.n_free, 0));
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(need.most_replaced, 0));
    std::size_t n = std::min(takes.size(), n_free);
    for (; n < takes.size() && n < n_free + most; ++n) {
        const std::int32_t victim = lowest_held(need, std::span(takes).first(n));
        if (victim == kNoVictim || need.counts[takes[n].expert] < need.counts[victim] + kSlotMargin) break;
        takes[n].victim = victim;
    }
    takes.resize(n);
}

}  // namespace slipstream
