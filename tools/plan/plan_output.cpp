#include "tools/plan/plan_output.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/cache/recurrent_states.h"
#include "runtime/plan/expert_bytes.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/base/kv_type_option.h"
#include "tools/engine/engine.h"
#include "tools/terminal/console.h"
#include "tools/terminal/labelled_lines.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Characters of a line with a bar if stdout is not a terminal.
constexpr int kLineColumns = 80;
// Characters of the widest bar: about as wide as the memory table, so that it does not end far to the right of it.
constexpr int kMostBarColumns = 100;
// Characters of the narrowest bar: in a shorter one most purposes would not get a character.
constexpr int kLeastBarColumns = 20;

// Returns a predicted value with three significant digits: no prediction is better. Values from 1,000 on have all
// digits before the point, values below 0.01 four decimals.
std::string three_digits(double value) {
    for (const auto& [limit, decimals] : {std::pair(99.95, 0), {9.995, 1}, {0.9995, 2}, {0.09995, 3}})
        if (value >= limit) return fmt::format("{:.{}f}", value, decimals);
    return fmt::format("{:.4f}", value);
}

std::string seconds_text(double seconds) {
    return seconds >= 0.9995 ? fmt::format("{} s", three_digits(seconds))
                             : fmt::format("{} ms", three_digits(1e3 * seconds));
}

std::string rate_text(double bytes_per_second) {
    return fmt::format("{} GiB/s", three_digits(bytes_per_second / kGiB));
}

std::string budget_text(std::size_t bytes) {
    return bytes == std::numeric_limits<std::size_t>::max() ? "none (computes in place)" : size_text(bytes);
}

bool is_limited(const Hardware& hardware) {
    return hardware.device_bytes < std::numeric_limits<std::size_t>::max();
}

std::string_view board_text(Board board) {
    switch (board) {
        case Board::Consumer:
            return "a consumer board";
        case Board::Workstation:
            return "a workstation board";
        case Board::Laptop:
            break;
    }
    return "a laptop";
}

std::string hardware_text(const Hardware& hardware) {
    std::string text = fmt::format(
        "{}: {}", hardware.name,
        hardware.n_devices > 1 ? fmt::format("{} x {}", hardware.n_devices, hardware.device) : hardware.device);
    if (!is_limited(hardware)) return text + ", no budget (--device-memory)";
    const auto each = [&](const auto& values, const auto& same, const auto& text_of) {
        if (values.empty()) return text_of(same) + (hardware.n_devices > 1 ? " each" : "");
        std::vector<std::string> texts;
        for (const auto& value : values) texts.push_back(text_of(value));
        return fmt::format("{}", fmt::join(texts, " and "));
    };
    text += fmt::format(", memory {}", each(hardware.budgets, hardware.device_bytes, budget_text));
    text +=
        fmt::format(", link {} ({})", each(hardware.links, hardware.link_bytes_per_second, rate_text), hardware.link);
    return text;
}

std::string of(std::size_t part, std::size_t whole) {
    if (whole == 0) return "none";
    if (part == whole) return fmt::format("all {}", size_text(whole));
    return part == 0 ? fmt::format("none of {}", size_text(whole))
                     : fmt::format("{} of {}", size_text(part), size_text(whole));
}

// Says how many experts a mixture has, and how much passes read of it.
void add_experts(LabelledLines& out, const PlanRequest& request) {
    const PlannedModel& model = request.model;
    const ExpertsConfig* experts = first_experts(model.config);
    if (experts == nullptr) return;
    const bool is_counted = distinct_is_counted(model.config, request.counted);
    std::vector<std::string> reads;
    for (const std::int64_t n : {1, 4, 16, 64})
        reads.push_back(fmt::format("{} {}", n,
                                    size_text(expert_bytes(model.config, model.weights, n,
                                                           is_counted ? std::span<const CountedExperts>(request.counted)
                                                                      : std::span<const CountedExperts>())
                                                  .read)));
    out.add("experts", fmt::format("{} in {} of {} layers, {} chosen for each token, {} in all", experts->n_experts,
                                   n_expert_layers(model.config), model.config.n_layers(), experts->n_chosen,
                                   size_text(expert_bytes(model.config, model.weights, 1).experts)));
    out.add("weights read",
            fmt::format("by a pass of {}, {}", fmt::join(reads, ", of "),
                        is_counted ? "by the distinct experts of earlier texts" : "if tokens choose experts evenly"));
}

