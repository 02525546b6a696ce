// Sessions of generate (--session F): a long text that outlives the program. Which options a session decides once it is
// there, what on the command line contradicts it, and what a run hands to the file as the text grows.
//
// A session decides all that its text depends on: prompt, samplers and seed, stop rules, context, KV type, model. On
// the command line the same values may stand again, so that one command can be given until it is done; other values are
// refused, both named. Environment and configuration file are standing wishes and give way. --max-tokens alone may
// change: it counts from the session's beginning. Who guesses, threads and memory are free, since no text depends on
// them.
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
#include "tools/engine/engine_model.h"
#include "tools/engine/text_generator.h"
#include "tools/options/command.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

/// --session, --session-limit.
[[nodiscard]] std::vector<OptionSpec> session_option_specs();

/// What a fresh session is begun with.
struct SessionStart {
    const SamplerOptions* sampling = nullptr;
    const TextGenerationOptions* text = nullptr;
    std::span<const TokenId> end_tokens{};
    StreamingDetokenizer::Start text_start = StreamingDetokenizer::Start::Continued;
    PromptEcho echo = PromptEcho::No;
    std::string_view prompt_text;
    std::span<const TokenId> prompt{};
};

class TextSession {
public:
    /// The session that --session names, opened where it is there; nothing without the option. Throws UsageError where
    /// options cannot act together, RequestError, FormatError, IoError as SessionFile does.
    [[nodiscard]] static std::optional<TextSession> open(CommandContext& context);

    /// Whether there is something to go on with. The calls below up to check_model() are for that case.
    [[nodiscard]] bool resumes() const { return file_.has_value(); }
    [[nodiscard]] const SessionBegin& begin() const { return file_->begin(); }
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return file_->tokens(); }
    /// Puts what the session decides in the place of what the settings said. RequestError where the command line says
    /// otherwise.
    void decide(ComputeOptions& compute, TextGenerationOptions& text) const;
    /// The same of the samplers.
    [[nodiscard]] SamplerOptions decide(const SamplingSettings& chosen) const;
    /// Where its model is: what -m on the command line names, else where it was found before. RequestError where it is
    /// no longer there.
    [[nodiscard]] std::filesystem::path model_path(const CommandContext& context) const;
    /// Whether the command line names a prompt. Without one stdin is not read.
    [[nodiscard]] bool is_prompt_text_given() const;
    /// RequestError where the command line names another prompt, or a template, system text or the like that the prompt
    /// was not made with. Its tokens stay as they are: a template may render the date.
    void check_prompt(std::string_view prompt_text) const;
    /// RequestError where the model, its rope, or what would compute it here is not what the text was begun with.
    void check_model(const EngineModel& engine, Console& console) const;
    /// What was generated before, as text.
    [[nodiscard]] ReplayedText replay(const Tokenizer& tokenizer, const TextGenerationOptions& text) const;

    /// The model is loaded and the prompt fits: makes the file of a fresh session, or fills the cache with what an old
    /// one saved, with a bar. Says what of KV will be kept.
    void attach(const SessionStart& start, TextGenerator& generator, const EngineModel& engine,
                CommandContext& context);
    /// Tokens that a pass added. Throws IoError.
    void append(std::span<const TokenId> tokens) { file_->append_tokens(tokens); }
    /// Between passes: saves KV that has filled; every five minutes what was learnt about guessing.
    void save(const TextGenerator& generator, Console& console);
    /// The run is over: all is on the disk.
    void complete() { file_->sync(); }

private:
    TextSession(const Settings& settings, std::filesystem::path path, std::size_t limit_bytes)
        : settings_(&settings), path_(std::move(path)), limit_bytes_(limit_bytes) {}
    template <typename T>
    void agree(std::string_view option, const std::optional<T>& chosen, const T& held) const;
    [[nodiscard]] bool on_command_line(std::string_view option) const;
    [[noreturn]] void contradict(std::string_view option, std::string_view chosen, std::string_view held) const;
    [[nodiscard]] SessionBegin fresh_begin(const SessionStart& start, const EngineModel& engine) const;
    void say_what_is_kept(std::int64_t longest_tokens, Console& console) const;

    const Settings* settings_;
    std::filesystem::path path_;
    std::size_t limit_bytes_;
    std::optional<SessionFile> file_;
    std::optional<SessionKv> kv_;
    std::chrono::steady_clock::time_point tables_kept_ = std::chrono::steady_clock::now();
};

}  // namespace slipstream::tools
