// The file has a first line that names its format, then one JSON object per key, {"key": KEY, "spread": X, ...}, in the
// order in which the keys were first kept. Costs are [vectors, seconds per byte] pairs.
#include "tools/engine/kept_rates.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view kHeading = "slipstream rates 1";
constexpr std::size_t kMostKeys = 256;  // most lines of the file, about 1 KB each; the oldest are dropped
constexpr double kStepsPerOctave = 8.0;

// Values above kMostSecondsPerByte and kMostRate cannot have been measured; predictions computed from them would not be
// finite.
constexpr double kMostSecondsPerByte = 1.0;
constexpr double kMostRate = 1e15;  // bound of all other values: bytes per second, seconds, ratios

struct KeptLine {
    std::string key;
    std::string text;
};

/// The lines of a file of rates.
struct RatesFile {
    bool is_foreign = false;  // there is a file with other content, which must stay as it is
    std::vector<KeptLine> lines{};

    [[nodiscard]] std::vector<KeptLine>::iterator find(std::string_view key) {
        return std::ranges::find_if(lines, [&](const KeptLine& line) { return line.key == key; });
    }
};

// Returns the lines of the file; none if it does not exist. Lines that are no objects with a key are left out, and a
// later line for the same key replaces an earlier one.
RatesFile read_file(const fs::path& path) {
    RatesFile file;
    std::error_code absent;
    if (fs::exists(path, absent) && !fs::is_regular_file(path, absent)) return {.is_foreign = true};
    std::ifstream input(path);
    std::string text;
    if (!std::getline(input, text)) {
        std::error_code unknown;
        const bool is_empty = fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) == 0;
        file.is_foreign = fs::exists(path, unknown) && !is_empty;
        return file;
    }
    file.is_foreign = text != kHeading;
    while (!file.is_foreign && std::getline(input, text)) {
        const ordered_json json = ordered_json::parse(text, nullptr, false);
        if (!json.is_object() || !json.contains("key") || !json["key"].is_string()) continue;
        auto key = json["key"].get<std::string>();
        if (const auto known = file.find(key); known != file.lines.end()) file.lines.erase(known);
        file.lines.push_back({std::move(key), text});
    }
    return file;
}

ordered_json cost_json(const ByteCost& cost) {
    ordered_json points = ordered_json::array();
    for (const ByteCost::Point& point : cost.points()) points.push_back({point.vectors, point.seconds});
    return points;
}

// Returns a cost from its [vectors, seconds per byte] pairs. Throws nlohmann's exceptions, or FormatError if the values
// are no cost.
ByteCost cost_of(const ordered_json& json) {
    std::vector<ByteCost::Point> points;
    for (const ordered_json& pair : json) {
        const ByteCost::Point point{pair.at(0).get<double>(), pair.at(1).get<double>()};
        if (!std::isfinite(point.vectors) || !(point.seconds > 0.0 && point.seconds <= kMostSecondsPerByte) ||
            point.vectors <= (points.empty() ? 0.0 : points.back().vectors))
            throw FormatError("no cost of bytes");
        points.push_back(point);
    }
    if (points.empty()) throw FormatError("no cost of bytes");
    return ByteCost(std::move(points));
}

double number_of(const ordered_json& json, const char* name) {
    const auto value = json.at(name).get<double>();
    if (!(value >= 0.0 && value <= kMostRate)) throw FormatError("no rate");
    return value;
}

std::string line_text(std::string_view key, const MachineRates& rates, std::span<const DType> types,
                      RateEffort effort) {
    ordered_json json{{"key", key}, {"spread", rates.spread}};
    for (const DType type : types)
        json["weights"][std::string(dtype_name(type))] = cost_json(rates.rates.weights[static_cast<std::size_t>(type)]);
    json["kv"] = cost_json(rates.rates.kv);
    json["layer_seconds"] = rates.rates.layer_seconds;
    json["layer_token_seconds"] = rates.rates.layer_token_seconds;
    if (effort == RateEffort::All) {
        json["copy_bytes_per_second"] = rates.copy_bytes_per_second;
        json["memory_bytes_per_second"] = rates.memory_bytes_per_second;
        json["host_bytes_per_copied_byte"] = rates.host_bytes_per_copied_byte;
    }
    return json.dump();
}

// Returns the rates of a line; no value if it is damaged, or was edited so that it has no rates of these types.
std::optional<MachineRates> parse_line(const std::string& text, std::span<const DType> types, RateEffort effort) {
    try {
        const ordered_json json = ordered_json::parse(text);
        MachineRates rates{.rates = {}, .spread = number_of(json, "spread"), .origin = RatesOrigin::Kept};
        for (const DType type : types)
            rates.rates.weights[static_cast<std::size_t>(type)] =
                cost_of(json.at("weights").at(std::string(dtype_name(type))));
        rates.rates.kv = cost_of(json.at("kv"));
        rates.rates.layer_seconds = number_of(json, "layer_seconds");
        rates.rates.layer_token_seconds = number_of(json, "layer_token_seconds");
        fill_other_types(rates.rates, {types.begin(), types.end()});
        if (effort == RateEffort::Compute) return rates;
        rates.copy_bytes_per_second = number_of(json, "copy_bytes_per_second");
        rates.memory_bytes_per_second = number_of(json, "memory_bytes_per_second");
        rates.host_bytes_per_copied_byte = number_of(json, "host_bytes_per_copied_byte");
        rates.rates.host_bytes_per_second = rates.memory_bytes_per_second;
        if (rates.copy_bytes_per_second == 0.0) return std::nullopt;
        return rates;
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    } catch (const FormatError&) {
        return std::nullopt;
    }
}

