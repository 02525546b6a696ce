// slipstream generate: completes a prompt. stdout gets the generated text only.
#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/loop/self_check.h"
#include "runtime/loop/text_generation.h"
#include "runtime/text/printable.h"
#include "runtime/text/request/conversation.h"
#include "runtime/text/request/request_json.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/amounts.h"
#include "tools/base/usage_error.h"
#include "tools/cli/console_callbacks.h"
#include "tools/cli/context_notes.h"
#include "tools/cli/messages_file.h"
#include "tools/cli/session_options.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/options/template_options.h"
#include "tools/options/text_options.h"
#include "tools/options/trace_output.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"
#include "tools/terminal/text_stream.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;

// The options of a run, read and checked before the model is opened.
struct Request {
    GeneratorOptions generator;
    SamplingSettings sampling;
    TextGenerationOptions text;
    TemplateSettings chat_template;
    std::optional<std::filesystem::path> output;
    bool echo = false;
    SpecialTokens special = SpecialTokens::AsText;
    bool is_conversation = false;  // the prompt is the JSON of --messages
};

// Returns the option that gives the prompt: "prompt", "prompt-file", "messages", or empty (stdin). Throws UsageError if
// two of them are given.
std::string_view prompt_option(const Settings& settings) {
    constexpr std::string_view kPromptOptions[] = {"prompt", "prompt-file", "messages"};
    return settings.strongest_of(kPromptOptions);
}

std::string read_prompt(const Settings& settings) {
    const std::string_view source = prompt_option(settings);
    if (source == "prompt") return *settings.text("prompt");
    if (source == "messages") return read_text(*settings.path("messages"), "--messages", kMaxRequestBytes);
    const std::size_t most = most_text_bytes(context_setting(settings));
    if (source == "prompt-file") return read_text(*settings.path("prompt-file"), "--prompt-file", most);
    if (isatty(STDIN_FILENO) == 1)
        throw UsageError("no prompt; give a text in quotes, --prompt-file F, or text on stdin");
    return read_text({}, "the prompt on", most);
}

// Throws UsageError if --messages is combined with an option whose value the messages contain themselves (--system) or
// that has no effect on them (--no-template, --special, --echo).
void check_messages_alone(const Settings& settings, const Request& request) {
    constexpr std::string_view kOthers[] = {"system", "no-template", "special", "echo"};
    for (const std::string_view name : kOthers)
        if (const Setting* given = settings.on_command_line(name))
            throw UsageError(
                fmt::format("--messages and {} exclude each other; the file has the whole conversation", given->where));
    if (request.chat_template.choice == TemplateChoice::None || request.echo || request.special == SpecialTokens::Parse)
        throw UsageError(
            "--messages cannot be combined with no-template, special or echo, which the environment or the "
            "configuration file sets; set them to false");
}

Request read_request(CommandContext& context) {
    const Settings& settings = context.settings;
    Request request;
    request.generator.compute = compute_options(settings);
    request.sampling = sampling_settings(settings);
    request.generator.draft = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto").front();
    if (settings.flag("self-check")) request.generator.check = CheckPasses::Yes;
    request.text = text_options(settings);
    if (const auto output = settings.path("output"); output && *output != "-") request.output = *output;
    request.echo = settings.flag("echo");
    if (settings.flag("special")) request.special = SpecialTokens::Parse;
    request.chat_template = template_settings(settings);
    request.is_conversation = prompt_option(settings) == "messages";
    if (request.is_conversation) check_messages_alone(settings, request);
    return request;
}

// Throws RequestError if `text` has more bytes than the context can hold. Called before the prompt is encoded, which
// takes long for such a text. It was read with a limit that did not know the model's context.
void check_text_bytes(std::string_view text, const Request& request, const ModelConfig& config) {
    const std::size_t most = most_text_bytes(request.generator.compute.context_tokens.value_or(config.context_tokens));
    if (text.size() > most)
        throw RequestError(
            fmt::format("the prompt has {}, more than the {} that a context of {} can hold; shorten it, or raise --ctx",
                        size_text(text.size()), size_text(most),
                        counted(request.generator.compute.context_tokens.value_or(config.context_tokens), "token")));
}

