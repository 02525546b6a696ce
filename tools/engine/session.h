// Sessions of generate: a long text that outlives the program. What a session decides once it is there, what
// contradicts it, and what a run hands to the file as the text grows.
//
// A session decides all that its text depends on: prompt, samplers and seed, stop rules, context, KV type, model. Who
// asks for it may name the same values again, so that one command can be given until it is done; other values are
// refused, both named. The number of tokens alone may change: it counts from the session's beginning. Who guesses,
// threads and memory are free, since no text depends on them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/loop/text_generation.h"
#include "runtime/session/session_file.h"
#include "runtime/session/session_kv.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/loaded_model.h"
#include "tools/engine/text_generator.h"

namespace slipstream::tools {

/// What a prompt depends on beside its text: an option ("system", "template-arg") with its values.
struct PromptOption {
    std::string name;
    std::vector<std::string> values;
    bool demanded = false;  // as the values of a SessionRequest are
};

/// A session that is asked for, and the values that are demanded of its text: a command takes them from its command
/// line, while what environment and configuration file say are standing wishes, and give way.
struct SessionRequest {
    std::filesystem::path path;
    std::size_t limit_bytes = std::size_t{4} << 30;  // most KV to keep in the file
    std::optional<std::int64_t> context_tokens{};
    std::optional<DType> kv_dtype{};
    SamplingSettings sampling{};
    std::optional<std::vector<std::string>> stops{};
    std::optional<std::int64_t> max_tokens{};
    bool echo = false;
    bool split = false;   // how the model is shared out is demanded
    bool shares = false;  // and how much each device has
    std::vector<PromptOption> prompt_options{};
};

/// What a fresh session is begun with.
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

/// How a session's model was split, where that decides its text.
struct HeldSplit {
    SplitKind kind = SplitKind::Layers;
    std::vector<double> parts{};  // of each device: layers or kv heads, whole numbers
};

class TextSession {
public:
    /// Opens what is there; one that is only read is neither begun nor added to. Throws RequestError, FormatError,
    /// IoError as SessionFile does.
    explicit TextSession(SessionRequest request, SessionUse use = SessionUse::GoOn);

    /// Whether there is something to go on with. The calls below up to check_model() are for that case.
    [[nodiscard]] bool resumes() const { return file_.has_value(); }
    [[nodiscard]] const SessionBegin& begin() const { return file_->begin(); }
    /// What was wrong with the session's file, part of a sentence; empty: nothing.
    [[nodiscard]] const std::string& damage() const { return file_->damage(); }
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return file_->tokens(); }
    /// The devices that it goes on with, where their split decides its text: "cpu,cpu"; cards by their order. Empty
    /// where others do, and where `devices` are such.
    [[nodiscard]] std::string devices_instead_of(const std::vector<DeviceChoice>& devices) const;
    /// Puts what the session decides in the place of what was wished for. RequestError where something else is
    /// demanded.
    void decide(ComputeOptions& compute, TextGenerationOptions& text) const;
    /// The same of the samplers.
    [[nodiscard]] SamplerOptions sampling() const;
    /// Where its model was found before. RequestError where it is no longer there.
    [[nodiscard]] std::filesystem::path model_path() const;
    /// RequestError where `prompt_text`, given by `option`, is another prompt, or where a template, system text or the
    /// like is demanded that the prompt was not made with. Its tokens stay as they are: a template may render the date.
    void check_prompt(std::string_view prompt_text, std::string_view option) const;
    /// RequestError where the model, its rope, or `device`, which would compute it here, is not what the text was begun
    /// with.
    void check_model(const OpenedModel& model, const std::vector<DeviceChoice>& devices,
                     const EngineCallbacks& callbacks) const;
    /// What was generated before, as text.
    [[nodiscard]] ReplayedText replay(const Tokenizer& tokenizer, const TextGenerationOptions& text) const;

    /// The model is loaded and the prompt fits: makes the file of a fresh session, or fills the cache with what an old
    /// one saved. Says what of KV will be kept. RequestError where layers are shared out otherwise over devices of
    /// several kinds.
    void attach(const SessionStart& start, TextGenerator& generator, const EngineCallbacks& callbacks);
    /// Fills an empty target of the session's model and context, over the devices of `engine`, with the KV that was
    /// saved, and leaves the file as it is; returns the positions. For who only reads: a benchmark. Throws RequestError
    /// as attach().
    std::int64_t restore(Target& target, const LoadedModel& model, const EngineCallbacks& callbacks);
    /// Tokens that a pass added. Throws IoError.
    void append(std::span<const TokenId> tokens) { file_->append_tokens(tokens); }
    /// Between passes: saves KV that has filled; every five minutes what was learnt about guessing. Where the system
    /// refuses KV (a full disk) the session goes on with tokens alone, and a line to tell comes back.
    [[nodiscard]] std::optional<std::string> save(const TextGenerator& generator);
    /// The run is over: all is on the disk.
    void complete() { file_->sync(); }

private:
    template <typename T>
    void agree(std::string_view option, const std::optional<T>& demanded, const T& held) const;
    [[noreturn]] void contradict(std::string_view option, std::string_view demanded, std::string_view held) const;
    [[nodiscard]] std::optional<HeldSplit> held_split() const;
    void take_split(ComputeOptions& compute) const;
    void check_split(const LoadedModel& model) const;
    [[nodiscard]] SessionBegin fresh_begin(const SessionStart& start, const LoadedModel& model) const;
    std::int64_t restore(SessionKv& kv, const EngineCallbacks& callbacks) const;
    void say_what_is_kept(std::int64_t longest_tokens, const EngineCallbacks& callbacks) const;

    SessionRequest request_;
    std::optional<SessionFile> file_;
    std::optional<SessionKv> kv_;
    std::chrono::steady_clock::time_point tables_kept_ = std::chrono::steady_clock::now();
};

}  // namespace slipstream::tools
