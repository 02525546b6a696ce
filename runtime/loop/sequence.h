// A text and what is computed of it: the tokens, how many of them are the prompt, and which positions are in the KV
// cache of a target, by which kernels. Loops over one sequence may follow one another, with other proposers or
// samplers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "runtime/loop/target.h"

namespace slipstream {

class Sequence {
public:
    /// The target outlives this. What it holds is changed through this sequence alone, or while no text is begun.
    explicit Sequence(Target& target) : target_(&target), context_tokens_(target.shape().context_tokens) {}

    [[nodiscard]] Target& target() const { return *target_; }
    /// All committed tokens. The target holds all of them but the last at most.
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return tokens_; }
    /// The first tokens of the text that are a prompt; the others were generated.
    [[nodiscard]] std::int64_t n_prompt() const { return n_prompt_; }
    /// Positions in the KV cache.
    [[nodiscard]] std::int64_t n_computed() const { return target_->n_committed(); }
    /// The first of these that were computed as Phase::Prefill; the others were computed as Phase::Decode.
    [[nodiscard]] std::int64_t n_prefilled() const { return n_prefilled_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    /// Tokens that the context still has room for.
    [[nodiscard]] std::int64_t room() const { return context_tokens_ - std::ssize(tokens_); }

    /// Replaces the text by `tokens`, of which the first `n_prompt` are a prompt: 1 <= n_prompt <= tokens.size() <=
    /// context_tokens(). The KV cache must hold a beginning of it, and not all of it (CHECKed; see n_reusable()),
    /// whether it was computed here or restored from a file.
    void begin(std::vector<TokenId> tokens, std::int64_t n_prompt);
    /// How many positions of the KV cache a prompt of `n_prompt` tokens may keep that begins with the first `n_same`
    /// tokens of this text: those that hold what computing the prompt would give, bit for bit. If prompts have kernels
    /// of their own, a position is kept if it was computed by the kernels that would compute it again.
    [[nodiscard]] std::int64_t n_reusable(std::int64_t n_same, std::int64_t n_prompt) const;
    /// Keeps the first `n_positions` of the KV cache. The text stays.
    void keep_computed(std::int64_t n_positions);
    /// Keeps the first `n_tokens` of the text (1 to as many as it has), and of the KV cache what a text of this length
    /// would have.
    void truncate(std::int64_t n_tokens);

    /// Positions of a prompt of `n_prompt` tokens below this are computed as Phase::Prefill, in whole prefill chunks;
    /// the others as Phase::Decode. It depends on the prompt's length alone.
    [[nodiscard]] static std::int64_t prefill_border(std::int64_t n_prompt) {
        return (n_prompt - 1) / kPrefillChunkTokens * kPrefillChunkTokens;
    }

private:
    friend class GenerationLoop;  // appends the tokens that it commits

    // Changes of the target by the loop; n_prefilled_ follows, also if they throw.

    /// The next pass brings the prompt positions up to `end` (Target::extend()).
    void extend(std::int64_t end);
    void commit(std::span<const NodeId> path, Phase phase);
    void forget();

    Target* target_;
    std::int64_t context_tokens_;
    std::vector<TokenId> tokens_;
    std::int64_t n_prompt_ = 0;
    std::int64_t n_prefilled_ = 0;
};

}  // namespace slipstream
