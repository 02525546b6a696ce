// SessionPrompt: keeps the prompt of a session while it is computed layer by layer, so that a program that ended within
// it goes on where it was. At a checkpoint, the KV that is computed goes into the session, layer by layer, and the
// hidden states into the side file (prompt_file.h).
//
// A checkpoint is made so often that at most a minute of computing is lost, or a step (a prefill chunk through a layer)
// if that takes longer, or twice the time that a checkpoint takes. A damaged side file, or one that a run with other
// placement cannot use, costs only that: the prompt begins anew after the KV chunks that are whole.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "runtime/loop/target.h"
#include "runtime/pass/prompt_checkpoint.h"
#include "runtime/session/prompt_file.h"
#include "runtime/session/session_file.h"

namespace slipstream {

class SessionPrompt {
public:
    using Seconds = std::chrono::duration<double>;
    /// Most computing between two checkpoints (0: one before each step), so that a minute is not exceeded by the step
    /// that was begun.
    static constexpr Seconds kLongestGap{55.0};

    /// `session` and `target` must outlive this object; no KV is restored yet. `hidden_row_bytes`: of the hidden state
    /// of a token. `limit_bytes`: most bytes of KV and side file together. Reads and checks what an earlier run saved.
    SessionPrompt(SessionFile& session, Target& target, std::size_t hidden_row_bytes, std::size_t limit_bytes,
                  Seconds longest_gap = kLongestGap);
    SessionPrompt(const SessionPrompt&) = delete;
    SessionPrompt& operator=(const SessionPrompt&) = delete;

    /// What an earlier run saved and this run goes on with. Then restore exactly saved()->begin positions.
    [[nodiscard]] std::optional<PromptState> saved() const {
        return checkpoints_.saved ? std::optional(checkpoints_.saved->state) : std::nullopt;
    }
    /// Call after KV is restored: makes the side file if the prompt will go layer by layer. Returns why an interrupted
    /// prompt will begin anew, part of a sentence; no value if it will not.
    [[nodiscard]] std::optional<std::string> prepare();
    /// For GenerationLoop::save_prompts(). Valid as long as this object.
    [[nodiscard]] PromptCheckpoints& checkpoints() { return checkpoints_; }
    /// What an earlier run saved and this run cannot use, part of a sentence; empty: nothing.
    [[nodiscard]] const std::string& lost() const { return lost_; }

    /// Prompt tokens that are kept, in the session and the side file. A token whose hidden states have passed a part of
    /// the layers counts as that part.
    [[nodiscard]] std::int64_t n_kept() const;
    [[nodiscard]] std::int64_t n_checkpoints() const { return n_checkpoints_; }
    /// Size of the side file that this run made or went on with; 0: there was none.
    [[nodiscard]] std::uint64_t checkpoint_bytes() const { return file_bytes_; }
    /// Returns, once, why no more checkpoints are made (a full disk); no value if they are.
    [[nodiscard]] std::optional<std::string> take_refusal() { return std::exchange(refusal_, std::nullopt); }

    /// Call between passes: removes the side file if the prompt is computed and its KV is saved.
    void finish();

private:
    using Clock = std::chrono::steady_clock;
    [[nodiscard]] PromptFileShape shape(std::int64_t begin) const;
    void open();
    [[nodiscard]] bool has_kv_of(const PromptState& state);
    [[nodiscard]] bool is_due();
    void save(const PromptState& state, const PromptReader& reader);
    void save_kv(const PromptState& state, const PromptReader& reader);
    [[nodiscard]] std::int64_t n_prompt() const { return std::ssize(session_.begin().prompt); }

    SessionFile& session_;
    Target& target_;
    std::size_t hidden_row_bytes_;
    std::size_t limit_bytes_;
    Seconds longest_gap_;
    std::optional<PromptFile> file_;
    PromptCheckpoints checkpoints_;
    std::optional<PromptState> state_;  // that the side file has
    std::string lost_;
    std::optional<std::string> refusal_;
    std::int64_t n_checkpoints_ = 0;
    std::uint64_t file_bytes_ = 0;
    Clock::time_point saved_at_ = Clock::now();  // the last checkpoint, or the beginning
    Clock::time_point asked_at_ = Clock::now();  // is_due() was called last
    Seconds save_seconds_{0};                    // of the last checkpoint
};

}  // namespace slipstream