// Whether experts stream: then fewer bytes are expected than a pass can copy.
bool experts_stream(const ResidencyPlan& plan) {
    return plan.streamed_weights_bytes != plan.most_streamed_weights_bytes;
}

// Says how many experts have slots and how many hits are expected, or why there are none.
void add_slots(LabelledLines& out, const PlanRequest& request, const PlanReport& report, PlanDetail detail) {
    const ExpertPlan& experts = report.experts;
    const bool several = report.devices.size() > 1;
    if (const std::string slots = expert_slots_text(experts); !slots.empty())
        out.add("slots",
                fmt::format("{}for {}, {}; all experts{} are in host memory", several ? "where experts stream, " : "",
                            slots, size_text(experts.slot_bytes), several ? " of these devices" : ""));
    if (const std::string reason = no_slots_text(experts, report.fixed_experts_note); !reason.empty())
        out.add("slots", fmt::format("none: {}", reason));
    if (experts.n_experts == 0 || experts.regime == ExpertRegime::Fit) return;
    const std::string_view origin = experts.regime != ExpertRegime::InSlots ? "if tokens choose experts evenly"
                                    : request.assumed_hits                  ? "assumed (--assume)"
                                                                            : hits_origin_text(experts);
    if (experts.hits > 0.0 || experts.regime == ExpertRegime::InSlots)
        out.add("hits", fmt::format("{} % of the experts chosen for a token are expected on the {} ({})",
                                    percent_text(experts.hits), several ? "devices" : "device", origin));
    if (experts.regime == ExpertRegime::OnCpu)
        out.add("misses", "computed by the CPU from host memory, none are copied (--experts)");
    if (detail == PlanDetail::Formulas && experts.regime == ExpertRegime::InSlots)
        out.add("copied experts",
                "of a layer and a pass of n tokens: the minimum of three: experts read (see weights read); experts "
                "without a slot; n k (1 - hits) r, where a token chooses k and r falls from 1 to 0.76 for 16 tokens, "
                "since neighbours share experts");
    if (!report.one_more_gib) return;
    const OneMoreGib& more = *report.one_more_gib;
    std::string brings = fmt::format("{}{} tokens/s instead of {} for passes of 1", several ? "on each device: " : "",
                                     three_digits(more.tokens_per_second), three_digits(1.0 / report.one.seconds));
    if (const std::int64_t n = report.plan.pass_tokens(); n > 1)
        brings += fmt::format(", {} instead of {} for passes of {}", seconds_text(more.expected_seconds),
                              seconds_text(report.expected.seconds), n);
    brings += fmt::format(", hits {} %", percent_text(more.hits));
    // More memory may make passes slower: if it first holds a ring for prompts, that ring takes the room of slots.
    const std::size_t ring_bytes = report.plan.sums().ring_bytes;
    if (more.ring_bytes > 2 * ring_bytes)
        brings += fmt::format(", a ring of {} instead of {}", size_text(more.ring_bytes), size_text(ring_bytes));
    if (more.regime != experts.regime) brings += fmt::format("; {} then", expert_regime_name(more.regime));
    out.add("one more GiB", brings);
}

void add_residency(LabelledLines& out, const PlanRequest& request, const PlanReport& report, PlanDetail detail) {
    const ResidencyPlan& plan = report.plan.sums();
    const bool several = report.devices.size() > 1;
    out.add("regime", regime_name(plan.regime));
    out.add("resident", fmt::format("weights {}; KV {}", of(plan.resident_weights_bytes, report.weights_bytes()),
                                    of(plan.resident_kv_bytes, report.kv_bytes())));
    add_slots(out, request, report, detail);
    const ModelConfig& config = request.model.config;
    if (const std::size_t state = RecurrentStates::state_bytes(config.kv_layouts(request.kv_dtype)); state > 0)
        out.add("state", fmt::format("{} for any number of tokens, three times on the devices (in 'kv' below)",
                                     size_text(state)));
    if (plan.in_place_bytes > 0)
        out.add("in host memory", fmt::format("{} of experts", size_text(plan.in_place_bytes)));
    if (plan.regime != Regime::AllFits)
        out.add("streamed a pass", fmt::format("{}, {} of KV", streamed_weights_text(plan, report.plan.pass_tokens()),
                                               size_text(plan.streamed_kv_bytes)));
    out.add("device memory",
            fmt::format("{}{}{}", size_text(plan.device_bytes), several ? " in all" : "",
                        plan.ring_bytes > 0
                            ? fmt::format(", {} of {} in it", several ? "rings" : "a ring", size_text(plan.ring_bytes))
                            : ""));
}

