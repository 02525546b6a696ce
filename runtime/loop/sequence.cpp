#include "runtime/loop/sequence.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream {

void Sequence::begin(std::vector<TokenId> tokens, std::int64_t n_prompt) {
    const std::int64_t n = std::ssize(tokens);
    CHECK(n_prompt >= 1 && n_prompt <= n && n <= context_tokens_, "a prompt of {} of {} tokens", n_prompt, n);
    CHECK(n_computed() < n, "{} positions computed of a sequence of {} tokens", n_computed(), n);
    target_->forget();
    tokens_ = std::move(tokens);
    tokens_.reserve(context_tokens_ + 1);  // so that no later step allocates
    n_prompt_ = n_prompt;
    n_prefilled_ = std::min(n_computed(), prefill_border(n_prompt));
}

std::int64_t Sequence::n_reusable(std::int64_t n_same, std::int64_t n_prompt) const {
    CHECK(n_same <= n_computed() && n_same < n_prompt, "{} of {} positions for a prompt of {}", n_same, n_computed(),
          n_prompt);
    const std::int64_t border = prefill_border(n_prompt);
    if (!target_->shape().has_prompt_kernels || border == n_prefilled_) return n_same;
    return std::min({n_same, border, n_prefilled_});
}

void Sequence::keep_computed(std::int64_t n_positions) {
    try {
        target_->truncate(n_positions);
    } catch (...) {
        n_prefilled_ = std::min(n_prefilled_, n_computed());
        throw;
    }
    n_prefilled_ = std::min(n_prefilled_, n_computed());
}

void Sequence::restore(std::vector<TokenId> tokens, std::int64_t first, std::int64_t n_prefilled,
                       const StoredKv& stored) {
    const std::int64_t n = std::ssize(tokens);
    CHECK(first >= 0 && first <= n_computed() && first <= n, "{} of {} positions, {} tokens", first, n_computed(), n);
    keep_computed(first);
    tokens_ = std::move(tokens);
    n_prompt_ = n;
    try {
        if (stored.read_state) target_->restore_states(n, stored.read_state);
        // Each iteration takes a run of KV chunks that are all there, or must all be read.
        for (std::int64_t begin = first, end = first; begin < n; begin = end) {
            const bool is_there = stored.is_there(begin / kChunkTokens);
            do {
                end = std::min((end / kChunkTokens + 1) * kChunkTokens, n);
            } while (end < n && stored.is_there(end / kChunkTokens) == is_there);
            if (is_there) {
                target_->recommit(end);
            } else {
                target_->restore(begin, end, stored.read);
            }
        }
    } catch (...) {
        n_prefilled_ = std::min(n_prefilled_, n_computed());
        throw;
    }
    n_prefilled_ = n_prefilled;
}

void Sequence::truncate(std::int64_t n_tokens) {
    const std::int64_t n = std::ssize(tokens_);
    CHECK(n_tokens >= 1 && n_tokens <= n, "{} of {} tokens", n_tokens, n);
    if (n_tokens == n) return;
    tokens_.resize(n_tokens);
    std::int64_t n_kept = std::min(n_computed(), n_tokens - 1);
    // If the prompt becomes shorter, some of its last rows may have been computed as part of a whole prefill chunk.
    if (n_tokens < n_prompt_) n_kept = n_reusable(n_kept, n_tokens);
    n_prompt_ = std::min(n_prompt_, n_tokens);
    keep_computed(n_kept);
}

void Sequence::extend(std::int64_t end) {
    target_->extend(end);
    n_prefilled_ = end;
}

void Sequence::commit(std::span<const NodeId> path, Phase phase) {
    try {
        target_->commit(path);
    } catch (...) {
        n_prefilled_ = std::min(n_prefilled_, n_computed());
        throw;
    }
    if (phase == Phase::Prefill) n_prefilled_ = n_computed();
}

void Sequence::forget() {
    target_->forget();
    n_prefilled_ = std::min(n_prefilled_, n_computed());
}

}  // namespace slipstream
