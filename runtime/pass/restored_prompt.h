// A prompt that goes on from a checkpoint (prompt_checkpoint.h): where it begins, and how what was saved gets into KV
// caches and hidden states, on one device or several.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/check.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/hidden_states.h"
#include "runtime/pass/prompt_checkpoint.h"

namespace slipstream {

/// Returns the state in which a prompt begins: that of checkpoints->saved, else no step is done. CHECKs that what was
/// saved is of this prompt and that the pass has no draft tokens then.
[[nodiscard]] inline PromptState begun_prompt(const PromptRange& range, std::span<const TokenId> tokens,
                                              std::span<const std::int32_t> logit_tokens,
                                              const PromptCheckpoints* checkpoints) {
    PromptState state{
        .begin = range.begin,
        .end = range.end,
    };
    state.n_after = logit_tokens.empty() ? std::ssize(tokens) : logit_tokens.front() + 1;
    state.n_layers.assign(range.n_prefill_chunks(), 0);
    if (checkpoints == nullptr || !checkpoints->saved) return state;
    const PromptState& saved = checkpoints->saved->state;
    CHECK(saved.begin == state.begin && saved.end == state.end && saved.n_after == state.n_after &&
              saved.n_layers.size() == state.n_layers.size() && std::ssize(tokens) == state.n_after,
          "a saved prompt from {} to {} and {} tokens, one from {} to {} and {} of {}", saved.begin, saved.end,
          saved.n_after, state.begin, state.end, state.n_after, tokens.size());
    return saved;
}

/// A layer of the whole model: the steps of the device that has it, and its index there.
struct RestoredLayer {
    Forward::PromptSteps* steps;
    std::int64_t layer;
};

/// Fills KV and hidden states with what was saved. `layer_at(layer)` returns a RestoredLayer.
template <typename LayerAt>
void restore_prompt(const PromptState& state, const SavedPrompt& saved, const HiddenStates& states,
                    std::int64_t n_layers, const LayerAt& layer_at) {
    const std::int64_t last = state.n_prefill_chunks() - 1;
    std::vector<std::byte> rows;
    for (std::int64_t prefill_chunk = 0; prefill_chunk <= last; ++prefill_chunk)
        if (state.n_layers[prefill_chunk] > 0 && state.n_layers[prefill_chunk] < n_layers)
            saved.hidden(prefill_chunk, states.rows(prefill_chunk));
    for (std::int64_t layer = 0; layer < state.n_layers.front(); ++layer) {
        const RestoredLayer at = layer_at(layer);
        const std::int64_t n_passed = std::min(state.first_chunk_at(layer), last);  // prefill chunks of the prompt
        const std::int64_t end = n_passed == last ? state.end : at.steps->begin_of(n_passed);
        for (std::int64_t chunk = state.begin / kChunkTokens; chunk < end / kChunkTokens; ++chunk)
            at.steps->restore_chunk(at.layer, chunk, [&](std::byte* out) { saved.kv(layer, chunk, out); });
        if (layer >= state.n_layers[last]) continue;
        rows.resize(at.steps->rows_bytes(at.layer, state.n_after));
        saved.rows_after(layer, rows.data());
        at.steps->restore_rows_after(at.layer, state.n_after, rows.data());
    }
}

}  // namespace slipstream
