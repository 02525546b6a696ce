// slipstream chat: a conversation, at a terminal or through a pipe. stdout gets the answers and nothing else.
#include <unistd.h>

#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/amounts.h"
#include "tools/base/kv_type_option.h"
#include "tools/base/usage_error.h"
#include "tools/chat/chat_file.h"
#include "tools/chat/chat_generator.h"
#include "tools/chat/chat_loop.h"
#include "tools/chat/chat_report.h"
#include "tools/chat/chat_settings.h"
#include "tools/chat/line_editor.h"
#include "tools/chat/unseen_typing.h"
#include "tools/cli/console_callbacks.h"
#include "tools/cli/session_options.h"
#include "tools/engine/engine.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/output_files.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/options/template_options.h"
#include "tools/options/text_options.h"
#include "tools/options/trace_output.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/shown_text.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

// The settings of a chat, read and checked before the model is opened.
struct Request {
    GeneratorOptions generator;
    SamplingSettings sampling;
    TemplateSettings chat_template;
    TextGenerationOptions text;
};

Request read_request(CommandContext& context) {
    const Settings& settings = context.settings;
    Request request;
    request.generator.compute = compute_options(settings);
    request.sampling = sampling_settings(settings);
    request.generator.draft = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto").front();
    if (settings.flag("self-check")) request.generator.check = CheckPasses::Yes;
    request.chat_template = template_settings(settings);
    request.text = text_options(settings);
    return request;
}

// Replaces those settings of a saved session that the command line gives. Defaults of the environment and the
// configuration file do not replace the session's.
void keep_given(const ChatSession& fresh, const Settings& settings, ChatSession& session) {
    for (const std::string_view name : setting_names()) {
        if (name == "think") continue;  // no option is named think: --template-arg sets the variable
        if (settings.on_command_line(name) == nullptr) continue;
        if (name == "stop") {
            session.settings.text.stops = fresh.settings.text.stops;
            continue;
        }
        const std::string described = describe_setting(fresh.settings, name);
        change_setting(session.settings, name, described.substr(name.size() + 1), name);
    }
    if (settings.on_command_line("system") != nullptr) {
        session.system = fresh.system;
        session.system_source = fresh.system_source;
    }
    session.model = fresh.model;
}

// Sets compute.kv_dtype to the KV type of the session, if it has one. Throws RequestError if the command line asks for
// another one; a type from the environment or the configuration file is only a default and gives way.
void take_kv_type(const ChatSession& session, const std::string& name, const Settings& settings,
                  ComputeOptions& compute) {
    if (!session.kv_dtype) return;
    if (settings.on_command_line("kv-type") != nullptr && compute.kv_dtype && *compute.kv_dtype != *session.kv_dtype)
        throw RequestError(fmt::format(
            "--kv-type {}: the session {} was begun with {}; leave the option out to go on with it, or name another "
            "session",
            kv_type_option(*compute.kv_dtype), name, kv_type_option(*session.kv_dtype)));
    compute.kv_dtype = session.kv_dtype;
}

ChatSession open_session(std::optional<ChatFile>& file, ChatSession fresh, const ChatForm& form,
                         CommandContext& context, ComputeOptions& compute) {
    if (!file) return fresh;
    std::optional<ChatSession> session = file->load(fresh.settings);
    if (!session) {
        file->save(fresh);  // so that a file that cannot be written is reported before the first answer
        return fresh;
    }
    const std::string name = file->path().string();
    take_kv_type(*session, name, context.settings, compute);
    if (session->model != fresh.model)
        context.console.note(fmt::format("{} was held with {} and goes on with {}", name, session->model, fresh.model));
    keep_given(fresh, context.settings, *session);
    context.console.note(describe_messages(name, *session));
    if (const auto note = system_note(name, *session, form)) context.console.note(*note);
    return std::move(*session);
}

std::unique_ptr<ChatInput> make_input(InputMode mode, std::int64_t context_tokens, CommandContext& context) {
    if (mode == InputMode::Interactive)
        return std::make_unique<LineEditor>(context.settings.environment(), context.console);
    return std::make_unique<PipedInput>(most_text_bytes(context_tokens));
}

// Returns a model's name for the user: "smollm2-135m-instruct" for .../smollm2-135m-instruct.gguf. The bundled model
// has a name of its own, since its folder is called "target".
std::string model_title(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::equivalent(path, bundled_model(program_folder()), error)) return "the bundled teller of tales";
    const std::filesystem::path whole = std::filesystem::absolute(path, error).lexically_normal();
    const std::filesystem::path name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
    return name.extension() == ".gguf" ? name.stem().string() : name.string();
}

// Shows the last exchange of a saved chat at its start, wrapped as it was then.
void show_last_exchange(const ChatSession& session, Console& console) {
    if (session.messages.size() < 2) return;
    ShownText shown;
    shown.wrap_at(console.columns());
    std::string text = shown.take(fmt::format("> {}\n{}", session.messages[session.messages.size() - 2].content,
                                              session.messages.back().content));
    text += shown.rest();
    console.note("the last exchange was:");
    console.draw({ControlKind::Dim, text, ControlKind::PlainColor, text.ends_with('\n') ? "" : "\n"});
}

