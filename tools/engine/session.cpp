#include "tools/engine/session.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "draft/tables/model_fingerprint.h"
#include "kernels/base/error.h"
#include "runtime/model/rope.h"
#include "runtime/text/printable.h"
#include "tools/engine/engine_device.h"
#include "tools/options/build_version.h"
#include "tools/options/compute_options.h"
#include "tools/options/offload_options.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"
#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLimitBytes = std::size_t{4} << 30;
constexpr auto kTablesEvery = std::chrono::minutes(5);
constexpr std::size_t kShownBytes = 40;  // of a text in a message

// What a prompt depends on beside its text.
constexpr std::string_view kPromptOptions[] = {"system", "template", "template-arg", "no-template"};

std::vector<std::string> prompt_options(const Settings& settings) {
    std::vector<std::string> given;
    for (const std::string_view option : kPromptOptions)
        if (const Setting* setting = settings.find(option); setting != nullptr)
            for (const std::string& value : setting->values) given.push_back(fmt::format("{} {}", option, value));
    return given;
}

std::string shown(std::string_view text) {
    return fmt::format("'{}'", printable(text, kShownBytes));
}
std::string shown(const std::vector<std::string>& texts) {
    std::string list;
    for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + shown(text);
    return list.empty() ? "none" : list;
}
template <typename T>
std::string shown(const T& value) {
    return fmt::format("{}", value);
}

// The part of two texts in which they begin to differ.
std::string shown_from(std::string_view text, std::size_t at) {
    const std::size_t begin = at > kShownBytes / 2 ? at - kShownBytes / 2 : 0;
    return begin == 0 ? shown(text) : fmt::format("'...{}'", printable(text.substr(begin), kShownBytes));
}

std::size_t limit_setting(const Settings& settings) {
    const Setting* setting = settings.find("session-limit");
    if (setting == nullptr) return kLimitBytes;
    const auto bytes = parse_size(setting->values.back());
    if (!bytes)
        throw UsageError(fmt::format("{}: a size such as 300M or 8GiB expected, found '{}'", setting->where,
                                     setting->values.back()));
    return *bytes;
}

}  // namespace

std::vector<OptionSpec> session_option_specs() {
    return {{"session", "--session", "F", "Keep text and KV in this file as they grow, and go on with what it holds",
             OptionRole::OutputFile},
            {"session-limit", "--session-limit", "SIZE",
             "Most KV to keep in it; beyond, tokens alone, and KV is computed again; 0: none [4G]"}};
}

std::optional<TextSession> TextSession::open(CommandContext& context) {
    const Settings& settings = context.settings;
    const auto path = settings.path("session");
    const std::size_t limit_bytes = limit_setting(settings);
    if (!path) {
        if (const Setting* limit = settings.find("session-limit"); limit && limit->origin == Origin::CommandLine)
            throw UsageError(fmt::format("{} acts on a session; give --session F, or leave it out", limit->where));
        return std::nullopt;
    }
    if (settings.text("verify") == "rejection")
        throw UsageError(
            "--verify rejection with --session: what it draws depends on the guesses, so a session could not go on "
            "with the same text; leave one of them out");
    TextSession session(settings, *path, limit_bytes);
    session.file_ = SessionFile::open(session.path_);
    if (!session.file_) SessionFile::check_place(session.path_);
    return session;
}

bool TextSession::on_command_line(std::string_view option) const {
    if (!settings_->has(option)) return false;
    const Setting* setting = settings_->find(option);
    return setting != nullptr && setting->origin == Origin::CommandLine;
}

void TextSession::contradict(std::string_view option, std::string_view chosen, std::string_view held) const {
    throw RequestError(
        fmt::format("--{} {}: the session {} was begun with {}; leave the option out to go on with it, or name another "
                    "session",
                    option, chosen, path_.string(), held));
}

template <typename T>
void TextSession::agree(std::string_view option, const std::optional<T>& chosen, const T& held) const {
    if (chosen && *chosen != held && on_command_line(option)) contradict(option, shown(*chosen), shown(held));
}

