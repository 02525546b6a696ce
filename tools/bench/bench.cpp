// slipstream bench: measures how fast a model computes here, and the machine's memory bandwidth and arithmetic in the
// same run. Modes: plain decoding, the prompts of a file, single passes; --sweep repeats the run for each value of an
// option.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/base/usage_error.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_request.h"
#include "tools/bench/bench_runs.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/output_files.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/options/template_options.h"
#include "tools/options/trace_output.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

namespace {

int run_bench_command(CommandContext& context) {
    const Settings& settings = context.settings;
    const bool json = settings.flag("json");
    const auto stats = settings.text("stats");
    if (json && stats == "-")
        throw UsageError(fmt::format("{} -: --json prints the same to stdout already; give one of them",
                                     settings.find("stats")->where));
    // All requests are checked before the first run.
    std::vector<SweepPoint> points = sweep_points(settings);
    std::vector<BenchRequest> requests;
    for (SweepPoint& point : points) {
        check_output_files(point.settings);
        requests.push_back(bench_request({point.settings, context.console}));
    }
    const std::shared_ptr<TraceFile> trace = trace_output(settings);
    requests.front().trace = trace;
    StatisticsOutput statistics(stats);

    std::vector<BenchResult> results;
    for (std::size_t i = 0; i < points.size(); ++i) {
        CommandContext own{points[i].settings, context.console};
        if (points[i].swept)
            context.console.detail(fmt::format("{} = {}", points[i].swept->first, points[i].swept->second));
        results.push_back(run_bench(requests[i], own));
        results.back().swept = points[i].swept;
    }
    if (trace) {
        trace->complete();
        if (const auto note = trace->take_note()) context.console.note(*note);
    }
    TextOutput output(std::nullopt);
    const JsonObject object = bench_json(results);
    output.write(json ? object.to_text(JsonLayout::Indented) : bench_table(results, stdout_columns()));
    statistics.write(object, output);
    return 0;
}

// Returns the option with bench's help text if its default in bench differs from that in generate.
OptionSpec bench_form(OptionSpec option) {
    static const std::string draft = fmt::format(
        "Sources of draft tokens, separated by commas, compared with plain decoding; if repeated, one column each: {} "
        "[none]",
        known_sources(DraftPlace::OnModel));
    if (option.name == "draft") option.help = draft;
    if (option.name == "temperature") option.help = "0 takes the likeliest token, ties to the lowest id [0]";
    if (option.name == "seed") option.help = "The same seed gives the same text [1]";
    return option;
}

}  // namespace

CommandSpec bench_command() {
    CommandSpec command{
        .name = "bench",
        .summary = "How fast a model computes here, beside what the machine can do",
        .details =
            "Without more: prefill and decoding of one prompt, plain and greedy, end tokens ignored. --prompts: over "
            "a\n"
            "file of prompts, to their end tokens. --passes: single passes of so many tokens at one depth. What is "
            "given\n"
            "by --prompt, --file or --prompts goes through the model's chat template, as in generate. With --prompt\n"
            "or --file, decoding follows the text as it is, and prefill is measured with the built-in text.\n"
            "--draft: the same texts plain and with speculative decoding, in turn; ratios are medians of\n"
            "pairs.\n"
            "Bytes are those of an ideal pass, GB/s those bytes over the time; % of read is relative to the measured "
            "bandwidth.",
        .example = "slipstream bench --passes 1,2,4,8,16 --depth 1024 --sweep 'threads=1;2'",
        .options = {{"passes", "--passes", "LIST", "Time passes of so many tokens: 1,2,4,8,16,32,64"},
                    {"stages", "--stages", "",
                     "Bytes, GB/s and share of the pass by stage (norm, qkv, attention, ...); without --passes: of "
                     "passes of 1 token"},
                    {"depth", "--depth", "N", "Committed positions before a pass, filled with seeded rows [0]"},
                    {"prompts", "--prompts", "F", "Prompts, a JSON object a line: prompt, turns or question",
                     OptionRole::InputFile},
                    {"max-prompts", "--max-prompts", "N", "Take the first N of them [all]"},
                    {"prompt", "-p,--prompt", "TEXT", "Text that decoding follows [the built-in one]"},
                    {"file", "-f,--file", "F", "File with that text", OptionRole::InputFile},
                    {"prompt-tokens", "--prompt-tokens", "N", "Tokens of prefill, of the built-in text [512]"},
                    {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N",
                     "Tokens to decode; most of a turn [128, less in a short context]"},
                    {"repeat", "-r,--repeat", "N", "Measured runs, after one that is not measured [5; of prompts 1]"},
                    {"session", "--session", "F",
                     "The text and KV of a session of generate, which stays as it is: a long prompt is read once",
                     OptionRole::InputFile},
                    {"sweep", "--sweep", "OPT=A;B", "The whole for each value of an option: 'threads=1;2'"},
                    model_option(),
                    context_option(),
                    kv_type_option()},
        .run = run_bench_command};
    for (const OptionSpec& option : template_option_specs()) command.options.push_back(option);
    for (const OptionSpec& option : device_options()) command.options.push_back(option);
    for (const OptionSpec& option : offload_option_specs()) command.options.push_back(option);
    for (const OptionSpec& option : sampling_option_specs())
        if (option.name != "ignore-eos") command.options.push_back(bench_form(option));
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel))
        command.options.push_back(bench_form(option));
    command.options.push_back({"hot", "--hot", "", "Keep the draft tables from prompt to prompt [empty for each]"});
    command.options.push_back({"json", "--json", "", "Print JSON"});
    command.options.push_back(statistics_option());
    command.options.push_back(trace_option());
    return command;
}

}  // namespace slipstream::tools
