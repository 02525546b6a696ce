#include "draft/sources/transition_table.h"

#include <algorithm>
#include <utility>

#include "draft/sources/mix_bits.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kFirstSlots = 256;

}  // namespace

TransitionTable::TransitionTable() : slots_(kFirstSlots) {}

std::size_t TransitionTable::slot_of(std::uint32_t state, TokenId token) const {
    const std::uint64_t key = std::uint64_t{state} << 32 | static_cast<std::uint32_t>(token);
    return mix_bits(key) & (slots_.size() - 1);
}

const TransitionTable::Transition* TransitionTable::find(std::uint32_t state, TokenId token) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = slot_of(state, token); slots_[slot].state != kFree; slot = (slot + 1) & mask)
        if (slots_[slot].state == state && slots_[slot].token == token) return &slots_[slot];
    return nullptr;
}

TransitionTable::Transition* TransitionTable::find(std::uint32_t state, TokenId token) {
    return const_cast<Transition*>(std::as_const(*this).find(state, token));
}

void TransitionTable::place(const Transition& transition) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = slot_of(transition.state, transition.token);
    while (slots_[slot].state != kFree) slot = (slot + 1) & mask;
    slots_[slot] = transition;
}

void TransitionTable::insert(const Transition& transition) {
    if (3 * (n_used_ + 1) > 2 * slots_.size()) {
        const auto old = std::exchange(slots_, std::vector<Transition>(2 * slots_.size()));
        for (const Transition& moved : old)
            if (moved.state != kFree) place(moved);
    }
    place(transition);
    ++n_used_;
}

void TransitionTable::clear() {
    std::ranges::fill(slots_, Transition{});
    n_used_ = 0;
}

}  // namespace slipstream::draft
