// Sessions of generate: a long text that outlives the program. What an existing session decides, which requests
// contradict it, and what a run saves while the text grows.
//
// A session decides everything that its text depends on: prompt, samplers and seed, stop rules, context, KV type,
// model. The user may give the same values again, so that one command can be repeated until the text is complete. Other
// values are refused with a message that names both. Only the number of tokens may change; it counts from the beginning
// of the session. Draft sources, threads and memory are free, since no text depends on them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/loop/text_generation.h"
#include "runtime/session/session_file.h"
#include "runtime/session/session_kv.h"
#include "runtime/session/session_prompt.h"
#include "tools/engine/engine_options.h"

namespace slipstream {
class Target;
}

namespace slipstream::tools {

struct EngineCallbacks;
class LoadedModel;
class OpenedModel;
class TextGenerator;

/// An option, other than the prompt's text, on which the tokens of the prompt depend: its name without dashes
/// ("system", "template-arg") and the values that were given. A session stores both.
struct PromptOption {
    std::string name;
    std::vector<std::string> values;
    bool demanded = false;  // whether other values are refused, as in SessionRequest
};

/// A requested session, and the values that are demanded for its text. A command takes these from its command line
/// only: values of the environment and the configuration file are defaults, and the session's take precedence.
struct SessionRequest {
    std::filesystem::path path;
    std::size_t limit_bytes = std::size_t{4} << 30;  // most bytes of KV to keep in the file
    std::optional<std::int64_t> context_tokens{};
    std::optional<DType> kv_dtype{};
    SamplingSettings sampling{};
    std::optional<std::vector<std::string>> stops{};
    std::optional<std::int64_t> max_tokens{};
    bool echo = false;
    bool split = false;   // whether --split is given, so that the session must have that kind
    bool shares = false;  // whether --shares is given, so that the session must have these shares
    std::vector<PromptOption> prompt_options{};
};

/// Returns the beginning of a session that is computed with `model`: everything but the text's own fields.
[[nodiscard]] SessionBegin session_begin_of(const LoadedModel& model);

/// What a new session begins with. Pointers and views must be valid only while TextSession::attach() runs.
struct SessionStart {
    const SamplerOptions* sampling = nullptr;
    bool ignore_end = false;
    const TextGenerationOptions* text = nullptr;
    std::span<const TokenId> end_tokens{};
    StreamingDetokenizer::Start text_start = StreamingDetokenizer::Start::Continued;
    PromptEcho echo = PromptEcho::No;
    std::string_view prompt_text;
    std::span<const TokenId> prompt{};
};

class TextSession {
public:
    /// Opens the session if its file exists. With SessionUse::Read, nothing may be begun or appended. Throws
    /// RequestError, FormatError, IoError as SessionFile does.
    explicit TextSession(SessionRequest request, SessionUse use = SessionUse::GoOn);

    /// Whether there is a session to continue. The functions below, up to replay(), may be called only then.
    [[nodiscard]] bool resumes() const { return file_.has_value(); }
    [[nodiscard]] const SessionBegin& begin() const { return file_->begin(); }
    /// Returns what was damaged in the session's file, as part of a sentence; empty: nothing.
    [[nodiscard]] const std::string& damage() const { return file_->damage(); }
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return file_->tokens(); }
    /// Returns the value of --devices that the session needs if its split decides its text: "cpu,cpu", GPUs numbered in
    /// their order. Empty if any devices can continue it, or if `devices` can.
    [[nodiscard]] std::string devices_instead_of(const std::vector<DeviceChoice>& devices) const;
    /// Overwrites the options by what the session decides. Throws RequestError if a different value is demanded.
    void decide(ComputeOptions& compute, TextGenerationOptions& text) const;
    /// Returns the session's sampling options. Throws RequestError if a different value is demanded. `model`: defaults
    /// of the session's model, whose suppressed tokens are not the user's --logit-bias.
    [[nodiscard]] SamplerOptions sampling(const GenerationDefaults& model) const;
    /// Returns the path where the model was when the session began. Throws RequestError if nothing is there.
    [[nodiscard]] std::filesystem::path model_path() const;
    /// Throws RequestError if `prompt_text`, given by `option`, is not the session's, or if a template, system text or
    /// the like is demanded that its prompt was not made with. The session's tokens stay as they are, since a template
    /// may render the date.
    void check_prompt(std::string_view prompt_text, std::string_view option) const;
    /// Throws RequestError if the model, its rope, or the kinds of `devices` that would compute it are not those that
    /// the session began with. Reports a note if the program's version differs.
    void check_model(const OpenedModel& model, const std::vector<DeviceChoice>& devices,
                     const EngineCallbacks& callbacks) const;
    /// Returns the text that was generated before.
    [[nodiscard]] ReplayedText replay(const Tokenizer& tokenizer, const TextGenerationOptions& text) const;

