// A sequence: committed token ids, how many of them are the prompt, and which positions are in the KV cache of a
// target, computed by which kernels. Several loops may run over a sequence one after the other, with different
// proposers or samplers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "runtime/loop/target.h"

namespace slipstream {

class Sequence {
public:
    /// The target must outlive this object. Its KV may be changed only through this object, or immediately before
    /// begin().
    explicit Sequence(Target& target) : target_(&target), context_tokens_(target.shape().context_tokens) {}

    [[nodiscard]] Target& target() const { return *target_; }
    /// Returns all committed tokens. Between two passes of generation the KV cache holds all of them except the last;
    /// after begin(), only those that were reused or restored, and the first pass computes the others.
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return tokens_; }
    /// Returns the length of the prompt: the first tokens of the sequence. The tokens after it were generated.
    [[nodiscard]] std::int64_t n_prompt() const { return n_prompt_; }
    /// Returns the number of positions in the KV cache.
    [[nodiscard]] std::int64_t n_computed() const { return target_->n_committed(); }
    /// Returns how many of the first positions in the KV cache were computed as Phase::Prefill. Those after them were
    /// computed as Phase::Decode.
    [[nodiscard]] std::int64_t n_prefilled() const { return n_prefilled_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    /// Returns how many tokens can still be added before the context is full.
    [[nodiscard]] std::int64_t room() const { return context_tokens_ - std::ssize(tokens_); }

    /// Replaces the sequence by `tokens`, of which the first `n_prompt` are the prompt; 1 <= n_prompt <= tokens.size()
    /// <= context_tokens() (CHECKed). The KV cache must hold a proper prefix of `tokens`, computed here or restored
    /// from a file; only its length is CHECKed, see n_reusable(). Drops the nodes of the target.
    void begin(std::vector<TokenId> tokens, std::int64_t n_prompt);
    /// Returns how many positions of the KV cache can be kept for a new prompt of `n_prompt` tokens that begins with
    /// the first `n_same` tokens of this sequence: those whose KV has the bits that computing the new prompt would
    /// give. If the target has prompt kernels, a position is kept only if the kernels that computed it would compute it
    /// again. Requires n_same <= n_computed() and n_same < n_prompt (CHECKed).
    [[nodiscard]] std::int64_t n_reusable(std::int64_t n_same, std::int64_t n_prompt) const;
    /// Keeps the first `n_positions` of the KV cache and drops the others. The tokens stay.
    void keep_computed(std::int64_t n_positions);
    /// Source of the KV of positions that the target's KV cache does not have.
    struct StoredKv {
        /// Fills `out` with a KV chunk of a layer, [kv[layer].chunk_bytes()], as Target::restore() requires.
        std::function<void(std::int64_t layer, std::int64_t chunk, std::byte* out)> read;
        /// Returns whether the rows of a KV chunk are still in their place, so that Target::recommit() suffices.
        std::function<bool(std::int64_t chunk)> is_there;
        /// Fills `out` with the states of a recurrent layer after the last position, as Target::restore_states()
        /// requires. Empty: no layer is recurrent.
        std::function<void(std::int64_t layer, std::byte* out)> read_state{};
    };
    /// Replaces the sequence by `tokens`, all of which are then computed: keeps the first `first` positions of the KV
    /// cache, whose tokens must be equal in both, and takes the others from `stored`, as the conditions of
    /// Target::restore() allow (with recurrent layers, `first` is 0). `n_prefilled`: see n_prefilled(). Call begin()
    /// next. If it throws, the sequence is `tokens`, of which positions may be missing.
    void restore(std::vector<TokenId> tokens, std::int64_t first, std::int64_t n_prefilled, const StoredKv& stored);
    /// Keeps the first `n_tokens` tokens, 1 to tokens().size() (CHECKed). Keeps those positions of the KV cache that a
    /// sequence of this length would have with the same bits.
    void truncate(std::int64_t n_tokens);

    /// Returns the position below which a prompt of `n_prompt` tokens is computed as Phase::Prefill, in whole prefill
    /// chunks. Later positions are computed as Phase::Decode. The border depends on the length of the prompt alone.
    [[nodiscard]] static std::int64_t prefill_border(std::int64_t n_prompt) {
        return (n_prompt - 1) / kPrefillChunkTokens * kPrefillChunkTokens;
    }

private:
    friend class GenerationLoop;  // appends the tokens that it commits

    // Changes of the target, called by the loop. They update n_prefilled_, also if they throw.

    /// Announces that the next pass fills the prompt positions before `end` (Target::extend()).
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