// Returns a device's memory as a bar: a segment for each purpose, in the order of the table, with as much of its name
// as fits. Each `bytes_per_column` bytes are drawn as one character.
std::string memory_bar(const DeviceMemory& memory, std::size_t free, double bytes_per_column) {
    std::vector<std::pair<std::string_view, std::size_t>> parts = memory.rows();
    parts.emplace_back("free", free);
    std::string bar;
    std::size_t sum = 0;
    for (const auto& [purpose, bytes] : parts) {
        sum += bytes;
        const auto end = static_cast<std::size_t>(std::lround(static_cast<double>(sum) / bytes_per_column));
        if (end <= bar.size()) continue;
        std::string segment = fmt::format("|{}", purpose.substr(0, end - bar.size() - 1));
        std::ranges::replace(segment, '_', ' ');
        segment.resize(end - bar.size(), purpose == "free" ? ' ' : '=');
        bar += segment;
    }
    return bar + "|";
}

// Returns a line with a bar for each device that has a budget, `columns` wide at most. All bars have the same scale.
std::string memory_bars(std::span<const DeviceMemory> devices, std::span<const std::string> names, int columns) {
    double largest = 0.0;
    std::size_t longest_name = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        if (!devices[i].free) continue;
        largest = std::max(largest, static_cast<double>(devices[i].used() + *devices[i].free));
        longest_name = std::max(longest_name, names[i].size());
    }
    const int width = std::min(columns - static_cast<int>(longest_name) - 2, kMostBarColumns);
    std::string lines;
    if (width < kLeastBarColumns || largest == 0.0) return lines;
    for (std::size_t i = 0; i < devices.size(); ++i)
        if (devices[i].free)
            lines += fmt::format("{:>{}} {}\n", names[i], longest_name,
                                 memory_bar(devices[i], *devices[i].free, largest / width));
    return lines;
}

// Appends the memory table: a row for each device, a column for each purpose that takes memory on any device. Below it
// are the bars of devices with a budget.
void add_memory(LabelledLines& out, const PlanRequest& request, const PlanReport& report, int columns) {
    std::vector<std::string> headers{"memory of"};
    std::vector<std::string> names;
    for (std::size_t i = 0; i < report.memory.size(); ++i)
        names.push_back(report.memory.size() > 1 ? fmt::format("device {}", i + 1) : request.hardware.device);
    std::vector<std::vector<std::string>> rows;
    for (const std::string& name : names) rows.push_back({name});
    const auto purposes = report.memory.front().rows();
    for (std::size_t purpose = 0; purpose < purposes.size(); ++purpose) {
        const auto bytes = [&](const DeviceMemory& memory) { return memory.rows()[purpose].second; };
        if (std::ranges::all_of(report.memory, [&](const DeviceMemory& memory) { return bytes(memory) == 0; }))
            continue;
        headers.emplace_back(purposes[purpose].first);
        std::ranges::replace(headers.back(), '_', ' ');
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(size_text(bytes(report.memory[i])));
    }
    headers.emplace_back("free");
    TextTable table(std::move(headers));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].push_back(report.memory[i].free ? size_text(*report.memory[i].free) : "no limit");
        table.add(std::move(rows[i]));
    }
    out.raw(table.text(columns) + memory_bars(report.memory, names, columns > 0 ? columns : kLineColumns));
}

std::string split_reason(const PlanRequest& request) {
    if (!request.shares.empty()) return "--shares";
    const Hardware& hardware = request.hardware;
    const bool are_alike = hardware.budgets.empty() && hardware.links.empty();
    return request.split == SplitKind::Tensor && are_alike ? "even: the devices are alike"
                                                           : "planned: the least time for a pass";
}

