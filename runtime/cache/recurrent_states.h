// RecurrentStates: what the recurrent layers of a sequence keep instead of KV: the state after some position, and the
// inputs of tokens that are not in it yet.
//
// A state cannot be cut back, so no token whose place in the text is not sure may enter it. A layer has three states:
// the kept one after position kept(), and two that passes write. A pass reads the kept state, takes the tokens through
// it that are committed but not in it (pending ones) and its own certain tokens, and writes the next state. commit()
// makes the next state the kept one; until then nothing is lost if the pass is cancelled or fails. A prompt that passes
// layer by layer writes the third state, chunk after chunk, from which the pass after it goes on; keep_prompt() makes
// it the kept one. Draft tokens never enter a state in their own pass: their inputs are stored, and once they are
// committed they are pending for the next pass, which repeats the same operations on the same inputs, and so gets the
// bits of plain decoding.
//
// Checkpoints are copies of states in host memory: at multiples of 512 positions, and shortly before the end of each
// prompt, since the next prompt of a chat repeats all of this one but what its template puts last. A text that is cut
// goes on from the last checkpoint before the cut. Their memory is bounded: another one replaces the checkpoint whose
// neighbours are closest together. So they are spread over the text, and the last two are next to one another.
//
// All work on the device is enqueued on the stream of the passes, and the host reads no state but those that are saved
// between passes, in a session or as part of an earlier text, for which it waits. So a checkpoint needs no wait: its
// copy, the pass that overwrites its source, and a later copy back follow each other on that stream. A cut only notes
// the checkpoint that the next pass copies back first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "runtime/cache/kv_nodes.h"

namespace slipstream {

class RecurrentStates {
public:
    /// Allocates the states of the layers whose layout has one, and room for the inputs of `max_drafts` draft nodes and
    /// as many pending tokens. Checkpoints take at most `checkpoint_bytes` of host memory, all of it at once if it must
    /// be page-locked; if the system has none left, they are left out. Throws OutOfBudget.
    RecurrentStates(Device& device, std::span<const KvLayout> layouts, std::int64_t max_drafts,
                    std::size_t checkpoint_bytes);
    /// Returns the bytes that the constructor takes from the device's memory budget; 0 if no layer has a state.
    [[nodiscard]] static std::size_t bytes(std::span<const KvLayout> layouts, std::int64_t max_drafts);
    /// Returns the bytes of the states of all layers after one position: of a checkpoint; 0 if no layer has a state.
    [[nodiscard]] static std::size_t state_bytes(std::span<const KvLayout> layouts);
    /// Returns the most bytes that checkpoints of a text of `context_tokens` take within `checkpoint_bytes`.
    [[nodiscard]] static std::size_t most_checkpoint_bytes(std::span<const KvLayout> layouts,
                                                           std::int64_t context_tokens, std::size_t checkpoint_bytes);

    struct State {
        float* state = nullptr;  // [DeltaNetShape::state_floats()]
        float* taps = nullptr;   // [DeltaNetShape::tap_floats()]
    };
    /// Returns the number of positions that are in the kept states.
    [[nodiscard]] std::int64_t kept() const { return kept_; }
    /// Returns the number of committed positions after kept() whose inputs are stored.
    [[nodiscard]] std::int64_t n_pending() const { return n_pending_; }
    /// Returns the number of positions that are in the next state of a layer; -1 if no pass has written it since the
    /// last commit.
    [[nodiscard]] std::int64_t next(std::int64_t layer) const { return next_[layer]; }
    /// Returns the number of positions in the prompt's state of a layer; -1 if no prompt has written it.
    [[nodiscard]] std::int64_t prompt(std::int64_t layer) const { return prompt_[layer]; }
    /// Returns the state of `layer` after kept() positions, which must not be written.
    [[nodiscard]] State kept_state(std::int64_t layer) const;
    /// Call before a pass reads states: enqueues the copy of the kept states if they are still in a checkpoint, after a
    /// cut.
    void bring_back(ExecRef exec);
    [[nodiscard]] State next_state(std::int64_t layer) const { return state_at(layer, next_plane_); }
    [[nodiscard]] State prompt_state(std::int64_t layer) const { return state_at(layer, prompt_plane_); }
    /// Call when the op that writes the next state of `layer` is enqueued; `position`: see next().
    void set_next(std::int64_t layer, std::int64_t position) { next_[layer] = position; }
    void set_prompt(std::int64_t layer, std::int64_t position) { prompt_[layer] = position; }
    /// Makes the prompt's states the kept ones. They must be after `position` positions in all layers (CHECKed).
    void keep_prompt(std::int64_t position);
    /// Returns the position strictly between `begin` and `end` after which a pass that takes the states from `begin` to
    /// `end` positions makes a checkpoint; 0: none. The last `n_certain` positions are certain nodes of the pass
    /// itself.
    [[nodiscard]] std::int64_t checkpoint_within(std::int64_t begin, std::int64_t end, std::int64_t n_certain) const;
    /// Enqueues the copy of the state of `layer` after `position` positions to the checkpoint there, if it is not
    /// filled. The first recurrent layer makes the checkpoint; if it finds no memory, there is none.
    void make_checkpoint(ExecRef exec, std::int64_t layer, std::int64_t position, const State& state);
    /// Enqueues the copies of the inputs of draft tokens: row first_row + i of `inputs`, [.., row_cols()], becomes the
    /// stored row drafts[i] of `layer`.
    void store_drafts(ExecRef exec, std::int64_t layer, const ConstTensorView& inputs, std::int64_t first_row,
                      std::span<const std::int32_t> drafts);

