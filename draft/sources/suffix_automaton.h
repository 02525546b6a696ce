// The suffix automaton of a growing text (Blumer et al. 1985), as SAM decoding uses it (Hu et al. 2024). Each state is
// a set of substrings that end at the same places; its suffix link leads to the state of their longest suffix that ends
// at more places. Appending a token takes amortised O(1) steps, and so does following the longest match of a text.
//
// Each state keeps the token that followed one of its occurrences, usually the most recent one: with every appended
// token, the states along the suffix links of the text's end are updated. That walk stops after kMaxSuffixes links,
// which only highly repetitive texts reach; states beyond it keep an older follower.
//
// Memory is bounded: when the text reaches max_tokens, its older half is dropped, and the automaton is built again from
// the newer half. Amortised, this doubles the work per token; the token that triggers it waits for all of it.
//
// Invariant: every state has a follower, except the root and the last state. So any other match can propose a token,
// and the text's own end is never taken for an earlier occurrence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/slot_index.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

class SuffixAutomaton {
public:
    /// Most suffix links followed in one walk, which bounds the work for repetitive texts. Longer chains are cut:
    /// states beyond keep an older follower, and extend() then looks for its token alone.
    static constexpr int kMaxSuffixes = 64;

    /// A substring of the text that is followed by a token somewhere: the last `length` tokens of the longest substring
    /// of `state`.
    struct Match {
        std::uint32_t state = 0;
        std::uint32_t length = 0;  // 0: no match
    };

    /// `max_tokens` must be 2 to 2^30 (CHECKed).
    explicit SuffixAutomaton(std::size_t max_tokens);

    /// Appends a token (>= 0). If the text has max_tokens tokens, drops its older half first. Invalidates matches.
    void append(TokenId token);
    /// Forgets the text, as after construction; keeps the memory.
    void clear();

    /// Returns the part of the text that is held: all tokens after the first n_dropped().
    [[nodiscard]] std::span<const TokenId> text() const { return text_; }
    /// Returns the number of tokens before text() that were dropped.
    [[nodiscard]] std::size_t n_dropped() const { return n_dropped_; }

    /// Returns the longest suffix of the text that also occurs earlier.
    [[nodiscard]] Match longest() const;
    /// Returns the longest suffix of `match` + `token` that occurs in the text with a token after it; an empty match if
    /// there is none. Tries at most kMaxSuffixes suffixes of `match`, then `token` alone.
    [[nodiscard]] Match extend(Match match, TokenId token) const;
    /// Returns the longest suffix of `match` that ends at more places than it.
    [[nodiscard]] Match shorter(Match match) const;
    /// Returns the token that followed `match`, usually its most recent occurrence. match.length must be above 0
    /// (DCHECKed).
    [[nodiscard]] TokenId follower(Match match) const;

    [[nodiscard]] std::size_t n_states() const { return states_.size(); }
    /// Returns the bytes of memory: 4 per token; 24 per state, at most two states per token; 16 per transition but the
    /// first of a state, and 16 to 32 for its index entry. Measured on 128K tokens of recorded answers: 1.38 states and
    /// 84 bytes per token in all, including room to grow.
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    static constexpr TokenId kNone = -1;
    using Slot = SlotIndex::Slot;
    static constexpr Slot kNoSlot = SlotIndex::kNone;

    struct State {
        std::uint32_t length = 0;  // length of the state's longest substring, in tokens
        std::uint32_t link = 0;    // suffix link; the root links to itself
        TokenId follower = kNone;  // token that followed an occurrence
        TokenId token = kNone;     // token of the first transition, which is kept inline; kNone: none
        std::uint32_t target = 0;  // state that the first transition leads to
        Slot more = kNoSlot;       // slot in more_ of the newest other transition; kNoSlot: none
    };
    struct Transition {
        std::uint32_t state;
        TokenId token;
        std::uint32_t target;
        Slot next;  // next transition of the state; kNoSlot: none
    };
    static constexpr std::uint32_t kRoot = 0;

    void extend_automaton(TokenId token);
    // Copies `state` for its substrings of at most length(parent) + 1 tokens; returns the copy.
    std::uint32_t split(std::uint32_t parent, TokenId token, std::uint32_t state);
    [[nodiscard]] std::uint32_t target(std::uint32_t state, TokenId token) const;  // kRoot: none
    // Returns the slot of a transition other than the first, or kNoSlot.
    [[nodiscard]] Slot find_more(std::uint32_t state, TokenId token) const;
    void add_transition(std::uint32_t state, TokenId token, std::uint32_t target);
    void redirect(std::uint32_t state, TokenId token, std::uint32_t target);
    // Returns `match`, or its longest shorter suffix that a token follows.
    [[nodiscard]] Match followed(Match match) const;
    // Resets the automaton to its root.
    void start();

    std::size_t max_tokens_;
    std::size_t n_dropped_ = 0;
    std::vector<TokenId> text_;
    std::vector<State> states_;
    std::vector<Transition> more_;
    SlotIndex more_index_;        // finds a transition of more_ by state and token
    std::uint32_t last_ = kRoot;  // the state of the whole text
};

}  // namespace slipstream::draft
