// SessionPrompt: keeps the prompt of a session while it is computed layer by layer, so that a program that ended within
// it goes on where it was. At a checkpoint, the KV that is computed goes into the session, layer by layer, and the
// hidden states into the side file (prompt_file.h).
//
// Checkpoints take about 1 % of the time, and the disk is written to for a tenth of it at most. But at most a minute of
// computing is lost, or a step (a prefill chunk through a layer) if that takes longer, or twice the time that a
// checkpoint takes. Hidden states are written by a thread while the prompt goes on; before a step overwrites those of
// its prefill chunk, it waits until they are read. A damaged side file, or one that a run with other placement cannot
// use, costs only that: the prompt begins anew after the KV chunks that are whole.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/loop/target.h"
#include "runtime/pass/prompt_checkpoint.h"
#include "runtime/session/prompt_file.h"
#include "runtime/session/session_file.h"

namespace slipstream {

class SessionPrompt {
public:
    using Seconds = std::chrono::duration<double>;
    /// Time between two checkpoints, from the state of one to the end of the next.
    struct Gaps {
        Seconds shortest{5.0};
        /// Longest time between two checkpoints: two seconds less than the minute that is promised, since steps do not
        /// take the same time. 0: a checkpoint before each step.
        Seconds longest{58.0};
    };

    /// `session` and `target` must outlive this object; no KV is restored yet. `hidden_row_bytes`: bytes of the hidden
    /// state of a token. `limit_bytes`: most bytes of KV and side file together. Reads and checks what an earlier run
    /// saved.
    SessionPrompt(SessionFile& session, Target& target, std::size_t hidden_row_bytes, std::size_t limit_bytes,
                  const Gaps& gaps);
    SessionPrompt(SessionFile& session, Target& target, std::size_t hidden_row_bytes, std::size_t limit_bytes)
        : SessionPrompt(session, target, hidden_row_bytes, limit_bytes, Gaps{}) {}
    /// Waits for a checkpoint that is being written.
    ~SessionPrompt();
    SessionPrompt(const SessionPrompt&) = delete;
    SessionPrompt& operator=(const SessionPrompt&) = delete;

    /// Returns the state that an earlier run saved and with which this run goes on; nullopt: there is none. The caller
    /// must then restore exactly saved()->begin positions.
    [[nodiscard]] std::optional<PromptState> saved() const {
        return checkpoints_.saved ? std::optional(checkpoints_.saved->state) : std::nullopt;
    }
    /// Call after KV is restored: makes the side file if the prompt will go layer by layer. Returns why an interrupted
    /// prompt will begin anew, part of a sentence; no value if it will not.
    [[nodiscard]] std::optional<std::string> prepare();
    /// Returns the functions for GenerationLoop::save_prompts(). Valid as long as this object.
    [[nodiscard]] PromptCheckpoints& checkpoints() { return checkpoints_; }
    /// Returns what an earlier run saved and this run cannot use, as part of a sentence; empty: nothing.
    [[nodiscard]] const std::string& lost() const { return lost_; }

    /// Waits for a checkpoint that is being written, so that n_kept(), n_checkpoints() and the refusal count it.
    void settle();
    /// Returns how many prompt tokens are kept, in the session and the side file. A token whose hidden states have
    /// passed a part of the layers counts as that part.
    [[nodiscard]] std::int64_t n_kept() const;
    [[nodiscard]] std::int64_t n_checkpoints() const { return n_checkpoints_; }
    /// Returns the bytes of the side file that this run made or went on with; 0: there was none.
    [[nodiscard]] std::uint64_t checkpoint_bytes() const { return file_bytes_; }
    /// Returns, once, why no more checkpoints are made (a full disk); no value if they are.
    [[nodiscard]] std::optional<std::string> take_refusal();

    /// Call between passes: removes the side file if the prompt is computed and its KV is saved.
    void finish();

private:
    using Clock = std::chrono::steady_clock;
    [[nodiscard]] PromptFileShape shape(std::int64_t begin) const;
    void open();
    [[nodiscard]] std::optional<std::string> create();
    void save_windows();
    [[nodiscard]] bool has_kv_of(const PromptState& state);
    [[nodiscard]] bool is_due();
    void save(const PromptState& state, const PromptReader& reader);
    void save_kv(const PromptState& state, const PromptReader& reader);
    void write_hidden(const PromptState& state, const std::vector<const std::byte*>& rows);
    void await_read(std::int64_t prefill_chunk);
    void refuse(const std::string& reason);
    [[nodiscard]] std::int64_t n_prompt() const { return std::ssize(session_.begin().prompt); }

    SessionFile& session_;
    Target& target_;
    std::size_t hidden_row_bytes_;
    std::size_t limit_bytes_;
    Gaps gaps_;
    std::optional<PromptFile> file_;
    PromptCheckpoints checkpoints_;
    std::optional<PromptState> state_;  // the state that the side file has
    std::string lost_;
    std::optional<std::string> refusal_;
    std::int64_t n_checkpoints_ = 0;
    std::uint64_t file_bytes_ = 0;
    // When the state of the last checkpoint was reached; before the first, when the prompt began.
    Clock::time_point saved_at_ = Clock::now();
    Clock::time_point asked_at_ = Clock::now();  // when is_due() was called last
    // Time that the last checkpoint took until it was whole; before the first, an estimate.
    Seconds save_seconds_{0};
    // Time for which the last checkpoint kept the prompt from going on.
    Seconds stall_seconds_{0};

    // The checkpoint that is being written. writer_ uses file_ until is_written_ is true.
    std::thread writer_;
    PromptState written_state_;
    std::mutex mutex_;  // guards the following members while writer_ runs
    std::condition_variable changed_;
    std::vector<bool> is_read_;  // [prefill chunks]: the writer needs their hidden states no longer
    Seconds awaited_{0};         // time for which steps waited for the writer
    bool is_written_ = true;     // no checkpoint is being written
    std::string write_refusal_;  // why the writer failed; empty: it has not
    Clock::time_point written_at_;
};

}  // namespace slipstream
