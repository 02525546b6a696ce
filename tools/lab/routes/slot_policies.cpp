#include "tools/lab/routes/slot_policies.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "runtime/experts/slot_choice.h"

namespace slipstream::tools {

namespace {

using Chosen = std::span<const std::uint16_t>;

/// The experts of a layer that have slots.
struct Slots {
    Slots(std::int64_t n_experts, std::int64_t n_slots) : held(static_cast<std::size_t>(n_experts)), n_free(n_slots) {}

    void take(std::int32_t expert, std::int32_t victim) {
        held[expert] = 1;
        if (victim == kNoVictim) {
            --n_free;
        } else {
            held[victim] = 0;
        }
    }

    std::vector<std::uint8_t> held;
    std::int64_t n_free;
};

/// Returns the expert with a slot that `is_before` puts before all others; kNoVictim if there is none.
/// `may_go(expert)`: whether it may be returned.
template <typename MayGo, typename IsBefore>
std::int32_t first_held(const Slots& slots, const MayGo& may_go, const IsBefore& is_before) {
    std::int32_t first = kNoVictim;
    for (std::int32_t expert = 0; expert < std::ssize(slots.held); ++expert)
        if (slots.held[expert] != 0 && may_go(expert) && (first == kNoVictim || is_before(expert, first)))
            first = expert;
    return first;
}

class Policy {
public:
    virtual ~Policy() = default;
    /// Called once before the second half.
    virtual void begin_second_half(Slots& /*slots*/) {}
    /// Gives slots to experts after token `token`; returns how many.
    virtual std::int64_t after(std::int64_t token, Chosen chosen, Slots& slots) = 0;
};

class Lru final : public Policy {
public:
    explicit Lru(std::int64_t n_experts) : last_use_(static_cast<std::size_t>(n_experts), -1) {}

    std::int64_t after(std::int64_t token, Chosen chosen, Slots& slots) override {
        std::int64_t copied = 0;
        for (const std::uint16_t expert : chosen) last_use_[expert] = token;
        for (const std::uint16_t expert : chosen) {
            if (slots.held[expert] != 0) continue;
            std::int32_t victim = kNoVictim;
            if (slots.n_free == 0) {
                victim = first_held(
                    slots, [&](std::int32_t e) { return last_use_[e] != token; },
                    [&](std::int32_t a, std::int32_t b) { return last_use_[a] < last_use_[b]; });
                if (victim == kNoVictim) break;
            }
            slots.take(expert, victim);
            ++copied;
        }
        return copied;
    }

private:
    std::vector<std::int64_t> last_use_;
};

class Counts final : public Policy {
public:
    explicit Counts(std::int64_t n_experts) : counts_(n_experts) {}

    std::int64_t after(std::int64_t /*token*/, Chosen chosen, Slots& slots) override {
        counts_.add(chosen);
        choose_slots({.counts = counts_.counts(), .held = slots.held, .needed = chosen, .n_free = slots.n_free},
                     takes_);
        for (const SlotTake& take : takes_) slots.take(take.expert, take.victim);
        return std::ssize(takes_);
    }

private:
    ExpertCounts counts_;
    std::vector<SlotTake> takes_;
};

class Fixed final : public Policy {
public:
    explicit Fixed(std::int64_t n_experts) : counts_(static_cast<std::size_t>(n_experts)) {}

    void begin_second_half(Slots& slots) override {
        std::vector<std::int32_t> experts(counts_.size());
        std::iota(experts.begin(), experts.end(), 0);
        std::ranges::stable_sort(experts, std::greater(), [&](std::int32_t expert) { return counts_[expert]; });
        experts.resize(std::min(experts.size(), static_cast<std::size_t>(slots.n_free)));
        for (const std::int32_t expert : experts) slots.take(expert, kNoVictim);
    }
    std::int64_t after(std::int64_t /*token*/, Chosen chosen, Slots& /*slots*/) override {
        for (const std::uint16_t expert : chosen) ++counts_[expert];
        return 0;
    }

private:
    std::vector<std::int64_t> counts_;
};

class Best final : public Policy {
public:
    Best(const RoutedLayer& layer, std::int64_t n_tokens)
        : layer_(layer), never_(n_tokens), next_use_(static_cast<std::size_t>(layer.n_experts), never_) {
        after_.resize(layer.ids.size());
        for (std::int64_t token = n_tokens - 1; token >= n_tokens / 2; --token)
            for (std::int64_t place = 0; place < layer.n_chosen; ++place) {
                std::int64_t& next = next_use_[layer.chosen(token)[place]];
                after_[token * layer.n_chosen + place] = next;
                next = token;
            }
    }

