// slipstream generate: one completion of a prompt. stdout is the generated text and nothing else.
#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/self_check.h"
#include "runtime/text_generation.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/draft_options.h"
#include "tools/file_output.h"
#include "tools/sampling_options.h"
#include "tools/served_drafter.h"
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
    DraftSettings draft;
    bool self_check = false;
    TextGenerationOptions text;
    std::optional<std::filesystem::path> output;
    bool echo = false;
};

struct Prompt {
    std::vector<TokenId> tokens;
    StreamingDetokenizer::Start start;
};

std::string read_prompt(const Settings& settings) {
    constexpr std::string_view kPromptOptions[] = {"prompt", "prompt-file"};
    const std::string_view source = settings.strongest_of(kPromptOptions);
    if (source == "prompt") return *settings.text("prompt");
    if (source == "prompt-file") return read_bytes(*settings.path("prompt-file"));
    if (isatty(STDIN_FILENO) == 1) throw UsageError("no prompt; give --prompt TEXT, --prompt-file F, or text on stdin");
    return read_bytes({});
}

Request read_request(CommandContext& context) {
    const Settings& settings = context.settings;
    Request request;
    request.compute = compute_options(context);
    request.sampling = sampling_settings(settings);
    request.draft = draft_settings(settings, DraftPlace::OnModel, DraftLists::Last, "auto").front();
    request.self_check = settings.flag("self-check");
    request.text.stops = settings.texts("stop");
    for (const std::string& stop : request.text.stops)
        if (stop.empty())
            throw UsageError(fmt::format("{}: an empty text comes up at once; give one to stop before, or leave it out",
                                         settings.find("stop")->where));
    request.text.max_tokens =
        settings.integer("max-tokens", {-1, std::numeric_limits<std::int64_t>::max()}).value_or(-1);
    context.console.detail(settings.describe("max-tokens", fmt::format("{}", request.text.max_tokens), "built in"));
    if (const auto output = settings.path("output"); output && *output != "-") request.output = *output;
    request.echo = settings.flag("echo");
    static_cast<void>(settings.flag("no-template"));  // malformed values are found before the work
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
          beside_text_(output.is_stdout() && console.shares_terminal()),
          rate_(console, beside_text_ ? RatePlace::BesideText : RatePlace::OwnLine),
          prefill_(console, "reading the prompt") {}

    void write(std::string_view text) {
        prefill_.clear();
        rate_.before_text();
        output_.write(text);
        rate_.after_text(text);
        if (output_.closed()) cancel_flag().store(true);
    }
    void on_prefill(std::int64_t done, std::int64_t total) {
        if (beside_text_ && output_.last_byte() != '\n') return;  // a bar takes the whole line, where the prompt stands
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
    bool beside_text_;
    LiveRate rate_;
    ProgressBar prefill_;
};

// The files that are complete only when the run is: made before it, so that it is not for nothing where one of them
// cannot be written.
class RunRecords {
public:
    explicit RunRecords(const Settings& settings) : stats_(settings.text("stats")) {
        if (const auto path = settings.text("token-ids")) token_ids_.emplace(*path);
    }

    /// One that fails does not keep the other from being written; its error comes after.
    void write(const TextGenerationResult& result, const JsonObject& statistics, TextOutput& output) {
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
    std::optional<WholeFile> token_ids_;
};

// The generation loop with all that it works with, in the order in which they depend on one another.
class Generator {
public:
    Generator(const Request& request, ServedModel& served, const SamplerOptions& sampling, LoopLimits limits,
              CommandContext& context)
        : draft_model_(serve_draft_model(request.draft, served, context)),
          drafter_(request.draft, served, draft_model_ ? &*draft_model_ : nullptr, sampling, context),
          limits_{drafter_.budget(), std::move(limits.end_tokens)},
          cache_(*served.device, served.model->kv_shape(), served.model->config().n_layers,
                 served.model->context_tokens(),
                 request.self_check ? SelfCheck::scratch_nodes_for(limits_.budget) : scratch_nodes_for(limits_.budget)),
          forward_(*served.model, forward_limits_for(limits_.budget)),
          sampler_(sampling, served.model->config().vocab),
          walk_(make_walk(request.draft.verify, sampler_, served.model->config().vocab, drafter_)),
          loop_(forward_, cache_, *walk_, drafter_.guesser(), limits_) {
        drafter_.time_passes(forward_, cache_);
        if (request.self_check) loop_.check_with(self_check_.emplace(*served.model));
    }

    GenerationLoop& loop() { return loop_; }
    [[nodiscard]] const LoopLimits& limits() const { return limits_; }
    /// The run is over: what was learnt is kept, and its figures told.
    void complete(RunFigures& figures, Console& console) const {
        drafter_.save(console);
        figures.sources = SourceTotals(drafter_.figures());
        if (self_check_) figures.checked_tokens = self_check_->figures().tokens;
    }

private:
    std::optional<ServedDraftModel> draft_model_;
    ServedDrafter drafter_;
    LoopLimits limits_;
    KvCache cache_;
    Forward forward_;
    Sampler sampler_;
    std::unique_ptr<TreeWalk> walk_;
    std::optional<SelfCheck> self_check_;
    GenerationLoop loop_;
};

int run_generate(CommandContext& context) {
    const Clock::time_point began = Clock::now();
    Console& console = context.console;
    const Request request = read_request(context);
    RunRecords records(context.settings);
    const std::string prompt_text = read_prompt(context.settings);
    ServedModel served = open_model(choose_model(context));
    const auto tokenizer = make_tokenizer(served.files->tokenizer_source());
    const SamplerOptions sampling =
        resolve_sampling(request.sampling, served.files->generation_defaults(), context.settings, console);
    if (served.files->chat_template() && !context.settings.flag("no-template"))
        console.note(
            "the model has a chat template, which this version does not apply: the prompt is continued as raw text "
            "(--no-template)");
    Prompt prompt = encode_prompt(prompt_text, *tokenizer, served.files->config());
    TextOutput output(request.output);
    load_model(served, request.compute, context);

    Generator generator(request, served, sampling, loop_limits(served.files->generation_defaults(), *tokenizer),
                        context);
    GenerationLoop& loop = generator.loop();
    loop.begin(std::move(prompt.tokens));

    output.begin();
    TextStream stream(output, console);
    if (request.echo) stream.write(prompt_text);
    RunFigures figures{.seed = sampling.seed};
    const auto on_tokens = [&](std::int64_t n) {
        if (figures.first_token_seconds == 0.0)
            figures.first_token_seconds = std::chrono::duration<double>(Clock::now() - began).count();
        stream.on_tokens(n);
    };
    const TextGenerationResult result =
        generate_text(loop, *tokenizer, prompt.start, generator.limits(), request.text,
                      {.on_prefill = [&](std::int64_t done, std::int64_t total) { stream.on_prefill(done, total); },
                       .on_text = [&](std::string_view text) { stream.write(text); },
                       .on_tokens = on_tokens,
                       .cancel = &cancel_flag()});
    stream.finish();
    generator.complete(figures, console);

    records.write(result, statistics_json(served, result, figures), output);
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
            "run go to stderr and, as JSON, to --stats. Guessing (--draft) makes it faster and never changes the "
            "text.\n"
            "Sources: context, suffix, lookup, cacheback, recycling, bigram, unigram, corpus, lookahead, model.",
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
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel)) command.options.push_back(option);
    command.options.insert(
        command.options.end(),
        {{"self-check", "--self-check", "", "Compute each pass again without guesses, and compare bit for bit"},
         {"no-template", "--no-template", "",
          "Continue the prompt as raw text, and say nothing about the chat template"},
         {"echo", "--echo", "", "Print the prompt before the text"},
         {"output", "-o,--output", "F", "Write the text to this file ('-': stdout) [stdout]",
          OptionRole::OutputFileOrStdout},
         {"token-ids", "--token-ids", "F", "Write the generated ids to this file, one a line", OptionRole::OutputFile},
         statistics_option()});
    return command;
}

}  // namespace slipstream::tools