    /// Returns the stored inputs of a layer, rows of DeltaNetShape::row_cols() floats by number.
    [[nodiscard]] float* stored(std::int64_t layer) const { return at(stored_begin_[layer]); }
    /// Return the number of the stored row of the draft node with index `draft` (KvNodes::draft_index()), and of the
    /// pending token `i`.
    [[nodiscard]] std::int32_t draft_row(std::int32_t draft) const { return draft; }
    [[nodiscard]] std::int32_t pending_row(std::int64_t i) const { return static_cast<std::int32_t>(max_drafts_ + i); }
    [[nodiscard]] std::int64_t max_drafts() const { return max_drafts_; }

    /// Commits a path from the committed tip: its certain nodes, whose last is at position `end_certain` - 1 and must
    /// be in the next states of all layers (CHECKed; 0: the path has none), then the draft nodes with these indices.
    void commit(ExecRef exec, std::int64_t end_certain, std::span<const std::int32_t> drafts);
    /// Returns how many positions remain after a cut to `n_tokens`: all of them unless some are in the kept states,
    /// then those up to the last checkpoint.
    [[nodiscard]] std::int64_t positions_after_cut(std::int64_t n_tokens) const;
    /// Returns the last position, at most `n_tokens` and a multiple of `step`, whose states read_states() can read:
    /// kept(), or that of a checkpoint; 0: none.
    [[nodiscard]] std::int64_t last_readable(std::int64_t n_tokens, std::int64_t step) const;
    /// Copies the states of `layer` after `position`, which last_readable() has returned since the last pass, to `out`
    /// [state_bytes() of the layer] in host memory. Waits for the stream of the passes.
    void read_states(ExecRef exec, std::int64_t layer, std::int64_t position, std::byte* out) const;
    /// Fills the kept states of `layer` with what read_states() gave, before it returns. Requires that there are no
    /// positions (CHECKed).
    void write_kept(ExecRef exec, std::int64_t layer, const std::byte* from);
    /// Call when write_kept() has filled all layers: they are after `position` positions.
    void keep_written(std::int64_t position);
    /// Drops positions from `n_tokens` on, if there are any, and the next states. positions_after_cut(n_tokens) must be
    /// `n_tokens` (CHECKed).
    void cut(std::int64_t n_tokens);
    /// Drops all positions.
    void reset();
    /// Drops the next states, those of a prompt, and checkpoints that not all layers have reached or that are after
    /// positions which are not committed.
    void drop_next();

private:
    [[nodiscard]] float* at(std::size_t floats) const { return reinterpret_cast<float*>(memory_.data()) + floats; }
    [[nodiscard]] State state_at(std::int64_t layer, std::int64_t plane) const;
    void check_all_at(std::span<const std::int64_t> positions, std::int64_t position) const;
    [[nodiscard]] std::size_t bytes_at_once(std::int64_t layer) const;
    void add_stored_plane(std::size_t layer);
    [[nodiscard]] bool add_checkpoint(std::int64_t position);

    /// Host memory of a checkpoint: of each layer its state and taps. Page-locked if the device does not share the
    /// host's memory, so that the host need not wait for copies; it is then freed with this object, whose streams have
    /// passed all copies.
    struct CheckpointMemory {
        std::unique_ptr<float[]> plain;
        Buffer locked;
        [[nodiscard]] float* data() const {
            return plain != nullptr ? plain.get() : reinterpret_cast<float*>(locked.data());
        }
    };
    struct Checkpoint {
        std::int64_t position = 0;
        CheckpointMemory memory{};
        std::int64_t n_filled = 0;  // layers whose copies are enqueued
    };
    template <typename Drop>
    void drop_checkpoints(const Drop& drop);
    [[nodiscard]] bool take_memory(CheckpointMemory& memory);
    [[nodiscard]] bool allocate_memory(CheckpointMemory& memory) const;
    /// Layers whose stored rows are equally far apart, so that they are planes of one copy.
    struct StoredPlanes {
        std::size_t first = 0;  // layer
        std::int64_t n_layers = 0;
        std::size_t distance = 0;  // floats
    };

    Device* device_;
    std::vector<KvLayout> layouts_;  // [n_layers]
    std::int64_t max_drafts_;
    Buffer memory_;                          // F32: zeros, then of each layer its states with their taps, stored rows
    std::vector<std::size_t> state_begin_;   // [n_layers]: floats before the states of the layer
    std::vector<std::size_t> stored_begin_;  // [n_layers]: floats before its stored rows
    // Which of its three states is which.
    std::int64_t kept_plane_ = 0;
    std::int64_t next_plane_ = 1;
    std::int64_t prompt_plane_ = 2;
    std::int64_t kept_ = 0;
    std::int64_t n_pending_ = 0;
    std::vector<std::int64_t> next_;       // [n_layers]: see next()
    std::vector<std::int64_t> prompt_;     // [n_layers]: see prompt()
    std::vector<Checkpoint> checkpoints_;  // by ascending position
    std::vector<CheckpointMemory> spare_;  // of dropped checkpoints; page-locked memory before it is used
    bool kept_is_in_checkpoint_ = false;   // at kept_: the kept states are not in their plane
    std::vector<StoredPlanes> stored_planes_;
    std::vector<std::int32_t> rows_from_;  // rows of a copy: room for max_drafts_
    std::vector<std::int32_t> rows_to_;
    std::size_t max_checkpoints_ = 0;
    std::size_t checkpoint_floats_ = 0;
    std::vector<std::size_t> checkpoint_begin_;  // [n_layers]: floats of a checkpoint before those of the layer
    std::int64_t n_recurrent_ = 0;               // layers that have a state
    std::int64_t first_recurrent_ = 0;
};

}  // namespace slipstream
