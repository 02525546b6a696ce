// Checkpoints of a prompt that goes layer by layer (Forward::run_by_layer(), ranks/pipelined_prefill.h): what is
// computed of it between two steps can be saved, and a later run goes on from there with the same bits. A step is a
// prefill chunk through a layer; the tokens that follow the prompt in the same pass are the last prefill chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace slipstream {

/// How far a prompt is. The KV of a prefill chunk is computed in the layers that the prefill chunk has passed, and its
/// hidden states are those after the last of these layers.
struct PromptState {
    std::int64_t begin = 0;                // first position of the prompt
    std::int64_t end = 0;                  // position after the last position of the prompt
    std::int64_t n_after = 0;              // tokens of the last prefill chunk, without draft tokens
    std::vector<std::int64_t> n_layers{};  // [prefill chunks]: layers that each has passed; never ascending

    [[nodiscard]] std::int64_t n_prefill_chunks() const { return static_cast<std::int64_t>(n_layers.size()); }
    /// Returns the number of steps that are done.
    [[nodiscard]] std::int64_t n_steps() const {
        return std::accumulate(n_layers.begin(), n_layers.end(), std::int64_t{0});
    }
    /// Returns the first prefill chunk that has not passed `layer`.
    [[nodiscard]] std::int64_t first_chunk_at(std::int64_t layer) const {
        std::int64_t chunk = 0;
        while (chunk < n_prefill_chunks() && n_layers[chunk] > layer) ++chunk;
        return chunk;
    }
    friend bool operator==(const PromptState&, const PromptState&) = default;
};

/// Reads what is computed of a prompt, during PromptCheckpoints::save(). Layers are those of the whole model.
struct PromptReader {
    /// Returns the hidden states of a prefill chunk that has passed a layer and not all, in host memory: [its tokens,
    /// d_model], F32; other bytes may follow them.
    std::function<const std::byte*(std::int64_t prefill_chunk)> hidden;
    /// Copies a KV chunk like Target::read_chunk().
    std::function<void(std::int64_t layer, std::int64_t chunk, std::byte* out)> kv;
    /// Copies the KV rows of the last prefill chunk in a layer that it has passed: K, then V, [n_after] rows of
    /// KvLayout::scratch_row_bytes() each.
    std::function<void(std::int64_t layer, std::byte* out)> rows_after;
};

/// A prompt that an earlier run saved. The functions fill `out` with what PromptReader gave.
struct SavedPrompt {
    PromptState state;
    std::function<void(std::int64_t prefill_chunk, std::byte* out)> hidden;
    std::function<void(std::int64_t layer, std::int64_t chunk, std::byte* out)> kv;
    std::function<void(std::int64_t layer, std::byte* out)> rows_after;
};

/// Functions with which a target saves prompts, and a saved prompt from which it goes on.
struct PromptCheckpoints {
    /// Returns whether to save the prompt now; called before each step, on the caller's thread.
    std::function<bool()> is_due;
    /// Saves the prompt. Also called when a pass is cancelled between two steps, if steps were done since it began. May
    /// return before the hidden states are read: see await_read.
    std::function<void(const PromptState&, const PromptReader&)> save;
    /// Returns when the hidden states of a prefill chunk that save() was given are read, so that they may be
    /// overwritten. Called before that, and for all prefill chunks before the hidden states are freed, on any thread.
    /// Must not throw.
    std::function<void(std::int64_t prefill_chunk)> await_read;
    /// The saved prompt from which the next prompt goes on; nullopt: it begins anew. The next prompt's begin, end and
    /// tokens must be those of the state.
    std::optional<SavedPrompt> saved{};
};

}  // namespace slipstream