void TextSession::decide(ComputeOptions& compute, TextGenerationOptions& text) const {
    const SessionBegin& held = begin();
    agree("ctx", compute.context_tokens, held.context_tokens);
    compute.context_tokens = held.context_tokens;
    if (compute.kv_dtype && *compute.kv_dtype != held.kv_dtype && on_command_line("kv-type"))
        contradict("kv-type", dtype_name(*compute.kv_dtype), dtype_name(held.kv_dtype));
    compute.kv_dtype = held.kv_dtype;
    // Those of a template stand behind those that were asked for.
    const std::size_t n_stops = std::min(text.stops.size(), held.stops.size());
    if (on_command_line("stop") && !std::ranges::equal(text.stops, std::span(held.stops).first(n_stops)))
        contradict("stop", shown(text.stops), shown(held.stops));
    text.stops = held.stops;
    if (on_command_line("echo") && settings_->flag("echo") && held.echo == PromptEcho::No)
        contradict("echo", "is given", "the text alone");
    const std::int64_t n_generated = std::ssize(tokens());
    if (!on_command_line("max-tokens")) text.max_tokens = file_->max_tokens();
    if (text.max_tokens >= 0 && text.max_tokens < n_generated)
        throw RequestError(fmt::format(
            "--max-tokens {}: the session {} holds {} generated tokens already; ask for as many or more, or "
            "leave the option out",
            text.max_tokens, path_.string(), n_generated));
    text.n_resumed = n_generated;
}

SamplerOptions TextSession::decide(const SamplingSettings& chosen) const {
    const SamplerOptions& held = begin().sampling;
    agree("temperature", chosen.temperature, held.temperature);
    agree("top-k", chosen.top_k, held.top_k);
    agree("top-p", chosen.top_p, held.top_p);
    agree("min-p", chosen.min_p, held.min_p);
    agree("repeat-penalty", chosen.repeat_penalty, held.repeat_penalty);
    agree("seed", chosen.seed, held.seed);
    return held;
}

fs::path TextSession::model_path(const CommandContext& context) const {
    if (on_command_line("model")) return choose_model(context);
    std::error_code error;
    if (!fs::exists(begin().model_path, error))
        throw RequestError(
            fmt::format("the session {} was begun with the model {}, which is not there; say by -m where "
                        "it is now",
                        path_.string(), begin().model_path));
    context.console.detail(fmt::format("model = {} (the session's)", begin().model_path));
    return begin().model_path;
}

bool TextSession::is_prompt_text_given() const {
    return on_command_line("prompt") || on_command_line("prompt-file");
}

void TextSession::check_prompt(std::string_view prompt_text) const {
    const std::string_view held = begin().prompt_text;
    if (prompt_text != held) {
        const auto at = static_cast<std::size_t>(std::ranges::mismatch(prompt_text, held).in1 - prompt_text.begin());
        contradict(on_command_line("prompt-file") ? "prompt-file" : "prompt", shown_from(prompt_text, at),
                   shown_from(held, at));
    }
    const std::vector<std::string>& options = begin().prompt_options;
    for (const std::string_view option : kPromptOptions) {
        if (!on_command_line(option)) continue;
        std::vector<std::string> held_values;
        for (const std::string& text : options)
            if (text.starts_with(option) && text[option.size()] == ' ')
                held_values.push_back(text.substr(option.size() + 1));
        const std::vector<std::string>& values = settings_->find(option)->values;
        if (values != held_values) contradict(option, shown(values), shown(held_values));
    }
}

void TextSession::check_model(const EngineModel& engine, Console& console) const {
    const ModelFiles& files = *engine.files;
    const SessionBegin& held = begin();
    const ModelConfig& config = files.config();
    if (draft::model_fingerprint(files) != held.model_fingerprint || config.vocab != held.vocab ||
        config.n_layers != held.n_layers)
        throw RequestError(fmt::format(
            "the model {} is not the one that the session {} was begun with ({}), or was changed since; name "
            "that one by -m, or another session",
            engine.path.string(), path_.string(), held.model_path));
    const KvShape kv{config.n_kv_heads, config.head_dim, held.kv_dtype};
    if (rope_fingerprint(rope_frequencies(config, held.context_tokens)) != held.rope_fingerprint ||
        kv.chunk_bytes() != held.kv_chunk_bytes)
        throw RequestError(
            fmt::format("the session {} was begun with other rope frequencies or another KV cache of this "
                        "model by version {}; begin another",
                        path_.string(), held.program_version));
    const DeviceChoice device = choose_device(*settings_);
    const std::string_view kind = device_kind_name(device.kind());
    if (held.device_kind != kind || held.instruction_form != device.form)
        throw RequestError(fmt::format(
            "the session {} was computed on {} ({}), here it would be {} ({}), whose results differ in their "
            "last bits; go on there, or begin another",
            path_.string(), held.device_kind, held.instruction_form, kind, device.form));
    if (held.program_version != build_version())
        console.note(fmt::format("the session was begun by version {}, this is {}: its kernels may round differently",
                                 held.program_version, build_version()));
}

