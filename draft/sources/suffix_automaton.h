// The suffix automaton of a running text (Blumer et al. 1985), as SAM decoding uses it (Hu et al. 2024): each state
// stands for the substrings that end at the same places, its suffix link for the longest shorter suffix that ends at
// more places. Appending a token takes amortised O(1) steps; so does following the text's longest match.
//
// Each state remembers what followed one of its occurrences, by rule the most recent that is followed by a token: with
// every token appended, the states along the suffix links of the text's end take it up. That walk is cut after
// kMaxSuffixes links, reached only by texts that repeat themselves over and over; beyond it an older one stays.
//
// Memory is bounded: when the text reaches max_tokens, its older half is dropped and the automaton built again from the
// newer one (amortised, that doubles the work a token; the token that triggers it waits for all of it).
//
// Invariant: every state but the root and the last has a follower. So a match that is neither has something to say, and
// the text's own end is never taken for an occurrence.
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
    /// Most suffix links followed at once; a longer chain of them is cut short (see above and extend()).
    static constexpr int kMaxSuffixes = 64;

    /// A substring of the text that a token follows somewhere: the last `length` tokens of its state's longest one.
    struct Match {
        std::uint32_t state = 0;
        std::uint32_t length = 0;  // 0: nothing matches
    };

    /// `max_tokens`: 2 to 2^30 (CHECKed).
    explicit SuffixAutomaton(std::size_t max_tokens);

    /// Appends a token, dropping the older half of the text first where it is full.
    void append(TokenId token);
    /// As after construction; memory is kept.
    void clear();

    /// What is held of the text, its end included.
    [[nodiscard]] std::span<const TokenId> text() const { return text_; }
    /// Tokens in front of text() that were dropped.
    [[nodiscard]] std::size_t n_dropped() const { return n_dropped_; }

    /// The longest suffix of the text that also stands earlier.
    [[nodiscard]] Match longest() const;
    /// The longest suffix of `match` + `token` that the text holds and goes on behind. After kMaxSuffixes suffixes in
    /// vain only the token alone is looked for.
    [[nodiscard]] Match extend(Match match, TokenId token) const;
    /// The longest shorter suffix of the match that ends at further places.
    [[nodiscard]] Match shorter(Match match) const;
    /// What followed the match most recently. `match.length` > 0.
    [[nodiscard]] TokenId follower(Match match) const;

    [[nodiscard]] std::size_t n_states() const { return states_.size(); }
    /// 4 bytes a token; 24 a state, at most two states a token; 16 a transition but the first of a state, and
    /// 16 to 32 of its index. Measured on 128K
    /// tokens of recorded answers: 1.38 states a token, 84 bytes a token in all, room to grow included.
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    static constexpr TokenId kNone = -1;
    using Slot = SlotIndex::Slot;
    static constexpr Slot kNoSlot = SlotIndex::kNone;

    struct State {
        std::uint32_t length = 0;  // of the longest substring of the state
        std::uint32_t link = 0;    // the root links to itself
        TokenId follower = kNone;  // what came behind an occurrence
        TokenId token = kNone;     // first transition, inline
        std::uint32_t target = 0;
        Slot more = kNoSlot;  // newest of the others
    };
    struct Transition {
        std::uint32_t state;
        TokenId token;
        std::uint32_t target;
        Slot next;  // another one of this state, kNoSlot behind the last
    };
    static constexpr std::uint32_t kRoot = 0;

    void extend_automaton(TokenId token);
    std::uint32_t split(std::uint32_t parent, TokenId token, std::uint32_t state);
    [[nodiscard]] std::uint32_t target(std::uint32_t state, TokenId token) const;  // kRoot: there is none
    [[nodiscard]] Slot find_more(std::uint32_t state, TokenId token) const;
    void add_transition(std::uint32_t state, TokenId token, std::uint32_t target);
    void redirect(std::uint32_t state, TokenId token, std::uint32_t target);
    [[nodiscard]] Match followed(Match match) const;
    void start();

    std::size_t max_tokens_;
    std::size_t n_dropped_ = 0;
    std::vector<TokenId> text_;
    std::vector<State> states_;
    std::vector<Transition> more_;
    SlotIndex more_index_;        // by state and token
    std::uint32_t last_ = kRoot;  // the state of the whole text
};

}  // namespace slipstream::draft
