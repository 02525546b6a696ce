// slipstream serve: the HTTP server. Three threads: this one loads the model and generates, one has all sockets, one
// parses and tokenizes. It listens before the model is loaded, and requests wait.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/machine/model_stores.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/options/template_options.h"
#include "tools/options/text_options.h"
#include "tools/serve/api.h"
#include "tools/serve/engine_texts.h"
#include "tools/serve/http_server.h"
#include "tools/serve/line_queue.h"
#include "tools/serve/serve_options.h"
#include "tools/serve/text_runner.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::chrono::milliseconds kLookForSignals{50};

// The options of a run, read and checked before the model is opened.
struct Request {
    ListenSettings listen;
    GeneratorOptions generator;
    SamplingSettings sampling;
    TextGenerationOptions text;
    TemplateSettings chat_template;
};

Request read_request(const Settings& settings) {
    Request request{.listen = listen_settings(settings)};
    request.generator.compute = compute_options(settings);
    request.generator.kept_memory = kept_memory_setting(settings);
    request.sampling = sampling_settings(settings);
    request.generator.draft = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto").front();
    request.text = text_options(settings);
    request.chat_template = template_settings(settings);
    return request;
}

// Clock of the server's deadlines, in which a suspension of the program counts as at most kLongestStep, so that clients
// do not miss deadlines because of it: a call adds at most kLongestStep to the time of the call before.
class AwakeClock {
public:
    ServerTime operator()() {
        constexpr std::chrono::seconds kLongestStep{2};
        const ServerTime real = std::chrono::steady_clock::now();
        now_ += std::min<ServerTime::duration>(real - last_, kLongestStep);
        last_ = real;
        return now_;
    }

private:
    ServerTime last_ = std::chrono::steady_clock::now();
    ServerTime now_ = last_;
};

// The thread of the sockets, on which the server runs. The destructor answers all requests and ends the thread.
// `server` and `api` must outlive this object.
class ServerThread {
public:
    ServerThread(HttpServer& server, Api& api) : server_(server), api_(api), thread_([this] { server_.run(); }) {}
    ~ServerThread() {
        server_.cancel_all();
        api_.stop();
        server_.stop();
        thread_.join();
    }
    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;

private:
    HttpServer& server_;
    Api& api_;
    std::thread thread_;
};

// Returns `callbacks` changed so that they also write the progress of loading into `status`, from which clients get it.
// `status` must outlive them.
EngineCallbacks with_status(EngineCallbacks callbacks, ServerStatus& status) {
    callbacks.on_work = [on_work = callbacks.on_work, &status](const std::string& work) -> WorkProgress {
        status.update([&](StatusSnapshot& state) {
            state.work = work;
            state.work_done = 0.0;
        });
        return [shown = on_work(work), &status](double done, double total, std::string_view figures) {
            status.update([&](StatusSnapshot& state) { state.work_done = total > 0.0 ? done / total : 0.0; });
            if (shown) shown(done, total, figures);
        };
    };
    return callbacks;
}

// Returns the local time as "14:03:59", for the lines of the log.
std::string time_of_day() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

// Returns a text of the defaults that decide what a request does not set: sampling and the chat template. Servers with
// equal texts get equal fingerprints.
std::string defaults_text(const SamplerOptions& sampling, const PromptMaker& prompts, const Settings& settings) {
    std::string text = fmt::format("{} {} {} {} {} {} {} {}", sampling.temperature, sampling.top_k, sampling.top_p,
                                   sampling.min_p, sampling.repeat_penalty, sampling.repeat_window,
                                   sampling.presence_penalty, sampling.frequency_penalty);
    for (const TokenBias& bias : sampling.bias) text += fmt::format(" {}:{}", bias.id, bias.bias);
    return fmt::format("{} template {} {}", text, prompts.template_source(),
                       fmt::join(settings.texts("template-arg"), " "));
}

void show(LineQueue& lines, Console& console) {
    for (const auto& [level, line] : lines.take())
        level == LineQueue::Level::Note ? console.note(line) : console.detail(line);
}

std::string base_url(const ListenSettings& listen, std::uint16_t port) {
    const std::string host = listen.host.empty() || listen.host == "0.0.0.0" ? "127.0.0.1"
                             : listen.host == "::"                           ? "::1"
                                                                             : listen.host;
    return fmt::format("http://{}:{}", host.find(':') == std::string::npos ? host : fmt::format("[{}]", host), port);
}

