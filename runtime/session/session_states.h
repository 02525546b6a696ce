// SessionStates: saves the states of recurrent layers of a session to its side file (states_file.h), and restores them.
// A text goes on from position P with the KV of its attention layers up to P and the states after P.
//
// States are those after the last position or a checkpoint (RecurrentStates), at a multiple of 512 positions, and are
// saved when the session has the KV of all positions before them. The text waits while they are written. So the next
// ones are saved only after a hundred times the time that the last ones took: that is 1 % of the time, whatever the
// model and the disk. And only after half a minute, since all of them are written anew each time, which wears the disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/loop/target.h"
#include "runtime/session/session_file.h"
#include "runtime/session/states_file.h"

namespace slipstream {

class SessionStates {
public:
    using Clock = std::chrono::steady_clock;
    /// Least time between two saves while a text runs: that after which a session is forced to the disk.
    static constexpr Clock::duration kLeastGap = std::chrono::seconds(30);

    /// `session` and `target`, which has recurrent layers, must outlive this object. Opens the side file, if there is
    /// one; removes it if it is damaged or of another session, except with SessionUse::Read.
    SessionStates(const SessionFile& session, Target& target, SessionUse use, Clock::duration least_gap = kLeastGap);

    /// Returns the last position, up to `max_tokens`, after which the side file has whole states; 0: there is none.
    [[nodiscard]] std::int64_t find(std::int64_t max_tokens);
    /// Fills the states of the target, which is empty, with those that find() found. Target::restore() must follow.
    /// If the file cannot be read, returns false, and find() finds nothing from then on; the target is then
    /// empty, and the next save makes a new file.
    [[nodiscard]] bool restore();
    /// Returns the position of the states that were found or saved last; 0: none.
    [[nodiscard]] std::int64_t position() const { return position_; }
    /// Returns what is lost of what was saved, as a sentence; empty: nothing.
    [[nodiscard]] const std::string& lost() const { return lost_; }

    /// Call between passes: saves the last states up to position `n_kv_tokens`, if it is time to. If the file cannot be
    /// written, or the states not be copied from their device, returns the reason and saves no more from then on.
    [[nodiscard]] std::optional<std::string> save(std::int64_t n_kv_tokens);
    /// Like save(), now, and returns when everything is on the disk.
    [[nodiscard]] std::optional<std::string> save_last(std::int64_t n_kv_tokens);

private:
    [[nodiscard]] std::optional<std::string> refuse(const char* reason);
    void write(std::int64_t position);

    const SessionFile& session_;
    Target& target_;
    StatesFileShape shape_;
    std::optional<StatesFile> file_;  // empty: there is none yet
    std::string lost_;
    std::int64_t position_ = 0;  // of the states that were found or saved last
    bool is_refused_ = false;    // the file cannot be written
    Clock::duration least_gap_;
    std::optional<Clock::time_point> saved_at_;  // no value: nothing was saved yet
    Clock::duration save_time_{};                // that the last save took
};

}  // namespace slipstream