// Returns the tokens that the model reads: the raw text, or the text rendered by the chat template.
EncodedPrompt encoded(const std::string& text, const std::optional<PromptTemplate>& prompt_template,
                      const Request& request, const Tokenizer& tokenizer, const ModelConfig& config) {
    EncodedPrompt prompt;
    if (prompt_template) {
        if (request.special == SpecialTokens::Parse)
            throw UsageError(
                "--special has an effect only on raw text, and this model has a chat template; give --no-template too");
        std::vector<Message> messages;
        if (request.chat_template.system) messages.push_back({"system", *request.chat_template.system});
        messages.push_back({"user", text});
        prompt =
            encode_rendered(render_prompt(*prompt_template, messages, {}, &cancel_flag()), tokenizer, &cancel_flag());
    } else {
        prompt = encode_raw(text, tokenizer, request.special, &cancel_flag());
    }
    check_tokens(prompt.tokens, config);
    return prompt;
}

// Returns the tokens of the prompt for the answer to the messages `json`, and adds to request.text.stops what ends the
// answer. The same messages in a request to the server give the same tokens.
EncodedPrompt encoded_conversation(CommandContext& context, Request& request, const std::string& json,
                                   const OpenedModel& opened, const Tokenizer& tokenizer) {
    const EngineCallbacks callbacks = console_callbacks(context);
    const std::string name =
        fmt::format("{} {}", context.settings.find("messages")->where, *context.settings.path("messages"));
    const MessagesFile file = parse_messages_file(json, name);
    if (!file.ignored.empty())
        callbacks.note(
            fmt::format("{}: not used: {}; use the options of generate for sampling and lengths", name, file.ignored));
    request.chat_template.system.reset();
    request.chat_template.offers_tools = file.offers_tools();
    const ChatForm form(conversation_template(request.chat_template, opened, tokenizer, callbacks), tokenizer,
                        &cancel_flag());
    ConversationPrompt prompt;
    try {
        const Conversation conversation = make_conversation(file.conversation, form.prompt_template());
        for (const auto& [key, value] : conversation.arguments)
            if (!form.reads(key))
                callbacks.note(fmt::format("{}: the template does not read {}", name, printable(key)));
        prompt = form.prompt_text(conversation);
    } catch (const FieldError& error) {
        throw RequestError(fmt::format("{}: {}", name, error.what()));
    }
    request.text = form.with_stops(std::move(request.text));
    check_text_bytes(prompt.text.bytes, request, opened.config());
    EncodedPrompt encoded = encode_rendered(prompt.text, tokenizer, &cancel_flag());
    check_tokens(encoded.tokens, opened.config());
    return encoded;
}

// Files that are complete only at the end of a run. They are created at its start, so that a place that cannot be
// written is reported before the work.
class RunRecords {
public:
    explicit RunRecords(const Settings& settings) : stats_(settings.text("stats")), trace_(trace_output(settings)) {
        if (const auto path = settings.text("token-ids")) token_ids_.emplace(*path);
    }

    /// Returns the trace of the run; null: none was asked for.
    [[nodiscard]] TraceFile* trace() const { return trace_.get(); }

    /// Writes all files. If the token ids cannot be written, writes the statistics all the same and then throws. A
    /// trace that was cut off is only noted.
    void write(const TextGenerationResult& result, const JsonObject& statistics, TextOutput& output, Console& console) {
        if (trace_) {
            trace_->complete();
            if (const auto note = trace_->take_note()) console.note(*note);
        }
        std::exception_ptr failure;
        try {
            if (token_ids_) {
                std::string text;
                for (const TokenId id : result.tokens) text += fmt::format("{}\n", id);
                token_ids_->write(text);
                token_ids_->complete();
            }
        } catch (const IoError&) {
            failure = std::current_exception();
        }
        stats_.write(statistics, output);
        if (failure) std::rethrow_exception(failure);
    }

private:
    StatisticsOutput stats_;
    std::unique_ptr<TraceFile> trace_;
    std::optional<WholeFile> token_ids_;
};

