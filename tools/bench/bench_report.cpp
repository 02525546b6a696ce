#include "tools/bench/bench_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "tools/base/amounts.h"
#include "tools/base/build_version.h"
#include "tools/base/kv_type_option.h"
#include "tools/bench/bench_drafts.h"
#include "tools/terminal/console.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

// A bandwidth in GB/s, and as a fraction of the machine's measured read bandwidth.
struct Rate {
    double gb_per_s = 0.0;
    double share = 0.0;
};
Rate rate_of(const BenchResult& result, double bytes, double seconds) {
    const double gb_per_s = seconds > 0.0 ? bytes / seconds * 1e-9 : 0.0;
    const double peak = result.machine.peaks.read_gb_per_s;
    return {gb_per_s, peak > 0.0 ? gb_per_s / peak : 0.0};
}

// A row of the phase table, with bytes per token: the median run, or in Prompts mode the sum of all prompts.
struct PhaseRow {
    std::int64_t tokens = 0;
    double seconds = 0.0;
    double tokens_per_second = 0.0;
    double weight_bytes_per_token = 0.0;
    double kv_bytes_per_token = 0.0;
    Rate rate;
};
PhaseRow row_of(const BenchResult& result, const PhaseFigures& phase) {
    const PhaseSample all = phase.total();
    const bool sum = result.mode == BenchMode::Prompts;
    const auto tokens = static_cast<double>(all.tokens);
    PhaseRow row;
    row.tokens = sum ? all.tokens : phase.samples.front().tokens;
    row.seconds = sum ? all.seconds : phase.seconds().median;
    row.tokens_per_second = static_cast<double>(row.tokens) / row.seconds;
    row.weight_bytes_per_token = all.weight_bytes / tokens;
    row.kv_bytes_per_token = all.kv_bytes / tokens;
    row.rate = rate_of(result, (row.weight_bytes_per_token + row.kv_bytes_per_token) * static_cast<double>(row.tokens),
                       row.seconds);
    return row;
}

std::string through_template(const BenchResult& result) {
    return result.template_name.empty() ? "" : fmt::format(" through {}", result.template_name);
}

std::string title_of(const BenchResult& first) {
    switch (first.mode) {
        case BenchMode::Plain:
            if (first.own_prefill_text)
                return fmt::format("prefill of the built-in text; decoding after the prompt, {} (text{}), median of {}",
                                   counted(first.prompt_tokens, "token"), through_template(first),
                                   counted(first.repeat, "run"));
            return fmt::format("prefill of a prompt and decoding after it ({}{}), median of {}", first.token_source,
                               through_template(first), counted(first.repeat, "run"));
        case BenchMode::Prompts:
            return fmt::format("{} of {} in all{}, {}; tokens and seconds are sums", counted(first.n_turns, "turn"),
                               counted(first.n_prompts, "prompt"), through_template(first),
                               first.repeat == 1 ? "once" : fmt::format("{} times", first.repeat));
        case BenchMode::Passes:
            return fmt::format("passes with logits for every token, median of {}", counted(first.repeat, "round"));
    }
    return "";
}

// Returns whether a pass of the Passes mode copied bytes over a link.
bool streams(const BenchResult& result) {
    return std::any_of(result.passes.begin(), result.passes.end(),
                       [](const PassFigures& pass) { return pass.streamed_bytes > 0.0; });
}

std::vector<std::string> headers(const BenchResult& first) {
    std::vector<std::string> names;
    if (first.swept) names.push_back(first.swept->first);
    std::vector<std::string> rest;
    switch (first.mode) {
        case BenchMode::Plain:
            rest = {"phase",           "tokens",      "seconds", "spread %", "tokens/s",
                    "weight MB/token", "KV MB/token", "GB/s",    "% of read"};
            break;
        case BenchMode::Prompts:
            rest = {"phase",    "tokens",          "seconds",     "tokens/s", "median tokens/s",
                    "spread %", "weight MB/token", "KV MB/token", "GB/s",     "% of read"};
            break;
        case BenchMode::Passes:
            rest = {"tokens",   "depth",     "ms",    "spread %", "ratio",
                    "tokens/s", "weight MB", "KV MB", "GB/s",     "% of read"};
            if (streams(first)) rest.insert(rest.end(), {"streamed MB", "over link time", "plan ms"});
            break;
    }
    names.insert(names.end(), rest.begin(), rest.end());
    return names;
}