ReplayedText TextSession::replay(const Tokenizer& tokenizer, const TextGenerationOptions& text) const {
    try {
        return replay_text(tokenizer, begin().text_start, begin().end_tokens, text, tokens(),
                           begin().context_tokens - file_->text_tokens());
    } catch (const FormatError& error) {
        throw FormatError(fmt::format("{}: a damaged session ({}); begin another", path_.string(), error.what()));
    }
}

SessionBegin TextSession::fresh_begin(const SessionStart& start, const EngineModel& engine) const {
    std::error_code error;
    const fs::path absolute = fs::absolute(engine.path, error);
    return {.program_version = std::string(build_version()),
            .model_path = (error ? engine.path : absolute).string(),
            .model_fingerprint = draft::model_fingerprint(*engine.files),
            .device_kind = std::string(device_kind_name(engine.device->kind())),
            .instruction_form = std::string(engine.device->instruction_form()),
            .context_tokens = engine.context_tokens,
            .rope_fingerprint = rope_fingerprint(engine.model->rope()),
            .kv_dtype = engine.kv_dtype,
            .n_layers = engine.model->config().n_layers,
            .kv_chunk_bytes = engine.model->kv_shape().chunk_bytes(),
            .vocab = engine.model->config().vocab,
            .sampling = *start.sampling,
            .stops = start.text->stops,
            .end_tokens = {start.end_tokens.begin(), start.end_tokens.end()},
            .max_tokens = start.text->max_tokens,
            .text_start = start.text_start,
            .echo = start.echo,
            .prompt_text = std::string(start.prompt_text),
            .prompt_options = prompt_options(*settings_),
            .prompt = {start.prompt.begin(), start.prompt.end()}};
}

void TextSession::say_what_is_kept(std::int64_t longest_tokens, Console& console) const {
    if (kv_->max_tokens() >= longest_tokens / kChunkTokens * kChunkTokens) return;
    console.note(fmt::format(
        "the session keeps the KV of {} tokens at most (--session-limit {}); what comes behind them is kept as tokens, "
        "and computed again when the session is resumed",
        kv_->max_tokens(), size_text(limit_bytes_)));
}

void TextSession::attach(const SessionStart& start, TextGenerator& generator, const EngineModel& engine,
                         CommandContext& context) {
    const bool is_old = resumes();
    if (!is_old) file_ = SessionFile::create(path_, fresh_begin(start, engine));
    kv_.emplace(*file_, generator.target(), limit_bytes_);
    const std::int64_t n_prompt = std::ssize(begin().prompt);
    const std::int64_t room = begin().context_tokens - n_prompt;
    const std::int64_t asked = start.text->max_tokens;
    say_what_is_kept(n_prompt + (asked < 0 ? room : std::min(asked, room)), context.console);
    if (!is_old) return;
    if (asked != file_->max_tokens()) file_->append_max_tokens(asked);
    ProgressBar bar(context.console, "reading the session");
    const std::int64_t n_restored = kv_->restore([&](std::int64_t done, std::int64_t total) {
        throw_if_interrupted();
        bar.update(static_cast<double>(done), static_cast<double>(total),
                   size_text(static_cast<std::size_t>(done) * begin().kv_chunk_bytes));
    });
    bar.clear();
    context.console.note(fmt::format("going on with {}: {} and {} generated; KV of {} is read, of {} computed again",
                                     path_.string(), counted(n_prompt, "prompt token"), std::ssize(tokens()),
                                     counted(n_restored, "token"), n_prompt + std::ssize(tokens()) - n_restored));
}

void TextSession::save(const TextGenerator& generator, Console& console) {
    kv_->save();
    const auto now = std::chrono::steady_clock::now();
    if (now - tables_kept_ < kTablesEvery) return;
    generator.keep_tables(console);
    tables_kept_ = std::chrono::steady_clock::now();
}

}  // namespace slipstream::tools
