#include "tools/options/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "tools/base/closest_name.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {

namespace {

// Returns whether the option chooses the configuration file; the file cannot set such an option.
bool chooses_config_file(std::string_view name) {
    return name == "config" || name == "no-config";
}

const OptionSpec* find_option(std::span<const OptionSpec> options, std::string_view name) {
    const auto found =
        std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.name == name; });
    return found == options.end() ? nullptr : &*found;
}

bool has_option(const CommandSpec& command, std::string_view name) {
    return find_option(command.options, name) != nullptr || find_option(common_options(), name) != nullptr;
}

// Returns "; X is one" for the option of `commands` that entry.key was probably meant to be; empty if there is none.
std::string meant_option(std::span<const CommandSpec> commands, const TomlEntry& entry) {
    std::vector<std::string_view> names;
    for (const CommandSpec& command : commands)
        for (const OptionSpec& option : command.options)
            if (entry.section.empty() || entry.section == command.name) names.push_back(option.name);
    for (const OptionSpec& option : common_options()) names.push_back(option.name);
    std::erase_if(names, chooses_config_file);
    const std::string_view meant = closest_name(entry.key, names);
    return meant.empty() || meant == entry.key ? "" : fmt::format("; {} is one", meant);
}

void check_config(std::span<const CommandSpec> commands, std::span<const TomlEntry> config, std::string_view file) {
    for (const TomlEntry& entry : config) {
        const auto serves = [&](const CommandSpec& command) {
            return (entry.section.empty() || command.name == entry.section) && has_option(command, entry.key);
        };
        if (!entry.section.empty() && std::none_of(commands.begin(), commands.end(),
                                                   [&](const auto& command) { return command.name == entry.section; }))
            throw UsageError(fmt::format("{}:{}: [{}] is not a command", file, entry.line, entry.section));
        if (chooses_config_file(entry.key) || std::none_of(commands.begin(), commands.end(), serves))
            throw UsageError(fmt::format("{}:{}: {} is not an option{}{} that a configuration file can set{}", file,
                                         entry.line, entry.key, entry.section.empty() ? "" : " of ", entry.section,
                                         meant_option(commands, entry)));
        if (entry.values.empty())
            throw UsageError(fmt::format("{}:{}: {} has no value; leave the line out", file, entry.line, entry.key));
    }
}

// Returns the entry for option `name`, from the section of `command` or else from the top of the file; null: none.
const TomlEntry* find_entry(std::span<const TomlEntry> config, std::string_view command, std::string_view name) {
    const TomlEntry* general = nullptr;
    for (const TomlEntry& entry : config) {
        if (entry.key != name) continue;
        if (entry.section == command) return &entry;
        if (entry.section.empty()) general = &entry;
    }
    return general;
}

template <typename T>
std::optional<T> parse_number(const std::string& text) {
    T value{};
    const char* begin = text.data();
    const char* end = begin + text.size();
    if (begin != end && *begin == '+') ++begin;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end || begin == end) return std::nullopt;
    return value;
}

// Returns " of at least 1" or " from 0 to 1"; empty if the range is unlimited.
template <typename T>
std::string words_of(Range<T> range) {
    constexpr Range<T> all;
    const bool anything = range.highest == all.highest && range.lowest == all.lowest;
    return anything ? "" : " " + limits_text(range);
}

}  // namespace

std::string environment_name(std::string_view option) {
    std::string name = "SLIPSTREAM_";
    for (const char c : option) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return name;
}

Settings::Settings(const CommandSpec& command, std::span<const CommandSpec> commands, const OptionValues& command_line,
                   const EnvironmentReader& environment, std::span<const TomlEntry> config,
                   std::string_view config_name)
    : environment_(environment) {
    check_config(commands, config, config_name);
    const auto resolve = [&](const OptionSpec& option) {
        Named& entry = settings_.emplace_back(Named{&option, std::nullopt});
        if (const auto given = command_line.find(option.name); given != command_line.end()) {
            entry.setting = Setting{given->second, Origin::CommandLine, fmt::format("--{}", option.name)};
        } else if (const auto value = environment(environment_name(option.name))) {
            entry.setting = Setting{{*value}, Origin::Environment, environment_name(option.name)};
        } else if (const TomlEntry* line = find_entry(config, command.name, option.name)) {
            entry.setting = Setting{line->values, Origin::ConfigFile,
                                    fmt::format("{}:{}: {}", config_name, line->line, option.name)};
        }
    };
    for (const OptionSpec& option : command.options) resolve(option);
    for (const OptionSpec& option : common_options()) resolve(option);
}

Settings Settings::with(std::string_view name, std::string value, std::string where) const {
    Settings changed = *this;
    const auto place = changed.settings_.begin() + (&named(name) - settings_.data());
    place->setting = Setting{{std::move(value)}, Origin::CommandLine, std::move(where)};
    return changed;
}

const Settings::Named& Settings::named(std::string_view name) const {
    const auto found = std::find_if(settings_.begin(), settings_.end(),
                                    [&](const Named& entry) { return entry.option->name == name; });
    CHECK(found != settings_.end(), "option {} is not declared", name);
    return *found;
}

