// Transitions of an automaton whose alphabet is a vocabulary: a hash table keyed by (state, token), in which the
// transitions of one state are also linked to each other, so that a state can be copied.
//
// Open addressing, linear probing, at most two thirds full, 16 bytes a slot. Nothing is ever removed one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::draft {

class TransitionTable {
public:
    struct Transition {
        std::uint32_t state = kFree;
        TokenId token = 0;
        std::uint32_t target = 0;
        TokenId next_token = 0;  // of another transition of this state; what it means at the list's end is the owner's
    };

    TransitionTable();

    /// The transition, or null. Valid until the next insert() or clear().
    [[nodiscard]] const Transition* find(std::uint32_t state, TokenId token) const;
    [[nodiscard]] Transition* find(std::uint32_t state, TokenId token);
    /// Adds a transition that is not there yet. Amortised O(1): the table doubles when it is two thirds full.
    void insert(const Transition& transition);
    /// Removes all. Keeps its memory.
    void clear();

    [[nodiscard]] std::size_t size() const { return n_used_; }
    [[nodiscard]] std::size_t memory_bytes() const { return slots_.capacity() * sizeof(Transition); }

private:
    static constexpr std::uint32_t kFree = ~std::uint32_t{0};

    [[nodiscard]] std::size_t slot_of(std::uint32_t state, TokenId token) const;
    void place(const Transition& transition);

    std::vector<Transition> slots_;  // a power of two
    std::size_t n_used_ = 0;
};

}  // namespace slipstream::draft