// Writes the text of a session that has ended, which needs no computation, and the files of the run. Returns the exit
// code.
int report_finished_session(const TextSession& session, const ReplayedText& replayed, const OpenedModel& opened,
                            RunRecords& records, TextOutput& output, Console& console) {
    const std::string front = session.begin().echo == PromptEcho::Yes ? session.begin().prompt_text : "";
    const std::string text = front + replayed.shown;
    TextStream stream(output, console);
    stream.write(output.resume(text));
    stream.finish();
    TextGenerationResult result;
    result.stop_reason = *replayed.ended;
    result.tokens = session.tokens();
    result.resumed_tokens = std::ssize(result.tokens);
    result.prompt_tokens = std::ssize(session.begin().prompt);
    result.text_bytes = std::ssize(replayed.shown);
    records.write(result, statistics_json(opened, result, {.seed = session.begin().sampling.seed}), output, console);
    if (!session.damage().empty()) console.note(fmt::format("the session: {}", session.damage()));
    if (!output.closed()) console.note(summary_line(result, session.begin().sampling));
    return signal_exit_code();
}

// Returns the text of the prompt. A session that is continued has its prompt, so stdin is not read; a prompt from the
// command line must be the same (check_prompt()).
std::string prompt_text_of(const Settings& settings, const std::optional<TextSession>& session) {
    const bool resumes = session && session->resumes();
    const std::string_view given = prompt_option(settings);
    const std::string_view option = given.empty() ? "prompt" : given;
    std::string text =
        resumes && settings.on_command_line(option) == nullptr ? session->begin().prompt_text : read_prompt(settings);
    if (resumes) session->check_prompt(text, option);
    if (session && !resumes && text.empty() && given.empty())
        throw RequestError(
            fmt::format("there is no session {} to go on with, and no prompt to begin one: give one "
                        "(--prompt \"\" is the empty prompt), or name the session that is meant",
                        settings.text("session").value_or("")));
    return text;
}

// What the text depends on, other than the model, --stop and --max-tokens.
struct TextTask {
    SamplerOptions sampling;
    bool ignore_end = false;
    EncodedPrompt prompt;
    std::vector<TokenId> end_tokens;
};

TextTask resumed_task(const TextSession& session, const OpenedModel& opened) {
    const SessionBegin& begin = session.begin();
    return {session.sampling(opened.files().generation_defaults()),
            begin.ignore_end,
            {begin.prompt, begin.text_start},
            begin.end_tokens};
}

// Makes the task of a new text. If the prompt goes through a chat template, its end of a turn is added to
// request.text.stops.
TextTask new_task(CommandContext& context, Request& request, const std::string& prompt_text, const OpenedModel& opened,
                  const Tokenizer& tokenizer) {
    const GenerationDefaults& defaults = opened.files().generation_defaults();
    TextTask task{.ignore_end = request.sampling.ignore_end, .end_tokens = all_end_tokens(defaults, tokenizer)};
    task.sampling = resolve_sampling(request.sampling, defaults, console_callbacks(context));
    if (request.is_conversation) {
        task.prompt = encoded_conversation(context, request, prompt_text, opened, tokenizer);
        return task;
    }
    check_text_bytes(prompt_text, request, opened.config());
    const auto prompt_template =
        completion_template(request.chat_template, opened, tokenizer, console_callbacks(context));
    if (prompt_template && prompt_template->turn_end()) request.text.stops.push_back(*prompt_template->turn_end());
    task.prompt = encoded(prompt_text, prompt_template, request, tokenizer, opened.config());
    return task;
}

// Passes new text and tokens on while a text grows: to the user, into the session, and into the figures of the run.
struct GrowingText {
    TextStream& stream;
    TextSession* session;  // null: none
    TraceFile* trace;      // null: none
    TextGenerator& generator;
    ContextWatch control;
    Clock::time_point began;  // start of the program
    RunFigures figures{};