bool Settings::has(std::string_view name) const {
    return std::any_of(settings_.begin(), settings_.end(),
                       [&](const Named& entry) { return entry.option->name == name; });
}

std::vector<Settings::Given> Settings::given() const {
    std::vector<Given> result;
    for (const Named& entry : settings_)
        if (entry.setting) result.push_back({entry.option, &*entry.setting});
    return result;
}

const Setting* Settings::find(std::string_view name) const {
    const Named& entry = named(name);
    return entry.setting ? &*entry.setting : nullptr;
}

const Setting* Settings::on_command_line(std::string_view name) const {
    const Setting* setting = has(name) ? find(name) : nullptr;
    return setting != nullptr && setting->origin == Origin::CommandLine ? setting : nullptr;
}

std::string_view Settings::strongest_of(std::span<const std::string_view> names) const {
    std::string_view best;
    const Setting* best_setting = nullptr;
    for (const std::string_view name : names) {
        const Setting* setting = find(name);
        if (setting == nullptr) continue;
        if (best_setting != nullptr && setting->origin == best_setting->origin)
            throw UsageError(
                fmt::format("{} and {} exclude each other; give one", best_setting->where, setting->where));
        if (best_setting != nullptr && setting->origin > best_setting->origin) continue;
        best = name;
        best_setting = setting;
    }
    return best;
}

bool Settings::flag(std::string_view name) const {
    const Setting* setting = find(name);
    if (setting == nullptr) return false;
    const std::string& value = setting->values.back();
    if (value == "true" || value == "1" || value == "yes" || value == "on") return true;
    if (value == "false" || value == "0" || value == "no" || value == "off") return false;
    throw UsageError(fmt::format("{}: true or false expected, found '{}'", setting->where, value));
}

std::optional<std::string> Settings::text(std::string_view name) const {
    const Setting* setting = find(name);
    if (setting == nullptr) return std::nullopt;
    return setting->values.back();
}

std::optional<std::string> Settings::path(std::string_view name) const {
    const Setting* setting = find(name);
    if (setting == nullptr) return std::nullopt;
    if (setting->values.back().empty())
        throw UsageError(fmt::format("{}: a name expected, found an empty one; leave the option out for its default",
                                     setting->where));
    return setting->values.back();
}

std::vector<std::string> Settings::texts(std::string_view name) const {
    const Setting* setting = find(name);
    return setting == nullptr ? std::vector<std::string>{} : setting->values;
}

std::optional<std::int64_t> Settings::integer(std::string_view name, Range<std::int64_t> range) const {
    const Setting* setting = find(name);
    if (setting == nullptr) return std::nullopt;
    const std::string& text = setting->values.back();
    const auto value = parse_number<std::int64_t>(text);
    if (value && *value >= range.lowest && *value <= range.highest) return value;
    // An integer of more than 64 bits is too large even for a range without an upper limit.
    const bool is_huge = !value && !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    const bool ends = range.highest != Range<std::int64_t>().highest;
    throw UsageError(fmt::format("{}: a whole number{} expected, found '{}'", setting->where,
                                 is_huge && !ends ? fmt::format(" from {} to 2^63 - 1", range.lowest) : words_of(range),
                                 text));
}

std::optional<std::int64_t> Settings::tokens(std::string_view name, Range<std::int64_t> range) const {
    constexpr std::int64_t kTokensPerK = 1024;
    const Setting* setting = find(name);
    if (setting == nullptr || !(setting->values.back().ends_with('K') || setting->values.back().ends_with('k')))
        return integer(name, range);
    const std::string& text = setting->values.back();
    const auto thousands = parse_number<std::int64_t>(text.substr(0, text.size() - 1));
    if (thousands && *thousands >= 0 && *thousands <= range.highest / kTokensPerK &&
        *thousands * kTokensPerK >= range.lowest)
        return *thousands * kTokensPerK;
    throw UsageError(
        fmt::format("{}: a whole number{} expected (4K is 4096), found '{}'", setting->where, words_of(range), text));
}

std::optional<std::uint64_t> Settings::unsigned_integer(std::string_view name, std::string_view or_else) const {
    const Setting* setting = find(name);
    if (setting == nullptr) return std::nullopt;
    const auto value = parse_number<std::uint64_t>(setting->values.back());
    if (!value)
        throw UsageError(fmt::format("{}: a whole number from 0 to 2^64 - 1{} expected, found '{}'", setting->where,
                                     or_else, setting->values.back()));
    return value;
}

std::optional<double> Settings::real(std::string_view name, Range<double> range) const {
    const Setting* setting = find(name);
    if (setting == nullptr) return std::nullopt;
    const auto value = parse_number<double>(setting->values.back());
    if (!value || !std::isfinite(*value) || *value < range.lowest || *value > range.highest)
        throw UsageError(fmt::format("{}: a number{} expected, found '{}'", setting->where, words_of(range),
                                     setting->values.back()));
    return value;
}

std::string Settings::describe(std::string_view name, std::string_view value, std::string_view otherwise) const {
    const Setting* setting = find(name);
    return fmt::format("{} = {} ({})", name, value, setting == nullptr ? otherwise : std::string_view(setting->where));
}

}  // namespace slipstream::tools