    void begin_second_half(Slots& slots) override {
        began_ = true;
        for (std::int32_t expert = 0; expert < std::ssize(next_use_); ++expert) offer(expert, slots);
    }
    std::int64_t after(std::int64_t token, Chosen chosen, Slots& slots) override {
        if (!began_) return 0;
        for (std::int64_t place = 0; place < layer_.n_chosen; ++place)
            next_use_[chosen[place]] = after_[token * layer_.n_chosen + place];
        std::int64_t copied = 0;
        for (const std::uint16_t expert : chosen) copied += offer(expert, slots) ? 1 : 0;
        return copied;
    }

private:
    bool offer(std::int32_t expert, Slots& slots) const {
        if (slots.held[expert] != 0 || next_use_[expert] == never_) return false;
        std::int32_t victim = kNoVictim;
        if (slots.n_free == 0) {
            victim = first_held(
                slots, [](std::int32_t) { return true; },
                [&](std::int32_t a, std::int32_t b) { return next_use_[a] > next_use_[b]; });
            if (next_use_[victim] <= next_use_[expert]) return false;
        }
        slots.take(expert, victim);
        return true;
    }

    const RoutedLayer& layer_;
    std::int64_t never_;
    bool began_ = false;
    std::vector<std::int64_t> next_use_;  // [n_experts]: the next token that chooses the expert; never_: none
    std::vector<std::int64_t> after_;     // [n_tokens, n_chosen]: the same after each token of the second half
};

std::unique_ptr<Policy> make_policy(SlotPolicy policy, const RoutedLayer& layer, std::int64_t n_tokens) {
    switch (policy) {
        case SlotPolicy::Lru:
            return std::make_unique<Lru>(layer.n_experts);
        case SlotPolicy::Counts:
            return std::make_unique<Counts>(layer.n_experts);
        case SlotPolicy::Fixed:
            return std::make_unique<Fixed>(layer.n_experts);
        case SlotPolicy::Best:
            break;
    }
    return std::make_unique<Best>(layer, n_tokens);
}

}  // namespace

double SlotFigures::hit_share() const {
    return chosen > 0 ? static_cast<double>(hits) / static_cast<double>(chosen) : 0.0;
}

double SlotFigures::copied_a_token() const {
    return n_tokens > 0 ? static_cast<double>(copied) / static_cast<double>(n_tokens) : 0.0;
}

SlotFigures replay_slots(SlotPolicy policy, const RoutedLayer& layer, std::int64_t n_tokens, std::int64_t n_slots) {
    const std::unique_ptr<Policy> running = make_policy(policy, layer, n_tokens);
    Slots slots(layer.n_experts, n_slots);
    SlotFigures figures;
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        const bool counts = token >= n_tokens / 2 && n_tokens > 1;
        if (token == n_tokens / 2) running->begin_second_half(slots);
        const Chosen chosen = layer.chosen(token);
        const auto hits = std::ranges::count_if(chosen, [&](std::uint16_t expert) { return slots.held[expert] != 0; });
        const std::int64_t copied = running->after(token, chosen, slots);
        if (!counts) continue;
        ++figures.n_tokens;
        figures.chosen += layer.n_chosen;
        figures.hits += hits;
        figures.copied += copied;
    }
    return figures;
}

std::int64_t slots_of(double share, std::int64_t n_experts) {
    return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(n_experts)));
}

}  // namespace slipstream::tools