    void save() {
        if (session == nullptr) return;
        if (const auto note = session->save(generator)) stream.note(*note);
    }
    void note_trace() {
        if (trace == nullptr) return;
        if (const auto note = trace->take_note()) stream.note(*note);
    }
    void on_prefill(std::int64_t done, std::int64_t total) {
        stream.on_prefill(done, total);
        save();
        note_trace();
    }
    void on_tokens(std::int64_t n) {
        if (figures.first_token_seconds == 0.0) {
            figures.first_token_seconds = std::chrono::duration<double>(Clock::now() - began).count();
            generator.start_clock();  // decoding begins
        }
        stream.on_tokens(n);
        if (const auto note = control.at(n)) stream.note(*note);
        save();
        note_trace();
    }
    // Returns callbacks that refer to this object, which must outlive them.
    [[nodiscard]] TextGenerationCallbacks callbacks() {
        return {.on_prefill = [this](std::int64_t done, std::int64_t total) { on_prefill(done, total); },
                .on_text = [this](std::string_view text) { stream.write(text); },
                .on_commit =
                    [this](std::span<const TokenId> tokens) {
                        if (session != nullptr) session->append(tokens);
                    },
                .on_tokens = [this](std::int64_t n) { on_tokens(n); },
                .cancel = &cancel_flag()};
    }
    void complete() {
        stream.finish();
        if (session != nullptr) {
            if (const auto note = session->complete()) stream.note(*note);
            figures.resumed_prompt_tokens = session->n_resumed_prompt();
            figures.checkpoints = session->prompt().n_checkpoints();
            figures.checkpoint_bytes = session->prompt().checkpoint_bytes();
        }
        generator.complete(figures);
    }
};

int run_generate(CommandContext& context) {
    const Clock::time_point began = Clock::now();
    Console& console = context.console;
    const EngineCallbacks callbacks = console_callbacks(context);
    std::optional<TextSession> session;
    if (auto asked = session_request(context.settings)) {
        session.emplace(std::move(*asked));
        take_session_devices(*session, context.settings);
    }
    Request request = read_request(context);
    RunRecords records(context.settings);
    TextSession* const resumed = session && session->resumes() ? &*session : nullptr;
    if (resumed != nullptr) resumed->decide(request.generator.compute, request.text);
    const bool is_held = resumed != nullptr && context.settings.on_command_line("max-tokens") == nullptr;
    console.detail(
        is_held ? fmt::format("max-tokens = {} (the session's)", request.text.max_tokens)
                : context.settings.describe("max-tokens", fmt::format("{}", request.text.max_tokens), "built in"));
    const std::string prompt_text = prompt_text_of(context.settings, session);
    OpenedModel opened = resumed != nullptr
                             ? open_session_model(*resumed, request.generator.compute.devices, context, callbacks)
                             : OpenedModel(choose_model(context));
    const auto tokenizer = make_tokenizer(opened.files().tokenizer_source());
    TextTask task = resumed != nullptr ? resumed_task(*resumed, opened)
                                       : new_task(context, request, prompt_text, opened, *tokenizer);
    TextOutput output(request.output);
    ReplayedText replayed;
    if (resumed != nullptr) {
        replayed = resumed->replay(*tokenizer, request.text);
        if (replayed.ended) return report_finished_session(*resumed, replayed, opened, records, output, console);
    }
    const std::int64_t n_prompt = std::ssize(task.prompt.tokens);
    request.generator.prompt_tokens = n_prompt;
    TextGenerator generator(request.generator, std::move(opened),
                            task.ignore_end ? without_end_tokens(task.sampling, task.end_tokens) : task.sampling,
                            task.end_tokens, callbacks);
    if (records.trace() != nullptr) generator.trace_with(*records.trace());
    if (session)
        session->attach({.sampling = &task.sampling,
                         .ignore_end = task.ignore_end,
                         .text = &request.text,
                         .end_tokens = generator.end_tokens(),
                         .text_start = task.prompt.start,
                         .echo = request.echo ? PromptEcho::Yes : PromptEcho::No,
                         .prompt_text = prompt_text,
                         .prompt = task.prompt.tokens},
                        generator, callbacks);
    if (const auto note = overflow_note(n_prompt, request.text.max_tokens, generator.model().context_tokens()))
        console.note(*note);
    std::vector<TokenId> tokens = std::move(task.prompt.tokens);
    if (resumed != nullptr) tokens.insert(tokens.end(), resumed->tokens().begin(), resumed->tokens().end());
    generator.resume(std::move(tokens), n_prompt);

    if (resumed == nullptr) output.begin();
    TextStream stream(output, console);
    if (request.text.max_tokens >= 0) stream.expect(request.text.max_tokens);
    if (resumed != nullptr ? resumed->begin().echo == PromptEcho::Yes : request.echo)
        replayed.shown.insert(0, prompt_text);
    stream.write(resumed != nullptr ? output.resume(replayed.shown) : replayed.shown);
    GrowingText growing{.stream = stream,
                        .session = session ? &*session : nullptr,
                        .trace = records.trace(),
                        .generator = generator,
                        .control = ContextWatch(n_prompt, request.text.max_tokens, generator.model().context_tokens()),
                        .began = began,
                        .figures = {.seed = task.sampling.seed}};
    TextGenerationResult result;
    try {
        result = generator.generate(*tokenizer, task.prompt.start, request.text, growing.callbacks());
    } catch (...) {  // such as a write error of stdout on a full disk
        generator.keep_tables();
        throw;
    }
    growing.complete();

    records.write(result, statistics_json(generator.model(), result, growing.figures), output, console);
    if (!output.closed()) console.note(summary_line(result, task.sampling));
    if (growing.figures.checked_tokens && !output.closed())
        console.note(self_check_line(*growing.figures.checked_tokens));
    if (session && result.stop_reason == StopReason::Interrupt && result.tokens.empty())
        console.note(fmt::format("the session keeps {} of {}; the same command goes on there", session->n_kept_prompt(),
                                 counted(n_prompt, "prompt token")));
    return signal_exit_code();
}

}  // namespace