// Returns what limits a pass with this split, and thereby what other shares could change.
std::string why_split(const PlanRequest& request, const PlanReport& report) {
    const bool streams = report.plan.sums().regime != Regime::AllFits;
    if (request.split == SplitKind::Tensor)
        return fmt::format(
            "{}the devices compute at the same time, and sum up twice a layer: a pass takes as long as "
            "that of the slowest",
            streams ? "the links carry side by side, " : "nothing streams, ");
    if (!streams) return "nothing streams, the devices compute in turn: shares change next to nothing";
    double compute_seconds = 0.0;
    for (const DeviceWork& work : report.devices) compute_seconds += work.compute_seconds;
    return fmt::format(
        "the links carry side by side, the devices compute in turn ({} in all): a pass takes as long as "
        "the longest of these",
        seconds_text(compute_seconds));
}

// Appends the part of each device, and the reason for the split.
void add_split(LabelledLines& out, const PlanRequest& request, const PlanReport& report) {
    if (report.devices.empty()) return;
    std::string parts;
    for (const DeviceWork& work : report.devices) parts += fmt::format("{}{}", parts.empty() ? "" : ",", work.parts);
    out.add("split", fmt::format("{} {} ({})", split_name(request.split), parts, split_reason(request)));
    for (std::size_t i = 0; i < report.devices.size(); ++i) {
        const ResidencyPlan& plan = report.plan.ranks()[i].residency();
        const DeviceWork& work = report.devices[i];
        std::string resident =
            fmt::format("{} resident", size_text(plan.resident_weights_bytes + plan.resident_kv_bytes));
        if (plan.slot_bytes > 0) resident += fmt::format(", {} of slots for experts", size_text(plan.slot_bytes));
        out.add(fmt::format("device {}", i + 1),
                fmt::format("{}, {}; {}; computing takes {}", counted(work.parts, part_name(request.split)), resident,
                            work.link_seconds > 0.0
                                ? fmt::format("{} stream{}, {} over {}",
                                              size_text(static_cast<std::size_t>(work.streamed_bytes)),
                                              experts_stream(plan) ? " (expected for a pass of 1 token)" : "",
                                              seconds_text(work.link_seconds), rate_text(request.hardware.link_of(i)))
                                : std::string("nothing streams"),
                            seconds_text(work.compute_seconds)));
    }
    out.add("why", why_split(request, report));
}

void add_host(LabelledLines& out, const PlanRequest& request, const PlanReport& report) {
    const Hardware& hardware = request.hardware;
    std::string text = size_text(report.host.total_bytes());
    if (report.host.locked_bytes() > 0) {
        text += fmt::format(", {} of it pinned", size_text(report.host.locked_bytes()));
        if (hardware.host_budget_bytes > 0) text += fmt::format(" (up to {})", size_text(hardware.host_budget_bytes));
    }
    if (report.host.checkpoint_bytes > 0)
        text += fmt::format(", up to {} of it for checkpoints of recurrent layers",
                            size_text(report.host.checkpoint_bytes));
    if (report.host.hidden_tail_bytes > 0)
        text += fmt::format(", {} of it for hidden states that the MTP head reads",
                            size_text(report.host.hidden_tail_bytes));
    if (report.host.head_pass_bytes > 0)
        text += fmt::format(", {} of it for passes of the MTP head", size_text(report.host.head_pass_bytes));
    if (report.host.kept_bytes > 0) {
        text += fmt::format(", {} of it for earlier texts (--kept-memory)", size_text(report.host.kept_bytes));
        const std::vector<KvLayout> layouts = request.model.config.kv_layouts(request.kv_dtype);
        const std::size_t state = RecurrentStates::state_bytes(layouts);
        std::size_t least = state;
        for (const KvLayout& layout : layouts) least += layout.chunk_bytes();
        if (state > 0 && report.host.kept_bytes < least)
            text += fmt::format(", too little for any, whose states of recurrent layers take {}", size_text(state));
    }
    if (hardware.host_bytes > 0) text += fmt::format("; there are {}", size_text(hardware.host_bytes));
    out.add("host memory", text);
}

