// slipstream generate: one completion of a prompt. stdout is the generated text and nothing else.
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text_generation.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/file_output.h"
#include "tools/sampling_options.h"
#include "tools/served_model.h"
#include "tools/signals.h"
#include "tools/statistics.h"
#include "tools/usage_error.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;

// Everything that the command line asks for, checked before the model is opened.
struct Request {
    ComputeOptions compute;
    SamplingSettings sampling;
    TextGenerationOptions text;
    std::string prompt;
    std::optional<std::filesystem::path> output;
    std::optional<std::filesystem::path> token_ids;
    std::optional<std::string> stats;
    bool echo = false;
};

struct Prompt {
    std::vector<TokenId> tokens;
    StreamingDetokenizer::Start start;
};

void check_draft(const Settings& settings, Console& console) {
    const Setting* draft = settings.find("draft");
    const std::string value = draft == nullptr ? "none" : draft->values.back();
    if (value != "none" && value != "auto")
        throw UsageError(
            fmt::format("{}: '{}' is no source that this version has (drafting comes later); use --draft none",
                        draft->where, value));
    console.detail(settings.describe("draft", "none", "built in"));
}

std::string read_prompt(const Settings& settings) {
    constexpr std::string_view kPromptOptions[] = {"prompt", "prompt-file"};
    const std::string_view source = settings.strongest_of(kPromptOptions);
    if (source == "prompt") return *settings.text("prompt");
    if (source == "prompt-file") return read_bytes(*settings.text("prompt-file"));
    if (isatty(STDIN_FILENO) == 1) throw UsageError("no prompt; give --prompt TEXT, --prompt-file F, or text on stdin");
    return read_bytes({});
}

Request read_request(CommandContext& context) {
    const Settings& settings = context.settings;
    Request request;
    request.compute = compute_options(context);
    request.sampling = sampling_settings(settings);
    check_draft(settings, context.console);
    request.text.stops = settings.texts("stop");
    request.text.max_tokens =
        settings.integer("max-tokens", {-1, std::numeric_limits<std::int64_t>::max()}).value_or(-1);
    context.console.detail(settings.describe("max-tokens", fmt::format("{}", request.text.max_tokens), "built in"));
    request.output = settings.text("output");
    request.token_ids = settings.text("token-ids");
    request.stats = settings.text("stats");
    request.echo = settings.flag("echo");
    static_cast<void>(settings.flag("no-template"));  // malformed values are found before the work
    request.prompt = read_prompt(settings);
    return request;
}

Prompt encode_prompt(const std::string& text, const Tokenizer& tokenizer, const ModelConfig& config) {
    Prompt prompt{tokenizer.encode(text, SpecialTokens::AsText),
                  text.empty() ? StreamingDetokenizer::Start::OfText : StreamingDetokenizer::Start::Continued};
    if (const auto bos = tokenizer.bos_id(); bos && (tokenizer.adds_bos() || prompt.tokens.empty()))
        prompt.tokens.insert(prompt.tokens.begin(), *bos);
    check_tokens(prompt.tokens, config);
    return prompt;
}

LoopLimits loop_limits(const GenerationDefaults& defaults, const Tokenizer& tokenizer) {
    LoopLimits limits;
    limits.end_tokens = defaults.end_tokens;
    for (const TokenId id : tokenizer.end_tokens()) limits.end_tokens.push_back(id);
    return limits;
}

// Text on its way to the user: the sink, the terminal's live rate, and a closed pipe that stops the work.
class TextStream {
public:
    TextStream(TextOutput& output, Console& console)
        : output_(output),
          on_terminal_(output.is_stdout() && console.stdout_is_terminal()),
          rate_(console, on_terminal_ ? RatePlace::BesideText : RatePlace::OwnLine),
          prefill_(console, "reading the prompt") {}

    void write(std::string_view text) {
        prefill_.clear();
        rate_.before_text();
        output_.write(text);
        rate_.after_text(text);
        if (output_.closed()) cancel_flag().store(true);
    }
    void on_prefill(std::int64_t done, std::int64_t total) {
        prefill_.update(static_cast<double>(done), static_cast<double>(total),
                        fmt::format("{} of {} tokens", done, total));
    }
    void on_tokens(std::int64_t n) {
        prefill_.clear();
        rate_.show(n);
    }
    void finish() {
        prefill_.clear();
        rate_.clear();
        if (on_terminal_ && output_.last_byte() != '\n') output_.write("\n");
    }

private:
    TextOutput& output_;
    bool on_terminal_;
    LiveRate rate_;
    ProgressBar prefill_;
};

void write_token_ids(const std::filesystem::path& path, const std::vector<TokenId>& tokens) {
    WholeFile file(path);
    std::string text;
    for (const TokenId id : tokens) text += fmt::format("{}\n", id);
    file.write(text);
    file.complete();
}