// Returns the last name of an option's value that is a path on this machine, and any other value unchanged: clients
// must not learn folders.
std::string without_folders(const std::string& value) {
    std::error_code error;
    if (value.find('/') == std::string::npos || !std::filesystem::exists(value, error)) return value;
    const std::filesystem::path path = std::filesystem::path(value).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// Returns those of the given options that `generate` has too. With them, run in the folder of their files, `generate`
// produces the texts of this server.
std::vector<std::string> command_options(const Settings& settings) {
    const CommandSpec generate = generate_command();
    std::vector<std::string> options;
    for (const Settings::Given& given : settings.given()) {
        const auto is_same = [&](const OptionSpec& option) { return option.name == given.option->name; };
        if (std::ranges::none_of(generate.options, is_same)) continue;
        for (const std::string& value : given.setting->values) {
            const bool is_flag = given.option->value.empty();
            if (is_flag && value != "true") continue;
            options.push_back(fmt::format("--{}", given.option->name));
            if (!is_flag) options.push_back(without_folders(value));
        }
    }
    return options;
}

// Names the models that -m could serve, if the bundled one is served because no -m was given.
void name_other_models(const CommandContext& context) {
    constexpr std::size_t kMostNames = 8;
    if (context.settings.find("model") != nullptr) return;
    std::vector<std::string> names;
    for (const FoundModel& model : find_models(context.settings.environment(), {}).models) {
        std::string name = printable(full_name(model));
        if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
    if (names.empty()) return;
    const std::size_t n_more = names.size() - std::min(names.size(), kMostNames);
    names.resize(names.size() - n_more);
    context.console.note(fmt::format("other models for -m: {}{}", fmt::join(names, ", "),
                                     n_more > 0 ? fmt::format(", and {} more in 'slipstream models'", n_more) : ""));
}

// Runs texts of api.texts() on the calling thread until a signal has set cancel_flag().
void serve_texts(TextEngine& engine, Api& api, ServerStatus& status, LineQueue& lines, Console& console) {
    const auto log = [&](std::string_view line) {
        lines.add(LineQueue::Level::Note, fmt::format("{} {}", time_of_day(), line));
    };
    while (!cancel_flag().load()) {
        if (const auto job = api.texts().take(kLookForSignals)) run_text(*job, engine, status, api.live(), log);
        api.live().flush();
        show(lines, console);
    }
}

int run_serve(CommandContext& context) {
    Console& console = context.console;
    const Settings& settings = context.settings;
    const EngineCallbacks callbacks = console_callbacks(context);
    ignore_hangup();
    Request request = read_request(settings);
    OpenedModel opened(choose_model(context));
    const auto tokenizer = make_tokenizer(opened.files().tokenizer_source());
    const GenerationDefaults defaults = opened.files().generation_defaults();
    const PromptMaker prompts(*tokenizer, conversation_template(request.chat_template, opened, *tokenizer, callbacks),
                              defaults);
    SamplingSettings first = request.sampling;
    first.seed = first.seed.value_or(0);  // no text is drawn with this seed
    const SamplerOptions sampling = resolve_sampling(first, defaults, callbacks);
    check_logit_bias(sampling, opened.config().vocab);

    LineQueue lines;
    ServerStatus status(request.generator.compute.context_tokens.value_or(opened.config().context_tokens));
    Api api(
        {.access = request.listen.access,
         .sampling = request.sampling,
         .text = request.text,
         .command_options = command_options(settings),
         .on_line = [&lines](LineQueue::Level level,
                             std::string_view line) { lines.add(level, fmt::format("{} {}", time_of_day(), line)); }},
        describe_served(opened, *tokenizer, request.generator.compute, defaults_text(sampling, prompts, settings),
                        settings.text("alias").value_or(served_name(opened.path(), bundled_model(program_folder())))),
        prompts, status);
    HttpServer server(
        {.host = request.listen.host, .port = request.listen.port, .clock = AwakeClock(), .cancel = &cancel_flag()},
        api);
    const std::string url = base_url(request.listen, server.port());
    const ServerThread sockets(server, api);
    console.note(fmt::format("listening at {} while the model is loaded", url));
    EngineTexts engine(request.generator, std::move(opened), *tokenizer, sampling, with_status(callbacks, status));
    status.update([&](StatusSnapshot& state) {
        state.is_ready = true;
        state.context_tokens = engine.context_tokens();
        state.kept = engine.kept();
    });
    api.live().set_plan(engine.context_tokens(), plan_json(engine.generator().model()).to_text(JsonLayout::OneLine));
    console.note(fmt::format("{} is served, a context of {}; base URL {}/v1, page {}/; Ctrl-C stops", api.model().name,
                             counted(engine.context_tokens(), "token"), url, url));
    name_other_models(context);
    serve_texts(engine, api, status, lines, console);
    show(lines, console);
    RunFigures figures;
    engine.generator().complete(figures);
    return signal_exit_code();
}

}  // namespace

CommandSpec serve_command() {
    CommandSpec command{
        .name = "serve",
        .summary = "Serve a model over HTTP to editors, agents and other programs",
        .details =
            "Clients of the OpenAI API use the base URL http://127.0.0.1:8080/v1: chat completions, completions, "
            "responses.\n"
            "Clients of the Anthropic API use http://127.0.0.1:8080: messages. /completion is that of llama-server.\n"
            "A page for a browser is at http://127.0.0.1:8080/: chat, and what each pass of the model does.\n"
            "The same request with the same seed gives the same text, whatever ran before or beside it; it is the "
            "text\n"
            "of 'generate'. Texts are generated one after the other, 16 wait. Only this machine can connect, unless\n"
            "--host says otherwise. Sampling options and --max-tokens are for requests that do not set them.\n"
            "GET /health reports the progress of loading, /metrics what was done.",
        .example = "slipstream serve --port 8080",
        .options = serve_option_specs(),
        .run = run_serve};
    const auto add = [&](const std::vector<OptionSpec>& options) {
        command.options.insert(command.options.end(), options.begin(), options.end());
    };
    add({model_option(),
         context_option(),
         kv_type_option(),
         {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N", "Most tokens of an answer; -1: no limit [-1]"},
         {"stop", "--stop", "TEXT", "End an answer before this text (may be repeated)"}});
    for (const OptionSpec& option : template_option_specs())
        if (option.name != "system") command.options.push_back(option);  // requests have their own system message
    add(device_options());
    add(offload_option_specs());
    for (OptionSpec option : sampling_option_specs()) {
        if (option.name == "seed")
            option.help =
                "Seed of requests without one: the same seed gives the same text; -1: random [random, in the answer]";
        command.options.push_back(option);
    }
    add(draft_option_specs(DraftPlace::OnModel));
    return command;
}

}  // namespace slipstream::tools