    /// Call when the model is loaded and the prompt fits: creates the file of a new session, or fills the KV cache with
    /// what an old one saved. Reports how much KV will be kept. Throws RequestError if the model is split in a
    /// different way and the split decides the text.
    void attach(const SessionStart& start, TextGenerator& generator, const EngineCallbacks& callbacks);
    /// For readers such as benchmarks: fills an empty `target` of the session's model and context, over the devices of
    /// `model`, with the saved KV, and does not change the file. Returns the number of positions. Throws RequestError
    /// if the model is split in a different way and the split decides the text.
    std::int64_t restore(Target& target, const LoadedModel& model, const EngineCallbacks& callbacks);
    /// Appends the tokens that a pass added. Throws IoError.
    void append(std::span<const TokenId> tokens) { file_->append_tokens(tokens); }
    /// Call between passes: saves KV chunks that are full, and every five minutes what drafting has learnt. If the
    /// system refuses the KV (a full disk), the session continues with tokens alone; if states of recurrent layers
    /// cannot be saved, with those saved before. The message to show is returned.
    [[nodiscard]] std::optional<std::string> save(const TextGenerator& generator);
    /// Returns how many prompt tokens were not computed again, since the file had their KV or hidden states.
    [[nodiscard]] std::int64_t n_resumed_prompt() const { return n_resumed_prompt_; }
    /// Returns how many prompt tokens are kept of a prompt that was interrupted. Requires attach().
    [[nodiscard]] std::int64_t n_kept_prompt() const;
    /// Returns what saves the prompt while it is computed. Requires attach().
    [[nodiscard]] const SessionPrompt& prompt() const { return *prompt_; }
    /// Call at the end of the run: writes everything to the disk.
    /// If states of recurrent layers cannot be saved, the message to show is returned.
    [[nodiscard]] std::optional<std::string> complete();

private:
    template <typename T>
    void agree(std::string_view option, const std::optional<T>& demanded, const T& held) const;
    [[noreturn]] void contradict(std::string_view option, std::string_view demanded, std::string_view held) const;
    void take_split(ComputeOptions& compute) const;
    void check_split(const LoadedModel& model) const;
    [[nodiscard]] SessionBegin fresh_begin(const SessionStart& start, const LoadedModel& model) const;
    std::int64_t restore(SessionKv& kv, std::int64_t max_tokens, const EngineCallbacks& callbacks) const;
    void keep_prompt(TextGenerator& generator, const EngineCallbacks& callbacks);
    void go_on(std::int64_t asked, bool is_recurrent, const EngineCallbacks& callbacks);
    [[nodiscard]] std::optional<std::string> without_states(std::optional<std::string> refused) const;
    void say_what_is_kept(std::int64_t longest_tokens, const EngineCallbacks& callbacks) const;

    SessionRequest request_;
    std::optional<SessionFile> file_;
    std::optional<SessionKv> kv_;
    std::unique_ptr<SessionPrompt> prompt_;  // null before attach()
    std::int64_t n_resumed_prompt_ = 0;
    std::chrono::steady_clock::time_point tables_kept_ = std::chrono::steady_clock::now();
};

}  // namespace slipstream::tools