void greet(const LoadedModel& model, const ChatForm& form, const ChatSession& session, InputMode mode,
           Console& console) {
    if (mode == InputMode::Interactive)
        console.note(fmt::format("{}, {}, a context of {}", model_title(model.path()),
                                 size_text(model.files().total_bytes()), counted(model.context_tokens(), "token")));
    if (form.is_one_text())
        console.note(
            "a tale told in turns: write a line, the model goes on with it to the paragraph's end; an empty line "
            "says go on");
    if (mode != InputMode::Interactive) return;
    if (!console.quiet()) show_last_exchange(session, console);
    console.note("/help lists the commands; Ctrl-D leaves");
}

int run_chat(CommandContext& context) {
    Console& console = context.console;
    const EngineCallbacks callbacks = console_callbacks(context);
    Request request = read_request(context);
    const std::size_t limit_bytes = session_limit(context.settings);
    std::optional<ChatFile> file;  // locked before the model is loaded, so that a conflict is reported at once
    if (const auto path = context.settings.path("session")) file.emplace(*path);
    StatisticsOutput stats(context.settings.text("stats"));
    const std::unique_ptr<TraceFile> trace = trace_output(context.settings);
    const bool at_terminal = isatty(STDIN_FILENO) == 1 && console.stderr_is_terminal();
    const InputMode mode = at_terminal ? InputMode::Interactive : InputMode::Piped;
    std::optional<UnseenTyping> unseen(mode);  // until the model is loaded
    OpenedModel opened(choose_model(context));
    const auto tokenizer = make_tokenizer(opened.files().tokenizer_source());
    const SamplerOptions sampling = resolve_sampling(request.sampling, opened.files().generation_defaults(), callbacks);
    const ChatForm form(conversation_template(request.chat_template, opened, *tokenizer, callbacks), *tokenizer,
                        &cancel_flag());
    ChatSession session = open_session(
        file,
        {.model = opened.path().string(),
         .system = request.chat_template.system,
         .settings = {.sampling = sampling, .ignore_end = request.sampling.ignore_end, .text = request.text},
         .messages = {}},
        form, context, request.generator.compute);
    if (file && !ends_unanswered(session)) KeptPrompt::remove(file->path());  // files that a killed program left
    ChatGenerator generator(request.generator, std::move(opened), *tokenizer, session.settings, callbacks);
    session.kv_dtype = generator.model().kv_dtype();
    std::optional<KeptPrompt> kept_prompt;
    if (file) generator.keep_prompts(kept_prompt.emplace(file->path(), limit_bytes, callbacks));
    if (trace) generator.trace_with(*trace);
    unseen.reset();
    const auto input = make_input(mode, generator.context_tokens(), context);
    greet(generator.model(), form, session, mode, console);
    const auto check_output = [&](std::string_view command, const std::filesystem::path& path) {
        check_output_file(context.settings, command, path);
    };
    ChatLoop loop(generator, form, console, mode, std::move(session), file ? &*file : nullptr, check_output);
    int code = 0;
    try {
        code = loop.run(*input);
    } catch (...) {
        generator.generator().keep_tables();
        throw;
    }
    RunFigures figures{.seed = loop.session().settings.sampling.seed};
    generator.add_figures(figures);
    if (!loop.ends_unanswered()) generator.drop_prompt();
    generator.generator().complete(figures);
    if (trace) {
        trace->complete();
        if (const auto note = trace->take_note()) console.note(*note);
    }
    stats.write(statistics_json(generator.model(), generator.totals(), figures), loop.output());
    return code;
}

}  // namespace

CommandSpec chat_command() {
    CommandSpec command{
        .name = "chat",
        .summary = "Talk with a model in turns; piped input is one turn a line",
        .details =
            "The model's chat template is used if it has one; a model without one gets the form that its vocabulary "
            "or\n"
            "name implies, named on stderr. A model with neither, as the bundled one, tells a tale in turns: your "
            "line\n"
            "and its continuation alternate in one text, a paragraph each, and an empty line says go on.\n"
            "Commands: /help /stats /context /save /load /undo /regen /set /system /read /clear /exit. A message of\n"
            "several lines is put between \"\"\" and \"\"\"; one that begins with a slash is written with two. Ctrl-C "
            "stops an\nanswer and keeps it, twice in a row leaves, Ctrl-D leaves.\n"
            "With --session F a prompt that is interrupted or killed is kept too, in F.kv, F.kv.prompt and "
            "F.kv.states,\n"
            "until it is answered: the next chat on F goes on with it by /regen.",
        .example = "printf 'Once upon a time a fox\\nThe fox said\\n' | slipstream chat --seed 7",
        .options = {{"session", "--session", "F", "Keep the chat in this file (JSON); go on with it where it exists",
                     OptionRole::OutputFile},
                    session_limit_option(),
                    {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N",
                     "Most tokens of an answer; -1: no limit [-1]"},
                    {"stop", "--stop", "TEXT", "End an answer before this text (may be repeated)"},
                    model_option(),
                    context_option(),
                    kv_type_option()},
        .run = run_chat};
    const auto add = [&](const std::vector<OptionSpec>& options) {
        command.options.insert(command.options.end(), options.begin(), options.end());
    };
    add(template_option_specs());
    add(device_options());
    add(offload_option_specs());
    add(sampling_option_specs());
    add(draft_option_specs(DraftPlace::OnModel));
    add({{"self-check", "--self-check", "",
          "Compute each pass again without draft tokens and compare the logits bit for bit"},
         statistics_option(),
         trace_option()});
    return command;
}

}  // namespace slipstream::tools
