#include "tools/cli/session_options.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/options/text_options.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {

namespace {

// Options on which the tokens of a prompt depend, other than its text.
constexpr std::string_view kPromptOptions[] = {"system", "template", "template-arg", "no-template", "special"};

std::vector<PromptOption> prompt_options(const Settings& settings) {
    std::vector<PromptOption> options;
    for (const std::string_view name : kPromptOptions)
        if (const Setting* setting = settings.find(name); setting != nullptr)
            options.push_back({.name = std::string(name),
                               .values = setting->values,
                               .demanded = setting->origin == Origin::CommandLine});
    return options;
}

// Returns `value` if the command line gives `option`, else nothing.
template <typename T>
std::optional<T> demanded(const Settings& settings, std::string_view option, std::optional<T> value) {
    return settings.on_command_line(option) != nullptr ? std::move(value) : std::nullopt;
}

SamplingSettings demanded_sampling(const Settings& settings) {
    const SamplingSettings chosen = sampling_settings(settings);
    return {.temperature = demanded(settings, "temperature", chosen.temperature),
            .top_k = demanded(settings, "top-k", chosen.top_k),
            .top_p = demanded(settings, "top-p", chosen.top_p),
            .min_p = demanded(settings, "min-p", chosen.min_p),
            .repeat_penalty = demanded(settings, "repeat-penalty", chosen.repeat_penalty),
            .repeat_window = demanded(settings, "repeat-last-n", chosen.repeat_window),
            .presence_penalty = demanded(settings, "presence-penalty", chosen.presence_penalty),
            .frequency_penalty = demanded(settings, "frequency-penalty", chosen.frequency_penalty),
            .bias = demanded(settings, "logit-bias", chosen.bias),
            .ignore_end = settings.on_command_line("ignore-eos") != nullptr && chosen.ignore_end,
            .seed = demanded(settings, "seed", chosen.seed)};
}

}  // namespace

std::vector<OptionSpec> session_option_specs() {
    return {{"session", "--session", "F",
             "Keep text and KV in this file as they grow (states of recurrent layers in F.states, which moves with "
             "it), and go on with what it holds",
             OptionRole::OutputFile},
            {"session-limit", "--session-limit", "SIZE",
             "Most KV to keep in it, and what an unfinished prompt and recurrent layers keep beside it; beyond, tokens "
             "alone, and KV is computed again; 0: none [4G]"}};
}

OptionSpec session_limit_option() {
    return {"session-limit", "--session-limit", "SIZE",
            "Most bytes to keep of an unfinished prompt beside the session; 0: none [4G]"};
}

std::size_t session_limit(const Settings& settings) {
    const Setting* limit = settings.find("session-limit");
    if (limit == nullptr) return SessionRequest{}.limit_bytes;
    const std::string& text = limit->values.back();
    const std::size_t bytes = parse_size(text) == 0 ? 0 : size_value(text, limit->where, "0 for tokens alone");
    if (!settings.path("session") && settings.on_command_line("session-limit") != nullptr)
        throw UsageError(fmt::format("{} requires a session; give --session F, or remove it", limit->where));
    return bytes;
}

std::optional<SessionRequest> session_request(const Settings& settings) {
    SessionRequest request;
    const auto path = settings.path("session");
    request.limit_bytes = session_limit(settings);
    if (!path) return std::nullopt;
    if (settings.text("verify") == "rejection")
        throw UsageError(
            "--verify rejection with --session: its samples depend on the draft tokens, so a session could not go on "
            "with the same text; leave one of them out");
    const TextGenerationOptions text = text_options(settings);
    request.path = *path;
    request.context_tokens = demanded(settings, "ctx", context_setting(settings));
    request.kv_dtype = demanded(settings, "kv-type", kv_type_setting(settings));
    request.sampling = demanded_sampling(settings);
    request.stops = demanded(settings, "stop", std::optional(text.stops));
    request.max_tokens = demanded(settings, "max-tokens", std::optional(text.max_tokens));
    request.echo = settings.on_command_line("echo") != nullptr && settings.flag("echo");
    request.split = settings.on_command_line("split") != nullptr;
    request.shares = settings.on_command_line("shares") != nullptr;
    request.prompt_options = prompt_options(settings);
    return request;
}

void take_session_devices(const TextSession& session, Settings& settings) {
    if (!session.resumes() || settings.on_command_line("devices") != nullptr) return;
    const std::string devices = session.devices_instead_of(devices_setting(settings));
    if (devices.empty()) return;
    try {
        static_cast<void>(choose_devices(devices));
    } catch (const RequestError&) {
        return;  // not on this machine: check_model() reports where the text was computed
    }
    settings = settings.with("devices", devices, "the session's devices");
}

OpenedModel open_session_model(const TextSession& session, const std::vector<DeviceChoice>& devices,
                               const CommandContext& context, const EngineCallbacks& callbacks) {
    const bool is_named = context.settings.on_command_line("model") != nullptr;
    OpenedModel opened(is_named ? choose_model(context) : session.model_path());
    if (!is_named) context.console.detail(fmt::format("model = {} (the session's)", opened.path().string()));
    session.check_model(opened, devices, callbacks);
    return opened;
}

}  // namespace slipstream::tools
