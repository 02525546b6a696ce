// slipstream-lab views: measures how often a model chooses the same token over a small view of its KV; --sweep repeats
// the run for each value of an option.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/base/usage_error.h"
#include "tools/bench/bench_request.h"
#include "tools/lab/lab.h"
#include "tools/lab/views/view_report.h"
#include "tools/lab/views/view_request.h"
#include "tools/lab/views/view_run.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/output_files.h"
#include "tools/options/sampling_options.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

namespace {

int run_views_command(CommandContext& context) {
    const Settings& settings = context.settings;
    const bool json = settings.flag("json");
    const auto stats = settings.text("stats");
    if (json && stats == "-")
        throw UsageError(fmt::format("{} -: --json prints the same to stdout already; give one of them",
                                     settings.find("stats")->where));
    // All requests are checked before the first run.
    std::vector<SweepPoint> points = sweep_points(settings);
    std::vector<ViewsRequest> requests;
    for (const SweepPoint& point : points) {
        check_output_files(point.settings);
        requests.push_back(views_request(point.settings));
    }
    StatisticsOutput statistics(stats);
    std::vector<ViewsResult> results;
    for (std::size_t i = 0; i < points.size(); ++i) {
        CommandContext own{points[i].settings, context.console};
        if (points[i].swept)
            context.console.detail(fmt::format("{} = {}", points[i].swept->first, points[i].swept->second));
        results.push_back(run_views(requests[i], own));
        results.back().run.swept = points[i].swept;
    }
    TextOutput output(std::nullopt);
    const JsonObject object = views_json(results);
    output.write(json ? object.to_text(JsonLayout::Indented) : views_table(results, stdout_columns()));
    statistics.write(object, output);
    return 0;
}

}  // namespace

CommandSpec views_command() {
    CommandSpec command{
        .name = "views",
        .summary = "How often a model chooses the same token over a small view of its KV",
        .details =
            "At each position of a text in turn, over views of these kinds: mass, mean (what 'retrieval' keeps), "
            "window,\nheavy (most attended so far), oracle (knows the queries to come; to compare only).",
        .example = "slipstream-lab views --views mass,window --file README.md --depth 400 --max-tokens 128",
        .options = view_option_specs(),
        .run = run_views_command};
    command.options.insert(
        command.options.end(),
        {{"depth", "--depth", "N", "Tokens of the text before the first view [8192]"},
         {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N", "Positions to compare [1024]"},
         {"session", "--session", "F",
          "The text and KV of a session of generate, which stays as it is: a long prompt is read once",
          OptionRole::InputFile},
         {"sweep", "--sweep", "OPT=A;B", "The whole for each value of an option: 'threads=1;2'"},
         model_option(),
         context_option(),
         kv_type_option()});
    for (const OptionSpec& option : device_options()) command.options.push_back(option);
    for (OptionSpec option : sampling_option_specs()) {
        if (option.name == "temperature") option.help = "0 takes the likeliest token, ties to the lowest id [0]";
        if (option.name == "seed") option.help = "The same seed gives the same draws [1]";
        if (option.name == "temperature" || option.name == "seed") command.options.push_back(option);
    }
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel))
        if (option.name == "view-rebuild") command.options.push_back(option);
    command.options.push_back({"json", "--json", "", "Print JSON"});
    command.options.push_back(statistics_option());
    return command;
}

}  // namespace slipstream::tools
