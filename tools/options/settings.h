// Which value an option has, and who said so: command line, then environment (SLIPSTREAM_<OPTION>), then configuration
// file; what the model's files or the program itself say comes below and is passed in where it is known.
//
// Every value is checked where it is read; whatever is malformed is a UsageError that names its source.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tools/base/range.h"
#include "tools/machine/environment.h"
#include "tools/options/command.h"
#include "tools/options/options.h"
#include "tools/options/toml_file.h"

namespace slipstream::tools {

/// Strongest first.
enum class Origin : std::uint8_t { CommandLine, Environment, ConfigFile };

struct Setting {
    std::vector<std::string> values;  // never empty
    Origin origin = Origin::CommandLine;
    std::string where;  // for messages: "--seed", "SLIPSTREAM_SEED", "config.toml:3: seed"
};

class Settings {
public:
    /// `commands`: all there are, since a configuration file serves them all. `config` are entries of the file
    /// `config_name`. Throws UsageError where the file names an option or section that does not exist.
    Settings(const CommandSpec& command, std::span<const CommandSpec> commands, const OptionValues& command_line,
             const EnvironmentReader& environment, std::span<const TomlEntry> config, std::string_view config_name);

    /// These settings with one option (CHECKed to exist) given anew, as if on the command line; `where` is for
    /// messages.
    [[nodiscard]] Settings with(std::string_view name, std::string value, std::string where) const;

    /// Whether the command has this option.
    [[nodiscard]] bool has(std::string_view name) const;
    struct Given {
        const OptionSpec* option;
        const Setting* setting;
    };
    /// Every option of this command that somebody gave, with its strongest setting.
    [[nodiscard]] std::vector<Given> given() const;
    /// The strongest setting of an option of this command, or null. CHECKs that the command has the option.
    [[nodiscard]] const Setting* find(std::string_view name) const;
    /// The same where the command line gives it, else null, as of an option that the command does not have. What
    /// environment and configuration file say serves many commands: there what cannot act is passed over.
    [[nodiscard]] const Setting* on_command_line(std::string_view name) const;
    /// Of several options that exclude one another: the one to use, or null. Throws UsageError where the strongest
    /// origin gives two of them.
    [[nodiscard]] std::string_view strongest_of(std::span<const std::string_view> names) const;

    // The value where one is given. They throw UsageError where it is malformed or out of range.
    [[nodiscard]] bool flag(std::string_view name) const;
    [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
    /// The name of a file or model: text that is not empty.
    [[nodiscard]] std::optional<std::string> path(std::string_view name) const;
    [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, Range<std::int64_t> range) const;
    /// `or_else`: what the caller takes beside numbers, for the message.
    [[nodiscard]] std::optional<std::uint64_t> unsigned_integer(std::string_view name, std::string_view or_else) const;
    [[nodiscard]] std::optional<double> real(std::string_view name, Range<double> range) const;

    [[nodiscard]] const EnvironmentReader& environment() const { return environment_; }
    /// One line for -v: "seed = 7 (SLIPSTREAM_SEED)"; `otherwise` names the source where nobody above gave it.
    [[nodiscard]] std::string describe(std::string_view name, std::string_view value, std::string_view otherwise) const;

private:
    struct Named {
        const OptionSpec* option;
        std::optional<Setting> setting;
    };
    [[nodiscard]] const Named& named(std::string_view name) const;

    std::vector<Named> settings_;  // of this command
    EnvironmentReader environment_;
};

/// "max-tokens" -> "SLIPSTREAM_MAX_TOKENS".
[[nodiscard]] std::string environment_name(std::string_view option);

}  // namespace slipstream::tools