void add_phases(TextTable& table, const BenchResult& result) {
    for (const PhaseFigures& phase : result.phases) {
        const PhaseRow row = row_of(result, phase);
        std::vector<std::string> cells;
        if (result.swept) cells.push_back(result.swept->second);
        for (std::string& cell :
             std::vector{std::string(phase.name), fmt::format("{}", row.tokens), number_text(row.seconds)})
            cells.push_back(std::move(cell));
        if (result.mode == BenchMode::Plain) {
            cells.push_back(percent_text(phase.seconds().spread()));
            cells.push_back(number_text(row.tokens_per_second));
        } else {
            const Summary speed = phase.tokens_per_second();
            cells.push_back(number_text(row.tokens_per_second));
            cells.push_back(number_text(speed.median));
            cells.push_back(percent_text(speed.spread()));
        }
        for (std::string& cell :
             std::vector{number_text(row.weight_bytes_per_token * 1e-6), number_text(row.kv_bytes_per_token * 1e-6),
                         number_text(row.rate.gb_per_s), percent_text(row.rate.share)})
            cells.push_back(std::move(cell));
        table.add(std::move(cells));
    }
}

void add_passes(TextTable& table, const BenchResult& result) {
    const double first_s = summarize(result.passes.front().seconds).median;
    for (const PassFigures& pass : result.passes) {
        const Summary seconds = summarize(pass.seconds);
        const Rate rate = rate_of(result, pass.weight_bytes + pass.kv_bytes, seconds.median);
        std::vector<std::string> cells;
        if (result.swept) cells.push_back(result.swept->second);
        for (std::string& cell : std::vector{
                 fmt::format("{}", pass.tokens), fmt::format("{}", result.depth), number_text(seconds.median * 1e3),
                 percent_text(seconds.spread()), fmt::format("{:.3f}", seconds.median / first_s),
                 number_text(static_cast<double>(pass.tokens) / seconds.median), number_text(pass.weight_bytes * 1e-6),
                 number_text(pass.kv_bytes * 1e-6), number_text(rate.gb_per_s), percent_text(rate.share)})
            cells.push_back(std::move(cell));
        if (streams(result))
            for (std::string& cell : std::vector{number_text(pass.streamed_bytes * 1e-6),
                                                 fmt::format("{:.3f}", seconds.median / pass.link_seconds),
                                                 number_text(pass.predicted_seconds * 1e3)})
                cells.push_back(std::move(cell));
        table.add(std::move(cells));
    }
}

bool has_stages(const BenchResult& result) {
    return std::any_of(result.passes.begin(), result.passes.end(),
                       [](const PassFigures& pass) { return !pass.stages.empty(); });
}

bool has_several_devices(const BenchResult& result) {
    return std::any_of(result.passes.begin(), result.passes.end(), [](const PassFigures& pass) {
        return std::any_of(pass.stages.begin(), pass.stages.end(), [&](const StageFigures& stage) {
            return !stage.device.empty() && stage.device != pass.stages.front().device;
        });
    });
}

// Passes by stage; the pass as a whole is the last row of each number of tokens.
std::string stages_table(const std::vector<BenchResult>& results, int columns) {
    const bool several = std::any_of(results.begin(), results.end(), has_several_devices);
    std::vector<std::string> names;
    if (results.front().swept) names.push_back(results.front().swept->first);
    names.emplace_back("tokens");
    if (several) names.emplace_back("device");
    for (const char* name : {"stage", "ms", "MB", "GB/s", "% of pass"}) names.emplace_back(name);
    TextTable table(names);
    for (const BenchResult& result : results) {
        for (const PassFigures& pass : result.passes) {
            const auto add = [&](const StageFigures& stage) {
                std::vector<std::string> cells;
                if (result.swept) cells.push_back(result.swept->second);
                cells.push_back(fmt::format("{}", pass.tokens));
                if (several) cells.push_back(stage.device);
                cells.emplace_back(stage.stage);
                cells.push_back(number_text(stage.seconds * 1e3));
                cells.push_back(stage.bytes > 0.0 ? number_text(stage.bytes * 1e-6) : "");
                cells.push_back(
                    stage.bytes > 0.0 && stage.seconds > 0.0 ? number_text(stage.bytes / stage.seconds * 1e-9) : "");
                cells.push_back(percent_text(stage.seconds / pass.staged_seconds));
                table.add(std::move(cells));
            };
            for (const StageFigures& stage : pass.stages) add(stage);
            add({.device = "", .stage = "pass", .seconds = pass.staged_seconds});
        }
    }
    return fmt::format("by stage, each waited for; bytes are those that a stage reads\n\n{}", table.text(columns));
}

