// SessionKv: saves the KV cache of a session to its file, and restores it. KV chunks are saved when they are full, all
// layers of one chunk before the next. The last chunk, which is not full, is never saved; the loop computes it again.
// If the chunks would take more than a limit, no more are saved, and the later positions are computed again, too.
// Layers with a sliding window save the chunks that they still keep, and restore those that the text can then need.
// The states of recurrent layers are saved and restored with the KV (session_states.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/loop/target.h"
#include "runtime/session/session_file.h"
#include "runtime/session/session_states.h"

namespace slipstream {

/// Returns the most KV chunks, up to `max_chunks`, to which `target` can be restored: the session has all blocks that
/// Target::restore() then reads.
[[nodiscard]] std::int64_t restorable_chunks(const SessionFile& session, const Target& target, std::int64_t max_chunks);

class SessionKv {
public:
    /// `session` and `target` must outlive this object. The KV blocks of each layer must have the same size in both
    /// (session_kv_bytes(), CHECKed). `limit_bytes`: most bytes of KV in the file, and of the states of recurrent
    /// layers beside it. With SessionUse::Read, nothing may be saved.
    SessionKv(SessionFile& session, Target& target, std::size_t limit_bytes, SessionUse use = SessionUse::GoOn);

    /// Returns the most positions that are saved within the limit.
    [[nodiscard]] std::int64_t max_tokens() const { return max_chunks_ * kChunkTokens; }
    /// Returns the bytes that the states of recurrent layers take within the limit; 0: there are no such layers.
    [[nodiscard]] std::uint64_t states_bytes() const { return states_bytes_; }

    /// Fills the empty target with the saved KV, of at most `max_tokens` positions, and returns their number. If layers
    /// are recurrent, it is a position whose states are saved, and the states are filled, too. The
    /// session's last token stays outside: the next pass feeds it. A damaged block and all after it are dropped
    /// (SessionFile::damage()). With `max_tokens`, the session's KV can be read afterwards (SessionFile::release_kv()).
    /// `on_progress` gets the bytes read and in total; it starts again from the first block after a damaged one was
    /// found. It may throw; the target is then empty.
    std::int64_t restore(const std::function<void(std::uint64_t, std::uint64_t)>& on_progress = {},
                         std::int64_t max_tokens = std::numeric_limits<std::int64_t>::max());

    /// Saves the KV chunks that are full and whose tokens are in the session. Does nothing while the target has nodes,
    /// since a pass may be running. If the file cannot be
    /// written, returns the reason and saves no more from then on. Throws what the target throws if a KV chunk cannot
    /// be read; the next call tries that one again.
    [[nodiscard]] std::optional<std::string> save();
    /// Call after save(): saves states of recurrent layers if it is time to. If they cannot be saved, returns the
    /// reason and saves none from then on; KV is saved all the same.
    [[nodiscard]] std::optional<std::string> save_states();
    /// Call at the end of a run: saves the last states that can be saved, however soon after the last ones, and returns
    /// when they are on the disk. Otherwise like save_states().
    [[nodiscard]] std::optional<std::string> save_last_states();
    /// Returns the last position whose states of recurrent layers are saved; 0: none.
    [[nodiscard]] std::int64_t n_in_states() const { return states_ ? states_->position() : 0; }
    /// Returns what is lost of the saved states, as a sentence; empty: nothing.
    [[nodiscard]] std::string lost_states() const { return states_ ? states_->lost() : std::string(); }

private:
    [[nodiscard]] std::optional<std::string> save_block(std::int64_t layer, std::int64_t chunk);

    SessionFile& session_;
    Target& target_;
    std::span<const KvLayout> layouts_;  // [n_layers_], of the target
    std::int64_t n_layers_;
    std::int64_t max_chunks_;  // with recurrent layers, up to a position whose states can be saved
    std::uint64_t states_bytes_ = 0;
    std::optional<SessionStates> states_;  // of recurrent layers; empty if there are none
    std::int64_t n_saved_ = 0;             // KV chunks, from the first on, that need not be looked at again
    std::vector<std::byte> block_;         // the block that is being saved, or restored
};

}  // namespace slipstream