void write_statistics(const std::string& where, const JsonObject& json, TextOutput& output) {
    if (where != "-") {
        WholeFile file(where);
        file.write(json.to_text(JsonLayout::Indented));
        file.complete();
        return;
    }
    // On a line of its own behind the text.
    const std::string text = json.to_text(JsonLayout::OneLine);
    if (output.is_stdout()) {
        output.write((output.last_byte() == '\n' ? "" : "\n") + text);
    } else {
        TextOutput(std::nullopt).write(text);
    }
}

int run_generate(CommandContext& context) {
    const Clock::time_point began = Clock::now();
    Console& console = context.console;
    const Request request = read_request(context);
    ServedModel served = open_model(choose_model(context));
    const auto tokenizer = make_tokenizer(served.files->tokenizer_source());
    const SamplerOptions sampling =
        resolve_sampling(request.sampling, served.files->generation_defaults(), context.settings, console);
    if (served.files->chat_template() && !context.settings.flag("no-template"))
        console.note(
            "the model has a chat template, which this version does not apply: the prompt is continued as raw text "
            "(--no-template)");
    Prompt prompt = encode_prompt(request.prompt, *tokenizer, served.files->config());
    TextOutput output(request.output);
    load_model(served, request.compute, context);

    const Model& model = *served.model;
    LoopLimits limits = loop_limits(served.files->generation_defaults(), *tokenizer);
    KvCache cache(*served.device, model.kv_shape(), model.config().n_layers, model.context_tokens(),
                  scratch_nodes_for(limits.budget));
    Forward forward(model, forward_limits_for(limits.budget));
    Sampler sampler(sampling, model.config().vocab);
    NoGuesser guesser;
    GenerationLoop loop(forward, cache, sampler, guesser, limits);
    loop.begin(std::move(prompt.tokens));

    output.begin();
    TextStream stream(output, console);
    if (request.echo) stream.write(request.prompt);
    RunFigures figures{.seed = sampling.seed};
    const auto on_tokens = [&](std::int64_t n) {
        if (figures.first_token_seconds == 0.0)
            figures.first_token_seconds = std::chrono::duration<double>(Clock::now() - began).count();
        stream.on_tokens(n);
    };
    const TextGenerationResult result =
        generate_text(loop, *tokenizer, prompt.start, limits, request.text,
                      {.on_prefill = [&](std::int64_t done, std::int64_t total) { stream.on_prefill(done, total); },
                       .on_text = [&](std::string_view text) { stream.write(text); },
                       .on_tokens = on_tokens,
                       .cancel = &cancel_flag()});
    stream.finish();

    if (request.token_ids) write_token_ids(*request.token_ids, result.tokens);
    if (request.stats) write_statistics(*request.stats, statistics_json(served, result, figures), output);
    if (!output.closed()) console.note(summary_line(result, sampling));
    return signal_exit_code();
}

}  // namespace

CommandSpec generate_command() {
    CommandSpec command{
        .name = "generate",
        .summary = "Continue a prompt; the text goes to stdout as it is made",
        .details =
            "The prompt comes from --prompt, --prompt-file or stdin; --prompt \"\" is the empty prompt. Numbers of "
            "the\n"
            "run go to stderr and, as JSON, to --stats.",
        .example = "slipstream generate --prompt \"The wolf said\" --max-tokens 60 --seed 7",
        .options = {{"prompt", "-p,--prompt", "TEXT", "Text to continue"},
                    {"prompt-file", "-f,--prompt-file,--file", "F", "File with the text to continue ('-': stdin)"},
                    {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N",
                     "Most tokens to generate; -1: no limit [-1]"},
                    {"stop", "--stop", "TEXT", "End before this text (may be repeated)"},
                    model_option(),
                    context_option(),
                    kv_type_option()},
        .run = run_generate};
    for (const OptionSpec& option : device_options()) command.options.push_back(option);
    for (const OptionSpec& option : sampling_option_specs()) command.options.push_back(option);
    command.options.insert(
        command.options.end(),
        {{"draft", "--draft", "LIST", "Sources that guess: none, auto (this version has none) [none]"},
         {"no-template", "--no-template", "",
          "Continue the prompt as raw text, and say nothing about the chat template"},
         {"echo", "--echo", "", "Print the prompt before the text"},
         {"output", "-o,--output", "F", "Write the text to this file instead of stdout"},
         {"token-ids", "--token-ids", "F", "Write the generated ids to this file, one a line"},
         {"stats", "--stats", "F", "Write statistics as JSON ('-': to stdout, after the text)"}});
    return command;
}

}  // namespace slipstream::tools