std::vector<JsonObject> stages_json(const PassFigures& pass) {
    std::vector<JsonObject> stages;
    for (const StageFigures& stage : pass.stages) {
        JsonObject json;
        if (stage.device.empty()) {
            json.null("device");
        } else {
            json.text("device", stage.device);
        }
        json.text("stage", stage.stage)
            .real("seconds", stage.seconds)
            .real("bytes", stage.bytes)
            .real("gb_per_s", stage.seconds > 0.0 ? stage.bytes / stage.seconds * 1e-9 : 0.0)
            .real("share", stage.seconds / pass.staged_seconds);
        stages.push_back(std::move(json));
    }
    return stages;
}

std::string peaks_text(const BenchMachine& machine) {
    const MachinePeaks& peaks = machine.peaks;
    if (machine.kind == DeviceKind::Cpu)
        return fmt::format("{}: reads {:.1f} GB/s, {:.0f} GFLOP/s of f32", counted(machine.n_threads, "thread"),
                           peaks.read_gb_per_s, peaks.fma_gflop_per_s);
    if (peaks.read_gb_per_s > 0.0) return fmt::format("the GPU reads {:.0f} GB/s by its data", peaks.read_gb_per_s);
    return "what the GPU reads is not known";
}

std::string machine_line(const BenchResult& result) {
    return fmt::format("{}{}: context {}, KV {}, {:.1f} MB of weights; {}\n",
                       result.swept ? fmt::format("{} {}: ", result.swept->first, result.swept->second) : "",
                       result.model, result.context_tokens, kv_type_option(result.kv_dtype),
                       result.weights.all() * 1e-6, peaks_text(result.machine));
}

void put_summary(JsonObject& json, const std::string& name, const Summary& summary) {
    json.real(name, summary.median).real(name + "_lowest", summary.lowest).real(name + "_highest", summary.highest);
}

JsonObject phase_json(const BenchResult& result, const PhaseFigures& phase) {
    const PhaseRow row = row_of(result, phase);
    JsonObject json;
    json.text("phase", phase.name)
        .integer("runs", static_cast<std::int64_t>(phase.samples.size()))
        .integer("tokens", row.tokens);
    if (result.mode == BenchMode::Prompts) {
        json.real("seconds", row.seconds).real("tokens_per_second", row.tokens_per_second);
        put_summary(json, "run_tokens_per_second", phase.tokens_per_second());
        json.real("spread", phase.tokens_per_second().spread());
    } else {
        put_summary(json, "seconds", phase.seconds());
        json.real("spread", phase.seconds().spread()).real("tokens_per_second", row.tokens_per_second);
    }
    json.real("weight_bytes_per_token", row.weight_bytes_per_token)
        .real("kv_bytes_per_token", row.kv_bytes_per_token)
        .real("gb_per_s", row.rate.gb_per_s)
        .real("read_share", row.rate.share);
    return json;
}

JsonObject pass_json(const BenchResult& result, const PassFigures& pass) {
    const Summary seconds = summarize(pass.seconds);
    const Rate rate = rate_of(result, pass.weight_bytes + pass.kv_bytes, seconds.median);
    JsonObject json;
    json.integer("tokens", pass.tokens).integer("runs", static_cast<std::int64_t>(pass.seconds.size()));
    put_summary(json, "seconds", seconds);
    json.real("spread", seconds.spread())
        .real("ratio", seconds.median / summarize(result.passes.front().seconds).median)
        .real("tokens_per_second", static_cast<double>(pass.tokens) / seconds.median)
        .real("weight_bytes", pass.weight_bytes)
        .real("kv_bytes", pass.kv_bytes)
        .real("streamed_bytes", pass.streamed_bytes)
        .real("link_seconds", pass.link_seconds)
        .real("predicted_seconds", pass.predicted_seconds)
        .real("gb_per_s", rate.gb_per_s)
        .real("read_share", rate.share);
    if (!pass.stages.empty()) json.real("staged_seconds", pass.staged_seconds).objects("stages", stages_json(pass));
    return json;
}

