#include "draft/sources/suffix_automaton.h"

#include "draft/sources/mix_bits.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

std::uint32_t hash_of(std::uint32_t state, TokenId token) {
    return static_cast<std::uint32_t>(mix_bits(std::uint64_t{state} << 32 | static_cast<std::uint32_t>(token)));
}

}  // namespace

SuffixAutomaton::SuffixAutomaton(std::size_t max_tokens) : max_tokens_(max_tokens) {
    CHECK(max_tokens >= 2 && max_tokens <= std::size_t{1} << 30, "{} tokens", max_tokens);
    start();
}

void SuffixAutomaton::start() {
    states_.assign(1, State{});
    more_.clear();
    more_index_.clear();
    last_ = kRoot;
}

void SuffixAutomaton::clear() {
    text_.clear();
    n_dropped_ = 0;
    start();
}

void SuffixAutomaton::append(TokenId token) {
    DCHECK(token >= 0, "token {}", token);
    if (text_.size() == max_tokens_) {
        const std::size_t n_old = max_tokens_ - max_tokens_ / 2;
        const std::vector<TokenId> kept(text_.begin() + static_cast<std::ptrdiff_t>(n_old), text_.end());
        n_dropped_ += n_old;
        text_.clear();
        start();
        for (const TokenId old : kept) extend_automaton(old);
    }
    extend_automaton(token);
}

void SuffixAutomaton::extend_automaton(TokenId token) {
    const auto position = static_cast<std::uint32_t>(text_.size());
    // The suffixes that end at the old end of the text are followed by `token` from now on.
    std::uint32_t state = last_;
    for (int i = 0; i < kMaxSuffixes && state != kRoot; ++i, state = states_[state].link)
        states_[state].follower = token;

    text_.push_back(token);
    const auto added = static_cast<std::uint32_t>(states_.size());
    states_.push_back({.length = position + 1, .link = kRoot});
    // Every suffix of the old text that `token` has never followed now leads to the new state.
    std::uint32_t parent = last_;
    std::uint32_t present = target(parent, token);
    while (present == kRoot) {
        add_transition(parent, token, added);
        if (parent == kRoot) break;
        parent = states_[parent].link;
        present = target(parent, token);
    }
    last_ = added;
    if (present == kRoot) return;
    // The longest suffix that `token` has followed before: the new state links to its target. If the target also holds
    // longer substrings, which do not end here, it is split first.
    if (states_[present].length != states_[parent].length + 1) present = split(parent, token, present);
    states_[added].link = present;
}

std::uint32_t SuffixAutomaton::split(std::uint32_t parent, TokenId token, std::uint32_t state) {
    const auto copy = static_cast<std::uint32_t>(states_.size());
    State split_off = states_[state];
    split_off.length = states_[parent].length + 1;
    split_off.more = kNoSlot;
    states_.push_back(split_off);
    for (Slot slot = states_[state].more; slot != kNoSlot; slot = more_[slot].next)
        add_transition(copy, more_[slot].token, more_[slot].target);
    states_[state].link = copy;
    for (;; parent = states_[parent].link) {
        if (target(parent, token) != state) break;
        redirect(parent, token, copy);
        if (parent == kRoot) break;
    }
    return copy;
}

std::uint32_t SuffixAutomaton::target(std::uint32_t state, TokenId token) const {
    const State& from = states_[state];
    if (from.token == token) return from.target;
    if (from.more == kNoSlot) return kRoot;
    const Slot slot = find_more(state, token);
    return slot != kNoSlot ? more_[slot].target : kRoot;
}

SuffixAutomaton::Slot SuffixAutomaton::find_more(std::uint32_t state, TokenId token) const {
    return more_index_.find(hash_of(state, token),
                            [&](Slot slot) { return more_[slot].state == state && more_[slot].token == token; });
}

void SuffixAutomaton::add_transition(std::uint32_t state, TokenId token, std::uint32_t target) {
    State& from = states_[state];
    if (from.token == kNone) {
        from.token = token;
        from.target = target;
        return;
    }
    const auto slot = static_cast<Slot>(more_.size());
    more_.push_back({.state = state, .token = token, .target = target, .next = from.more});
    more_index_.insert(hash_of(state, token), slot);
    from.more = slot;
}

void SuffixAutomaton::redirect(std::uint32_t state, TokenId token, std::uint32_t target) {
    if (states_[state].token == token)
        states_[state].target = target;
    else
        more_[find_more(state, token)].target = target;
}

SuffixAutomaton::Match SuffixAutomaton::followed(Match match) const {
    // The substrings of the last state occur only at the end of the text, where no token follows them; their longest
    // suffix of another state occurs earlier too.
    return match.state == last_ ? shorter(match) : match;
}

SuffixAutomaton::Match SuffixAutomaton::longest() const {
    return shorter({.state = last_, .length = states_[last_].length});
}

SuffixAutomaton::Match SuffixAutomaton::shorter(Match match) const {
    const std::uint32_t link = states_[match.state].link;
    return {.state = link, .length = states_[link].length};
}

SuffixAutomaton::Match SuffixAutomaton::extend(Match match, TokenId token) const {
    for (int i = 0; i < kMaxSuffixes && match.state != kRoot; ++i, match = shorter(match))
        if (const std::uint32_t found = target(match.state, token); found != kRoot)
            return followed({.state = found, .length = match.length + 1});
    const std::uint32_t found = target(kRoot, token);
    return found != kRoot ? followed({.state = found, .length = 1}) : Match{};
}

TokenId SuffixAutomaton::follower(Match match) const {
    DCHECK(match.length > 0 && match.state != last_, "state {}", match.state);
    return states_[match.state].follower;
}

std::size_t SuffixAutomaton::memory_bytes() const {
    return text_.capacity() * sizeof(TokenId) + states_.capacity() * sizeof(State) +
           more_.capacity() * sizeof(Transition) + more_index_.memory_bytes();
}

}  // namespace slipstream::draft