// Returns the rates that the file has for `question`; no value if it has none. Rates with copies serve a question about
// computing alone, too.
std::optional<MachineRates> kept_rates(RatesFile& file, const RateQuestion& question) {
    const std::vector<DType> types = timed_types(question);
    RateQuestion asked = question;
    for (const RateEffort effort : {question.effort, RateEffort::All}) {
        asked.effort = effort;
        if (const auto line = file.find(rates_key(asked)); line != file.lines.end())
            if (const auto rates = parse_line(line->text, types, effort)) return rates;
    }
    return std::nullopt;
}

// Replaces the file as a whole by the last kMostKeys lines of `file`. Throws IoError.
void write_file(const fs::path& path, const RatesFile& file) {
    std::string text(kHeading);
    text += '\n';
    const std::size_t first = file.lines.size() - std::min(file.lines.size(), kMostKeys);
    for (const KeptLine& line : std::span(file.lines).subspan(first)) text.append(line.text).append("\n");
    std::error_code ignored;  // if the folder cannot be made, writing the file fails
    if (path.has_parent_path()) make_private_folder(path.parent_path(), ignored);
    AtomicFile output(path, {.new_mode = kOwnerOnlyMode});
    output.write(std::as_bytes(std::span(text)));
    output.commit();
}

// Keeps `measured` unless another program has kept rates meanwhile that are not doubtful; returns the rates that are
// in the file then.
MachineRates keep_rates(const MachineRates& measured, const RateQuestion& question, const RatesOptions& options,
                        const EngineCallbacks& callbacks) {
    const fs::path& path = *options.file;
    RatesFile file = read_file(path);
    if (file.is_foreign) {
        callbacks.note(fmt::format(
            "{}: not a file of rates, which stays as it is; this machine is measured at each start: name another file "
            "by --rates",
            path.string()));
        return measured;
    }
    const auto kept = kept_rates(file, question);
    if (kept && !kept->is_doubtful()) {
        if (!options.measure) return *kept;
        if (measured.is_doubtful()) {
            callbacks.note(
                fmt::format("{}: the rates measured before are kept, since those of now are doubtful", path.string()));
            return *kept;
        }
    }
    const std::string key = rates_key(question);
    const std::string text = line_text(key, measured, timed_types(question), question.effort);
    if (const auto line = file.find(key); line != file.lines.end())
        line->text = text;
    else
        file.lines.push_back({key, text});
    try {
        write_file(path, file);
    } catch (const IoError& error) {
        callbacks.note(
            fmt::format("{}; the rates of this machine are not kept, and it is measured at each start: name a folder "
                        "by --tables, or "
                        "a file by --rates",
                        error.what()));
    }
    return measured;
}

double rounded(double rate) {
    return rate > 0.0 ? std::exp2(std::round(std::log2(rate) * kStepsPerOctave) / kStepsPerOctave) : 0.0;
}

// Returns `cost` rounded, and never falling with the number of vectors. A measured cost can only be too high, so if
// more vectors took less time, fewer vectors get that time, too.
ByteCost steady_cost(const ByteCost& cost) {
    std::vector<ByteCost::Point> points = cost.points();
    for (std::size_t i = points.size(); i-- > 0;) {
        points[i].seconds = rounded(points[i].seconds);
        if (i + 1 < points.size()) points[i].seconds = std::min(points[i].seconds, points[i + 1].seconds);
    }
    return ByteCost(std::move(points));
}

}  // namespace

MachineRates steady_rates(MachineRates rates) {
    for (ByteCost& cost : rates.rates.weights) cost = steady_cost(cost);
    rates.rates.kv = steady_cost(rates.rates.kv);
    for (double* const rate : {&rates.rates.layer_seconds, &rates.rates.layer_token_seconds, &rates.rates.pass_seconds,
                               &rates.rates.host_bytes_per_second, &rates.copy_bytes_per_second,
                               &rates.memory_bytes_per_second, &rates.host_bytes_per_copied_byte})
        *rate = rounded(*rate);
    return rates;
}

MachineRates machine_rates(const RateQuestion& question, const RatesOptions& options,
                           const EngineCallbacks& callbacks) {
    std::optional<MachineRates> kept;
    if (options.file) {
        RatesFile file = read_file(*options.file);
        kept = kept_rates(file, question);
        if (kept && !kept->is_doubtful() && !options.measure) return steady_rates(*kept);
    }
    callbacks.detail(fmt::format("measuring what {} computes{}", question.card != nullptr ? "the GPU" : "this machine",
                                 question.effort == RateEffort::All ? " and copies" : ""));
    MachineRates rates = measure_rates(question);
    callbacks.throw_if_cancelled();
    if (rates.is_doubtful()) {
        const std::string line = fmt::format(
            "this machine is busy: rates are doubtful ({:.0f} % between the best and the median of five "
            "measurements){}",
            100.0 * rates.spread, options.file ? "; they are measured again at the next start" : "");
        // A run without --rates measure shows the line with -v only, since the next start measures again.
        options.measure ? callbacks.note(line) : callbacks.detail(line);
    }
    if (!options.file) {
        callbacks.detail("the rates of this machine are not kept (--tables off): they are measured at each start");
    } else if (kept && rates.is_doubtful() && !options.measure) {
        rates = *kept;  // the kept rates are doubtful, too, but with them plans stay the same
    } else {
        rates = keep_rates(rates, question, options, callbacks);
    }
    return steady_rates(std::move(rates));
}

}  // namespace slipstream::tools