std::string pass_text(const SimulatedPass& pass, Regime regime) {
    return regime == Regime::AllFits
               ? seconds_text(pass.seconds)
               : fmt::format("{}, links busy {:.0f} %", seconds_text(pass.seconds), 100.0 * pass.link_busy_fraction);
}

// Returns what usually commits so many tokens a pass (draft/NOTES.md, "Resident models" and "Streamed KV": n-gram
// tables 1.1 to 1.9 in answers of real models, a KV view or a draft model 3 to 8, text that repeats itself 6 to 24).
std::string_view usual_with(double tokens_per_pass) {
    if (tokens_per_pass <= 1.0) return "no drafts";
    if (tokens_per_pass <= 2.0) return "n-gram tables";
    return tokens_per_pass <= 8.0 ? "a draft model, a KV view" : "text that repeats itself";
}

// `drafts`: whether passes hold draft tokens.
std::string rates_text(const std::vector<PlannedRate>& rates, bool drafts) {
    std::vector<std::string> headers{"assumed tokens a pass", "nodes", "tokens/s"};
    if (drafts) headers.emplace_back("usual with");
    TextTable table(std::move(headers));
    for (const PlannedRate& rate : rates) {
        std::vector<std::string> row{fmt::format("{}", rate.tokens_per_pass), fmt::format("{}", rate.pass_tokens),
                                     three_digits(rate.tokens_per_second)};
        if (drafts) row.emplace_back(usual_with(rate.tokens_per_pass));
        table.add(std::move(row));
    }
    return table.text();
}

// Appends the prediction for the assumed drafter; with PlanDetail::Formulas also its formulas.
void add_assumed(LabelledLines& out, const PlanRequest& request, const PlanReport& report, PlanDetail detail) {
    if (!report.assumed) return;
    const AssumedRate& rate = *report.assumed;
    const Assumptions& assumed = rate.assumed;
    const bool by_view = !assumed.draft_seconds;
    out.raw(fmt::format("Assumed: acceptance {}, {} of the drafting hidden, {} per draft token by {}.",
                        assumed.acceptance, assumed.hidden, seconds_text(rate.draft_seconds),
                        by_view ? fmt::format("the model itself over a view of {} tokens, {}", assumed.view_tokens,
                                              view_type_text(assumed.view_type, request.kv_dtype))
                                : std::string("the draft model")));
    out.raw(fmt::format("Then {} tokens/s, {} a token: chains of {}, {} tokens a pass.",
                        three_digits(1.0 / rate.seconds_per_token()), seconds_text(rate.seconds_per_token()),
                        rate.n_guesses, three_digits(rate.tokens_per_pass)));
    if (detail == PlanDetail::Formulas) {
        out.raw(fmt::format("  tokens a pass = (1 - a^(n + 1)) / (1 - a) = (1 - {0}^{1}) / (1 - {0}) = {2:.2f}",
                            assumed.acceptance, rate.n_guesses + 1, rate.tokens_per_pass));
        out.raw(fmt::format("  seconds = pass(n + 1) + (1 - hidden) n draft = {:.4f} + {} x {} x {:.5f} = {:.4f}",
                            rate.pass_seconds, 1.0 - assumed.hidden, rate.n_guesses, rate.draft_seconds, rate.seconds));
        out.raw(fmt::format(
            "  n: with most tokens a second, of 0 to 16 and from there in steps of an eighth; pass(n): copies and "
            "computing simulated in the order of the schedule{}; draft, over a view: pass(1) with everything on the "
            "devices",
            experts_stream(report.plan.sums()) ? ", experts copied when they are chosen" : ""));
    }
    out.raw("");
}

// Appends the table of ways: the time of passes, and from how many tokens per pass the way is the fastest.
void add_ways(LabelledLines& out, const PlanReport& report, int columns) {
    if (report.ways.empty()) return;
    const std::int64_t n = report.plan.pass_tokens();
    std::vector<std::string> headers{"way", "pass of 1"};
    if (n > 1) headers.push_back(fmt::format("pass of {}", n));
    headers.insert(headers.end(), {"fastest from", "options"});
    TextTable table(std::move(headers));
    for (const Way& way : report.ways) {
        std::string name(way_name(way.kind));
        if (!way.layers.empty()) name += fmt::format(", {}", fmt::join(way.layers, "+"));
        std::vector<std::string> row{std::move(name), seconds_text(way.one_seconds)};
        if (n > 1) row.push_back(seconds_text(way.expected_seconds));
        row.push_back(way.from_tokens ? counted(*way.from_tokens, "token") : "never");
        row.push_back(way.options);
        table.add(std::move(row));
    }
    out.raw(table.text(columns));
}

