// KeptPrompt: the prompt of a chat while it is computed, in a session file beside the file of the chat, so that a
// program that ended within the prompt in any way goes on where it was. Chats keep messages in their own file, so the
// session ("F.kv" for a chat F) has the prompt's tokens and its KV alone. While the prompt goes layer by layer, there
// is a side file beside it (runtime/session/prompt_file.h); of a model with recurrent layers, one with their states
// (states_file.h). All are removed when the answer is in the chat's file. A prompt of such a model that goes layer by
// layer is not kept: its states are those of a part of the layers.
//
// A later start uses these files only if the prompt's tokens, the model, the context, the KV type, the kinds of devices
// and the split are equal to those that the session records. Otherwise a line says what differs, and the prompt is
// computed from its start.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/session/session_file.h"
#include "runtime/session/session_kv.h"
#include "runtime/session/session_prompt.h"
#include "tools/engine/engine_callbacks.h"

namespace slipstream::tools {

class TextGenerator;

class KeptPrompt {
public:
    /// `chat` is the file of the chat. `limit_bytes`: most bytes of KV and side file together. What `callbacks` refer
    /// to must outlive this object.
    KeptPrompt(const std::filesystem::path& chat, std::size_t limit_bytes, EngineCallbacks callbacks);
    KeptPrompt(const KeptPrompt&) = delete;
    KeptPrompt& operator=(const KeptPrompt&) = delete;

    [[nodiscard]] static std::filesystem::path path_of(const std::filesystem::path& chat);
    /// Removes the session of the chat and its side files. Leaves files of these names that were not made for a chat.
    static void remove(const std::filesystem::path& chat);

    /// Starts a sequence with `prompt` like TextGenerator::start(), whose errors it throws. Goes on with what is kept
    /// of this prompt, or begins to keep it if at least a KV chunk of it must be computed. Returns the positions
    /// that the KV cache had already. `generator` must outlive the next call.
    std::int64_t start(TextGenerator& generator, std::vector<TokenId> prompt);
    /// Call between passes: saves KV chunks that are full, once the prompt has taken 10 s. Returns the message to show
    /// if the system refuses to write, else no value.
    [[nodiscard]] std::optional<std::string> save();
    /// Call if the prompt was interrupted: saves what is computed of it. Returns the number of prompt tokens that are
    /// kept; no value if this prompt is not kept.
    [[nodiscard]] std::optional<std::int64_t> interrupt();
    /// Removes the files of the prompt that was started last. Call when the answer is in the file of the chat, or the
    /// message is given up.
    void remove();

    /// Returns the tokens of the prompt that was started last that were read from its files and not computed again.
    [[nodiscard]] std::int64_t n_resumed() const { return n_resumed_; }
    /// Returns the number of checkpoints that were written of the prompt that was started last.
    [[nodiscard]] std::int64_t n_checkpoints() const { return prompt_ ? prompt_->n_checkpoints() : 0; }
    /// Returns the size in bytes of the side file of the prompt that was started last; 0: there was none.
    [[nodiscard]] std::uint64_t checkpoint_bytes() const { return prompt_ ? prompt_->checkpoint_bytes() : 0; }

private:
    using Clock = std::chrono::steady_clock;
    [[nodiscard]] bool open(const SessionBegin& wanted);
    void restore(TextGenerator& generator, std::vector<TokenId> prompt);
    void open_prompt(TextGenerator& generator);
    [[nodiscard]] std::int64_t read_kv(std::int64_t max_tokens);
    void attach(TextGenerator& generator);
    [[nodiscard]] std::optional<std::string> save_now();
    [[nodiscard]] std::optional<std::string> without_states(std::optional<std::string> refused) const;
    void close();

    std::filesystem::path chat_;
    std::filesystem::path path_;  // of the session
    std::size_t limit_bytes_;
    EngineCallbacks callbacks_;
    TextGenerator* generator_ = nullptr;  // generator whose prompts are saved; null: none
    std::optional<SessionFile> session_;  // session of the prompt that was started last; empty: it is not kept
    std::optional<SessionKv> kv_;
    std::unique_ptr<SessionPrompt> prompt_;  // null: the prompt is not kept
    std::int64_t n_resumed_ = 0;
    bool is_foreign_ = false;                 // a file of the session's name exists that is not a chat's session
    Clock::time_point began_ = Clock::now();  // start of the prompt
};

}  // namespace slipstream::tools