CommandSpec generate_command() {
    CommandSpec command{
        .name = "generate",
        .summary = "Continue a prompt; the text goes to stdout as it is made",
        .details =
            "The prompt is an argument, or comes from --prompt, --prompt-file or stdin; --prompt \"\" is the empty "
            "prompt. It goes through\n"
            "the model's chat template if there is one. --messages F answers a conversation, given as the JSON of a "
            "request\n"
            "to a server; a model without a template continues it as a text in turns, as chat does.\n"
            "Numbers of the run go to stderr and, as JSON, to --stats.\n"
            "Speculative decoding (--draft) makes it faster and never changes the text: draft tokens "
            "are verified by the model.\n"
            "With --session F the same command, or --session F alone, goes on after whatever ended it, within the "
            "prompt\n"
            "too, to the text that one run would have given; stdout gets the text from its beginning. --max-tokens, "
            "the\n"
            "limit of the whole text, may be raised then. A prompt that goes layer by layer keeps its hidden states "
            "in\n"
            "F.prompt until it is computed.",
        .example = "slipstream generate \"The wolf said\" --max-tokens 60 --seed 7",
        .options = {{"prompt", "prompt,-p,--prompt", "PROMPT", "Text to continue; the name may be left out"},
                    {"prompt-file", "-f,--prompt-file,--file", "F", "File with the text to continue ('-': stdin)",
                     OptionRole::InputFile},
                    {"messages", "--messages", "F",
                     "Answer the conversation in this file ('-': stdin): the JSON of a request, {\"messages\": [...], "
                     "\"tools\": [...], \"tool_choice\": ..., \"chat_template_kwargs\": {...}}, or a list of messages",
                     OptionRole::InputFile},
                    {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N",
                     "Most tokens to generate; -1: no limit [-1]"},
                    {"stop", "--stop", "TEXT", "End before this text (may be repeated)"},
                    model_option(),
                    context_option(),
                    kv_type_option()},
        .run = run_generate};
    for (const OptionSpec& option : template_option_specs()) command.options.push_back(option);
    for (const OptionSpec& option : device_options()) command.options.push_back(option);
    for (const OptionSpec& option : offload_option_specs()) command.options.push_back(option);
    for (const OptionSpec& option : sampling_option_specs()) command.options.push_back(option);
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel)) command.options.push_back(option);
    command.options.insert(
        command.options.end(),
        {{"self-check", "--self-check", "",
          "Compute each pass again without draft tokens and compare the logits bit for bit"},
         {"special", "--special", "", "Take spellings like </s> in a raw prompt for control tokens"},
         {"echo", "--echo", "", "Print the prompt before the text"},
         {"output", "-o,--output", "F", "Write the text to this file ('-': stdout) [stdout]",
          OptionRole::OutputFileOrStdout},
         {"token-ids", "--token-ids", "F", "Write the generated ids to this file, one a line", OptionRole::OutputFile},
         statistics_option(),
         trace_option()});
    for (const OptionSpec& option : session_option_specs()) command.options.push_back(option);
    return command;
}

}  // namespace slipstream::tools