// Returns the assumptions behind the table of rates.
std::string assumption_text(const PlanRequest& request, const PlanReport& report) {
    const std::string_view nodes = request.run           ? "what the draft trees here may hold"
                                   : request.pass_tokens ? "as --expect-tokens says"
                                                         : "as many as take the time of one, as far as there is room";
    return fmt::format(
        "Tokens a pass are assumed{}, not predicted: how many draft tokens are accepted depends on the text, and "
        "'bench --draft' measures it. Nodes: {}.",
        request.tokens_per_pass.empty() ? "" : " (--tokens-per-pass)",
        report.plan.pass_tokens() > 1 ? nodes : "one, plain decoding");
}

// Returns the model, with the keys of `inspect --json` for experts.
JsonObject model_json(const PlannedModel& model, std::size_t weights_bytes) {
    JsonObject json;
    json.text("name", model.name).text("types", model.types).unsigned_integer("weights_bytes", weights_bytes);
    const ExpertsConfig* experts = first_experts(model.config);
    if (experts == nullptr) return json;
    const ExpertBytes bytes = expert_bytes(model.config, model.weights, 1.0);
    json.object("experts", JsonObject()
                               .integer("layers", n_expert_layers(model.config))
                               .integer("n_experts", experts->n_experts)
                               .integer("n_chosen", experts->n_chosen)
                               .integer("d_ff", experts->d_ff)
                               .unsigned_integer("bytes", bytes.experts))
        .unsigned_integer("active_bytes_per_token", bytes.read);
    return json;
}

JsonObject pass_json(std::int64_t n_tokens, const SimulatedPass& pass) {
    JsonObject json;
    json.integer("tokens", n_tokens).real("seconds", pass.seconds).real("link_busy_fraction", pass.link_busy_fraction);
    return json;
}

// Adds a memory budget to `json`; no budget becomes null.
void add_memory(JsonObject& json, std::size_t bytes) {
    if (bytes < std::numeric_limits<std::size_t>::max()) {
        json.unsigned_integer("device_memory_bytes", bytes);
    } else {
        json.null("device_memory_bytes");
    }
}

// Returns the hardware as JSON. If budgets or links are given for each device, the values at the top are the smallest
// budget and the slowest link, and "each" lists all devices.
JsonObject hardware_json(const Hardware& hardware) {
    JsonObject json;
    json.text("name", hardware.name).text("device", hardware.device).integer("devices", hardware.n_devices);
    add_memory(json, hardware.device_bytes);
    if (!hardware.budgets.empty() || !hardware.links.empty()) {
        std::vector<JsonObject> each;
        for (std::size_t i = 0; i < static_cast<std::size_t>(hardware.n_devices); ++i) {
            JsonObject device;
            add_memory(device, hardware.budget_of(i));
            device.real("link_gib_s", hardware.link_of(i) / kGiB);
            each.push_back(std::move(device));
        }
        json.objects("each", each);
    }
    json.text("link", hardware.link)
        .real("link_gib_s", hardware.link_bytes_per_second / kGiB)
        .unsigned_integer("host_memory_bytes", hardware.host_bytes)
        .unsigned_integer("host_budget_bytes", hardware.host_budget_bytes)
        .real("host_gib_s", hardware.memory_bytes_per_second / kGiB);
    return json;
}