JsonObject mode_json(const BenchResult& result) {
    JsonObject json = run_json(result, bench_mode_name(result.mode));
    if (result.mode == BenchMode::Plain)
        json.integer("prompt_tokens", result.prompt_tokens)
            .text("prefill_of", result.own_prefill_text ? "built-in text" : "prompt");
    if (result.mode == BenchMode::Prompts) json.integer("prompts", result.n_prompts).integer("turns", result.n_turns);
    std::vector<JsonObject> rows;
    if (result.mode == BenchMode::Passes) {
        for (const PassFigures& pass : result.passes) rows.push_back(pass_json(result, pass));
        json.integer("depth", result.depth).objects("passes", rows);
    } else {
        for (const PhaseFigures& phase : result.phases) rows.push_back(phase_json(result, phase));
        json.objects("phases", rows);
        json.text("sampling", result.sampling).objects("drafts", drafts_json(result.drafts));
    }
    return json;
}

}  // namespace

JsonObject run_json(const BenchResult& result, std::string_view mode) {
    JsonObject json;
    json.text("version", build_version())
        .text("commit", build_commit())
        .text(result.machine.kind == DeviceKind::Cpu ? "cpu" : "card", result.machine.name)
        .text("form", result.form)
        .integer("threads", result.machine.n_threads)
        .real("read_gb_per_s", result.machine.peaks.read_gb_per_s)
        .real("fma_gflop_per_s", result.machine.peaks.fma_gflop_per_s)
        .text("model", result.model)
        .integer("ctx", result.context_tokens)
        .text("kv_type", kv_type_name(result.kv_dtype))
        .real("weight_bytes", result.weights.all())
        .real("load_seconds", result.load_seconds)
        .text("draft", "none")  // refers to the phases below, which are plain decoding
        .text("mode", mode)
        .integer("repeat", result.repeat)
        .text("tokens_from", result.token_source);
    if (result.template_name.empty()) {
        json.null("template");
    } else {
        json.text("template", result.template_name);
    }
    if (result.plan) json.object("plan", *result.plan);
    if (result.swept) {
        JsonObject swept;
        json.object("swept", swept.text("option", result.swept->first).text("value", result.swept->second));
    } else {
        json.null("swept");
    }
    return json;
}

std::string bench_heading(const std::vector<BenchResult>& results, std::string_view title, int columns) {
    CHECK(!results.empty());
    const BenchResult& first = results.front();
    std::string text = fmt::format("slipstream {} ({}), {}, {} kernels\n", build_version(), build_commit(),
                                   first.machine.name, first.form);
    for (const BenchResult& result : results) text += machine_line(result);
    return folded(fmt::format("{}{}\n\n", text, title), columns);
}

std::string bench_table(const std::vector<BenchResult>& results, int columns) {
    CHECK(!results.empty());
    const BenchResult& first = results.front();
    std::string text = bench_heading(results, title_of(first), columns);
    TextTable table(headers(first));
    for (const BenchResult& result : results) {
        if (result.mode == BenchMode::Passes) {
            add_passes(table, result);
        } else {
            add_phases(table, result);
        }
    }
    text += table.text(columns);
    if (has_stages(first)) text += fmt::format("\n{}", stages_table(results, columns));
    return first.drafts.empty() ? text : fmt::format("{}\n{}", text, drafts_table(results, columns));
}

JsonObject bench_json(const std::vector<BenchResult>& results) {
    std::vector<JsonObject> runs;
    for (const BenchResult& result : results) runs.push_back(mode_json(result));
    JsonObject json;
    json.objects("runs", runs);
    return json;
}

}  // namespace slipstream::tools
