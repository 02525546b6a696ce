// slipstream-lab replay: measures how many tokens per pass the sources that need no model would have given on recorded
// answers. The recorded answers take the place of the target, so no model is loaded.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "draft/drafter.h"
#include "draft/replay.h"
#include "kernels/base/error.h"
#include "runtime/formats/model_fingerprint.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/lab/lab.h"
#include "tools/lab/replay/recorded_runs.h"
#include "tools/lab/replay/recorded_tokens.h"
#include "tools/lab/replay/replay_report.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/machine/tokenizer_files.h"
#include "tools/options/draft_options.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

struct ReplayRequest {
    std::string trace, prompts, tokenizer;
    RecordedFormat format = RecordedFormat::Vicuna;
    bool hot = false;  // learnt tables are kept from conversation to conversation
    DraftSettings draft;
};

std::string required_path(const Settings& settings, std::string_view name, std::string_view what) {
    const auto path = settings.path(name);
    if (!path) throw UsageError(fmt::format("--{} is missing: {}", name, what));
    return *path;
}

ReplayRequest read_request(const CommandContext& context) {
    const Settings& settings = context.settings;
    ReplayRequest request;
    request.trace = required_path(settings, "trace", "the recorded answers, JSON lines");
    request.prompts = required_path(settings, "prompts", "the prompts they answer, JSON lines");
    request.tokenizer = required_path(settings, "tokenizer", "a tokenizer.model, a directory or a GGUF file");
    if (const Setting* format = settings.find("format")) {
        const auto known = find_recorded_format(format->values.back());
        if (!known)
            throw UsageError(
                fmt::format("{}: vicuna or raw expected, found '{}'", format->where, format->values.back()));
        request.format = *known;
    }
    constexpr std::array<std::string_view, 2> kTables{"reset", "hot"};
    request.hot = settings.strongest_of(kTables) == "hot" && settings.flag("hot");
    request.draft = draft_settings(settings, DraftPlace::OnRecording, DraftLists::Last, "auto").front();
    return request;
}

struct Conversation {
    const RecordedRun* run;
    std::vector<draft::RecordedTurn> turns;
    std::int64_t n_tokens = 0;
};

std::vector<Conversation> encode(const std::vector<RecordedRun>& runs, const Tokenizer& tokenizer,
                                 RecordedFormat format) {
    std::vector<Conversation> conversations;
    for (const RecordedRun& run : runs) {
        throw_if_interrupted();
        Conversation& conversation = conversations.emplace_back();
        conversation.run = &run;
        conversation.turns = recorded_tokens(run, tokenizer, format);
        for (const draft::RecordedTurn& turn : conversation.turns)
            conversation.n_tokens += static_cast<std::int64_t>(turn.prompt.size() + turn.answer.size());
    }
    return conversations;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const Settings& settings) {
    const auto stores = [&] { return find_models(settings.environment(), bundled_model(program_folder())); };
    return make_tokenizer(find_tokenizer_source(resolve_model(name, stores, "--tokenizer")));
}

int run_replay(CommandContext& context) {
    const Settings& settings = context.settings;
    const ReplayRequest request = read_request(context);
    const bool json = settings.flag("json");
    const auto stats = settings.text("stats");
    if (json && stats == "-")
        throw UsageError(fmt::format("{} -: --json prints the same to stdout already; give one of them",
                                     settings.find("stats")->where));
    StatisticsOutput statistics(stats);
    const std::vector<RecordedRun> runs =
        parse_recorded_runs(read_text(request.trace, "--trace", kMostCorpusBytes), request.trace,
                            read_text(request.prompts, "--prompts", kMostCorpusBytes), request.prompts);
    const auto tokenizer = open_tokenizer(request.tokenizer, settings);
    const std::vector<Conversation> conversations = encode(runs, *tokenizer, request.format);

    draft::DraftContext target;
    target.vocab = tokenizer->vocab_size();
    target.tokenizer_fingerprint = tokenizer_fingerprint(*tokenizer);
    target.sampling.temperature = 0.0;
    target.on_note = [&](std::string_view note) { context.console.note(note); };
    const std::unique_ptr<draft::Drafter> drafter = draft::make_drafter(request.draft.options, target);
    context.console.detail(fmt::format("draft = {}", describe_draft(request.draft)));

    ReplayReport report;
    {
        ProgressBar bar(context.console, "replay");
        for (std::size_t i = 0; i < conversations.size(); ++i) {
            throw_if_interrupted();
            if (!request.hot) drafter->reset();
            const std::vector<draft::SourceFigures> before = drafter->figures();
            const draft::ReplayFigures figures =
                draft::replay(*drafter, conversations[i].turns, request.draft.options.max_budget);
            report.sources().add(before, drafter->figures());
            report.add(conversations[i].run->category, figures, conversations[i].run->accept_lengths);
            bar.update(static_cast<double>(i + 1), static_cast<double>(conversations.size()),
                       fmt::format("{} of {} conversations", i + 1, conversations.size()));
        }
    }
    const JsonObject object = report.json({{"trace", request.trace},
                                           {"draft", request.draft.list},
                                           {"tree", settings.text("tree").value_or("auto")},
                                           {"tables", request.hot ? "hot" : "reset"}},
                                          request.draft.options.max_budget);
    TextOutput output(std::nullopt);
    output.write(json ? object.to_text(JsonLayout::Indented) : report.table(stdout_columns()));
    statistics.write(object, output);
    return 0;
}

}  // namespace

CommandSpec replay_command() {
    CommandSpec command{
        .name = "replay",
        .summary = "Tokens per pass that draft sources would give on recorded answers, without a model",
        .details =
            "Answers as Spec-Bench records them (choices[0].turns), prompts by question_id. --draft\n"
            "takes sources that learn from token ids alone. MAT: tokens committed a pass, the target's own included,\n"
            "over all passes.",
        .example =
            "slipstream-lab replay --trace tools/demo_model/replay/answers.jsonl --prompts "
            "tools/demo_model/replay/prompts.jsonl \\\n    --tokenizer tools/demo_model/target --format raw --draft "
            "lookup",
        .options = {{"trace", "--trace", "F", "Recorded answers, a JSON object a line", OptionRole::InputFile},
                    {"prompts", "--prompts", "F", "The prompts they answer, a JSON object a line",
                     OptionRole::InputFile},
                    {"tokenizer", "--tokenizer", "PATH", "tokenizer.model, directory or GGUF of the recorded model"},
                    {"format", "--format", "NAME", "How prompt and answer make a text: vicuna, raw [vicuna]"}},
        .run = run_replay};
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnRecording)) command.options.push_back(option);
    command.options.insert(command.options.end(),
                           {{"reset", "--reset", "", "Forget what was learnt before each conversation [this]"},
                            {"hot", "--hot", "", "Keep it from conversation to conversation"},
                            {"json", "--json", "", "Print JSON"},
                            statistics_option()});
    return command;
}

}  // namespace slipstream::tools