JsonObject residency_json(const PlanRequest& request, const PlanReport& report) {
    const SplitPlan& plan = report.plan;
    const ResidencyPlan& residency = plan.sums();
    JsonObject json;
    json.text("regime", regime_name(residency.regime))
        .integer("pass_tokens", plan.pass_tokens())
        .unsigned_integer("resident_weights_bytes", residency.resident_weights_bytes)
        .unsigned_integer("resident_kv_bytes", residency.resident_kv_bytes)
        .unsigned_integer("streamed_weights_bytes", residency.streamed_weights_bytes)
        .unsigned_integer("streamed_kv_bytes", residency.streamed_kv_bytes)
        .unsigned_integer("ring_bytes", residency.ring_bytes)
        .unsigned_integer("device_bytes", residency.device_bytes)
        .unsigned_integer("pinned_bytes", report.pinned_bytes())
        .real("pass_seconds", residency.pass_seconds)
        .real("link_busy_fraction", residency.link_busy_fraction);
    if (report.experts.n_experts > 0)
        json.object("experts",
                    expert_plan_json(report.experts, request.assumed_hits ? HitsFrom::Assumed : HitsFrom::Plan,
                                     report.fixed_experts_note));
    else
        json.null("experts");
    if (report.devices.empty()) return json;
    std::vector<std::int64_t> parts;
    for (const DeviceWork& work : report.devices) parts.push_back(work.parts);
    json.text("split", split_name(request.split))
        .integers(request.split == SplitKind::Tensor ? "kv_heads" : "layers", parts);
    return json;
}

}  // namespace

std::string plan_text(const PlanRequest& request, const PlanReport& report, const std::vector<Improvement>& helps,
                      PlanDetail detail, int columns) {
    const SplitPlan& plan = report.plan;
    const Regime regime = plan.sums().regime;
    LabelledLines out(columns);
    out.add("model", fmt::format("{} in {}, {} of weights", request.model.name, request.model.types,
                                 size_text(report.weights_bytes())));
    out.add("context", fmt::format("{}{}, {} of {} KV", counted(report.context_tokens, "token"),
                                   report.context_reduced ? fmt::format(" (what fits; the model's own: {})",
                                                                        request.model.config.context_tokens)
                                                          : "",
                                   size_text(report.kv_bytes()), kv_type_option(request.kv_dtype)));
    out.add("hardware", hardware_text(request.hardware));
    add_experts(out, request);
    add_residency(out, request, report, detail);
    add_split(out, request, report);
    add_host(out, request, report);
    out.add("pass of 1", pass_text(report.one, regime));
    if (plan.pass_tokens() > 1)
        out.add(fmt::format("pass of {}", plan.pass_tokens()), pass_text(report.expected, regime));
    out.raw("");
    out.raw(rates_text(report.rates, plan.pass_tokens() > 1));
    out.raw(assumption_text(request, report));
    out.raw("");
    add_ways(out, report, columns);
    add_assumed(out, request, report, detail);
    add_memory(out, request, report, columns);
    const std::int64_t expected = plan.pass_tokens();
    if (!helps.empty())
        out.raw(expected > 1
                    ? fmt::format("What would help most (times as fast: the geometric mean of passes of 1 and of {}):",
                                  expected)
                    : std::string("What would help most (times as fast for a pass of 1):"));
    for (const Improvement& entry : helps) {
        std::string seconds = fmt::format("{} for a pass of 1", seconds_text(entry.one_seconds));
        if (expected > 1) seconds += fmt::format(", {} of {}", seconds_text(entry.expected_seconds), expected);
        out.raw(fmt::format("  {:.2f}x  {}: {}", entry.gain, entry.what, seconds));
    }
    if (!helps.empty()) out.raw("");
    out.raw(
        request.profile
            ? fmt::format("Predicted from data sheets ({}); nothing was measured on such a machine.",
                          board_text(request.profile->board))
            : fmt::format(
                  "Predicted from what this machine computes and copies, measured {}, with the context full.",
                  request.hardware.rates_source == "kept" ? "before and kept (--rates measure: again)" : "just now"));
    if (request.run && request.run->view)
        out.raw(fmt::format("Drafts over a view of the KV, {}: {} for each layer and head.",
                            view_type_text(request.run->view->options.type, request.kv_dtype),
                            counted(request.run->view->options.budget_tokens, "token")));
    if (!request.run)
        out.raw(
            "Counted without speculative decoding: a draft model, its cache and wider passes take their share of the "
            "device first.");
    return out.text();
}

namespace {

// Returns the origin of the rates; "spread" is null for a profile.
JsonObject rates_json(const PlanRequest& request) {
    JsonObject json;
    json.text("source", request.hardware.rates_source);
    if (request.profile)
        json.null("spread");
    else
        json.real("spread", request.hardware.rates_spread);
    return json;
}

}  // namespace

