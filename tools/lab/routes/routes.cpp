// slipstream-lab routes: which experts the tokens of a text choose, and what slots for experts would be worth.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/amounts.h"
#include "tools/base/usage_error.h"
#include "tools/bench/bench_tokens.h"
#include "tools/cli/console_callbacks.h"
#include "tools/engine/engine.h"
#include "tools/lab/lab.h"
#include "tools/lab/routes/route_figures.h"
#include "tools/lab/routes/route_recording.h"
#include "tools/lab/routes/route_trace.h"
#include "tools/options/compute_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/output_files.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

std::vector<TokenId> file_tokens(const std::string& file, const ModelFiles& model) {
    const auto tokenizer = make_tokenizer(model.tokenizer_source());
    std::vector<TokenId> tokens = start_tokens(*tokenizer);
    const std::vector<TokenId> body =
        text_tokens(*tokenizer, read_text(file, "--file", kMostCorpusBytes), model.config());
    tokens.insert(tokens.end(), body.begin(), body.end());
    return tokens;
}

RouteTrace record(CommandContext& context) {
    const Settings& settings = context.settings;
    const auto file = settings.path("file");
    if (!file) throw UsageError("--file is missing: the text whose routes are recorded; or give a trace by --replay");
    const auto asked = settings.integer("max-tokens", {2, kMostTokens});
    const ComputeOptions compute = compute_options(settings);
    check_output_files(settings);
    std::optional<WholeFile> output;
    if (const auto path = settings.path("trace")) output.emplace(*path);
    OpenedModel opened(choose_model(context));
    if (!opened.config().has_experts())
        throw RequestError(
            fmt::format("{}: the model has no experts, so its tokens have no routes; take a mixture of experts",
                        opened.path().string()));
    const std::string name = opened.path().filename().string();
    std::vector<TokenId> tokens = file_tokens(*file, opened.files());
    PlacedModel placed(std::move(opened), compute, console_callbacks(context));
    const std::int64_t most = std::min(std::ssize(tokens), placed.context_tokens());
    if (asked.value_or(2) > most)
        throw RequestError(
            fmt::format("{} of {} and a context of {}: fewer than the {} to feed; give a longer text, "
                        "raise --ctx or lower --max-tokens",
                        counted(std::ssize(tokens), "token"), *file, placed.context_tokens(), asked.value_or(2)));
    tokens.resize(static_cast<std::size_t>(asked.value_or(most)));

    const RunNeeds needs{{.text_tokens = std::ssize(tokens),
                          .forward = {.max_tokens = kRoutePassTokens, .max_logit_rows = 1},
                          .scratch_nodes = kRoutePassTokens}};
    const LoadedModel model(std::move(placed), needs, console_callbacks(context));
    const auto runner = make_runner(model, needs, console_callbacks(context));
    std::vector<RoutedRank> ranks;
    for (std::size_t rank = 0; rank < model.models().size(); ++rank)
        ranks.push_back({&model.models()[rank]->config(),
                         model.shards().empty() ? std::vector<std::int64_t>{} : model.shards()[rank].layers});
    ProgressBar bar(context.console, "routes");
    RouteTrace trace = record_routes(*runner, ranks, tokens, [&](std::int64_t n) {
        bar.update(static_cast<double>(n), static_cast<double>(tokens.size()),
                   fmt::format("{} of {} tokens", n, tokens.size()));
    });
    trace.model = name;
    if (output) {
        write_routes(trace, [&](std::span<const std::byte> bytes) { output->write(bytes); });
        output->complete();
    }
    return trace;
}

RouteTrace read_trace(const Settings& settings, const std::string& file) {
    for (const Settings::Given& given : settings.given())
        if (const std::string_view name = given.option->name;
            name != "replay" && name != "json" && name != "stats" && settings.on_command_line(name) != nullptr &&
            std::ranges::find(common_options(), name, &OptionSpec::name) == common_options().end())
            throw UsageError(
                fmt::format("{} has no effect on a trace that is read (--replay); remove it", given.setting->where));
    check_output_files(settings);
    return parse_routes(read_text(file, "--replay", kMostCorpusBytes), file);
}

int run_routes(CommandContext& context) {
    const Settings& settings = context.settings;
    const bool json = settings.flag("json");
    const auto stats = settings.text("stats");
    if (json && stats == "-")
        throw UsageError(fmt::format("{} -: --json prints the same to stdout already; give one of them",
                                     settings.find("stats")->where));
    const auto replayed = settings.path("replay");
    StatisticsOutput statistics(stats);
    const RouteFigures figures = route_figures(replayed ? read_trace(settings, *replayed) : record(context));
    TextOutput output(std::nullopt);
    const JsonObject object = routes_json(figures);
    output.write(json ? object.to_text(JsonLayout::Indented) : routes_table(figures, stdout_columns()));
    statistics.write(object, output);
    return 0;
}

}  // namespace

CommandSpec routes_command() {
    CommandSpec command{
        .name = "routes",
        .summary = "Which experts the tokens of a text choose, and what slots for experts would be worth",
        .details =
            "The model is given the text, from its beginning; nothing is generated. Per layer and token, means of all\n"
            "layers: the experts that 2 to 64 neighbouring tokens need together; hits of slots by policy, in the\n"
            "second half of the text: lru; counts (decayed, what the runtime uses); fixed (most used in the first\n"
            "half); best (knows the text to come: no policy has more).",
        .example = "slipstream-lab routes --replay tests/tools/lab/routes.csv",
        .options = {{"file", "-f,--file", "F", "The text ('-': stdin)", OptionRole::InputFile},
                    {"max-tokens", "-n,--max-tokens,--predict,--n-predict", "N",
                     "Tokens of the text to feed [all, or the context]"},
                    {"trace", "--trace", "F", "Write the routes to this file", OptionRole::OutputFile},
                    {"replay", "--replay", "F",
                     "Read routes from a file of --trace, or of BigMoeOnEdge, instead of running a model",
                     OptionRole::InputFile},
                    model_option(),
                    context_option(),
                    kv_type_option()},
        .run = run_routes};
    for (const OptionSpec& option : device_options()) command.options.push_back(option);
    for (const OptionSpec& option : offload_option_specs()) command.options.push_back(option);
    command.options.push_back({"json", "--json", "", "Print JSON"});
    command.options.push_back(statistics_option());
    return command;
}

}  // namespace slipstream::tools
