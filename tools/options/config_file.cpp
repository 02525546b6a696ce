#include "tools/options/config_file.h"

#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"

namespace slipstream::tools {

namespace {

std::optional<std::string> users_file(const EnvironmentReader& environment) {
    std::filesystem::path folder;
    if (const auto config = environment("XDG_CONFIG_HOME")) {
        folder = *config;
    } else if (const auto home = environment("HOME")) {
        folder = std::filesystem::path(*home) / ".config";
    } else {
        return std::nullopt;
    }
    const std::filesystem::path file = folder / "slipstream" / "config.toml";
    std::error_code error;
    return std::filesystem::exists(file, error) ? std::optional(file.string()) : std::nullopt;
}

}  // namespace

ConfigFile read_config_file(const OptionValues& command_line, const EnvironmentReader& environment) {
    // The options that choose the file are resolved without a file.
    const CommandSpec nothing{};
    const Settings settings(nothing, {}, command_line, environment, {}, "");
    constexpr std::array<std::string_view, 2> kOptions{"config", "no-config"};
    const std::string_view chosen = settings.strongest_of(kOptions);
    if (chosen == "no-config" && settings.flag("no-config")) return {};
    const auto name = chosen == "config" ? settings.path("config") : users_file(environment);
    if (!name) return {};
    try {
        return {*name, parse_toml(read_text(*name, "--config", kMostSettingBytes), *name)};
    } catch (const IoError& error) {
        throw UsageError(error.what());
    } catch (const RequestError& error) {
        throw UsageError(error.what());
    }
}

}  // namespace slipstream::tools