std::string plan_json(const PlanRequest& request, const PlanReport& report, const std::vector<Improvement>& helps) {
    std::vector<JsonObject> passes;
    passes.push_back(pass_json(1, report.one));
    if (report.plan.pass_tokens() > 1) passes.push_back(pass_json(report.plan.pass_tokens(), report.expected));
    std::vector<JsonObject> rates;
    for (const PlannedRate& rate : report.rates)
        rates.push_back(std::move(JsonObject()
                                      .real("tokens_per_pass", rate.tokens_per_pass)
                                      .integer("pass_tokens", rate.pass_tokens)
                                      .real("tokens_per_second", rate.tokens_per_second)));
    std::vector<JsonObject> changes;
    for (const Improvement& entry : helps)
        changes.push_back(std::move(JsonObject()
                                        .text("what", entry.what)
                                        .real("one_seconds", entry.one_seconds)
                                        .real("expected_seconds", entry.expected_seconds)
                                        .real("gain", entry.gain)));
    JsonObject json;
    JsonObject assumed;
    if (report.assumed)
        assumed.real("acceptance", report.assumed->assumed.acceptance)
            .real("hidden", report.assumed->assumed.hidden)
            .real("draft_seconds", report.assumed->draft_seconds)
            .integer("guesses", report.assumed->n_guesses)
            .real("tokens_per_pass", report.assumed->tokens_per_pass)
            .real("pass_seconds", report.assumed->pass_seconds)
            .real("tokens_per_second", 1.0 / report.assumed->seconds_per_token());
    if (report.assumed && !report.assumed->assumed.draft_seconds)
        assumed.text("view_type", view_type_name(report.assumed->assumed.view_type));
    json.object("model", model_json(request.model, report.weights_bytes()))
        .object("kv",
                JsonObject().text("type", kv_type_name(request.kv_dtype)).unsigned_integer("bytes", report.kv_bytes()))
        .integer("context_tokens", report.context_tokens)
        .integer("model_context_tokens", request.model.config.context_tokens)
        .object("hardware", hardware_json(request.hardware))
        .object("plan", residency_json(request, report))
        .objects("device_memory",
                 memory_json(std::vector(report.memory.size(), request.hardware.device), report.memory))
        .objects("passes", passes)
        .objects("tokens_per_second", rates)
        .text("tokens_per_pass_from", "assumed")
        .object("host", JsonObject()
                            .unsigned_integer("pinned_bytes", report.host.locked_bytes())
                            .unsigned_integer("checkpoint_bytes", report.host.checkpoint_bytes)
                            .unsigned_integer("hidden_tail_bytes", report.host.hidden_tail_bytes)
                            .unsigned_integer("head_pass_bytes", report.host.head_pass_bytes)
                            .unsigned_integer("kept_bytes", report.host.kept_bytes)
                            .unsigned_integer("bytes", report.host.total_bytes()))
        .objects("would_help", changes)
        .boolean("measured", !request.profile.has_value())
        .object("rates", rates_json(request));
    if (report.assumed) json.object("assumed", std::move(assumed));
    if (report.one_more_gib)
        json.object("one_more_gib", JsonObject()
                                        .real("tokens_per_second", report.one_more_gib->tokens_per_second)
                                        .real("hits", report.one_more_gib->hits));
    else
        json.null("one_more_gib");
    std::vector<JsonObject> ways;
    for (const Way& way : report.ways) {
        JsonObject& row = ways.emplace_back();
        row.text("name", way_name(way.kind))
            .text("options", way.options)
            .reals("pass_seconds", {way.one_seconds, way.expected_seconds});
        if (way.from_tokens)
            row.integer("from_tokens", *way.from_tokens);
        else
            row.null("from_tokens");
        if (!way.layers.empty()) row.integers("layers", way.layers);
    }
    json.objects("ways", ways);
    if (request.run && request.run->view) {
        const ViewOptions& view = request.run->view->options;
        json.object("view", JsonObject().text("type", view_type_name(view.type)).integer("tokens", view.budget_tokens));
    } else {
        json.null("view");
    }
    return json.to_text(JsonLayout::Indented);
}

}  // namespace slipstream::tools
