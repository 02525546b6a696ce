// Resolves the value of each option and its origin. The command line takes precedence over the environment
// (SLIPSTREAM_<OPTION>), the environment over the configuration file. Values of the model's files and built-in values
// come last; the code that reads an option adds them.
//
// Values are checked when they are read. A malformed value is a UsageError that names its origin.
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

/// Where a value comes from, in descending precedence.
enum class Origin : std::uint8_t { CommandLine, Environment, ConfigFile };

struct Setting {
    std::vector<std::string> values;  // never empty
    Origin origin = Origin::CommandLine;
    std::string where;  // name of the origin, for messages: "--seed", "SLIPSTREAM_SEED", "config.toml:3: seed"
};

class Settings {
public:
    /// Resolves the options of `command` and the common options. `commands` are all commands, since a configuration
    /// file serves all of them; `config` are the entries of the file `config_name`. `command` must outlive this object
    /// and its copies. Throws UsageError if the file names a section or an option that does not exist or cannot be set
    /// in a file, or has an option without a value.
    Settings(const CommandSpec& command, std::span<const CommandSpec> commands, const OptionValues& command_line,
             const EnvironmentReader& environment, std::span<const TomlEntry> config, std::string_view config_name);

    /// Returns a copy in which `name` (CHECKed to be an option of the command) has `value` as if from the command line;
    /// `where` names the origin in messages.
    [[nodiscard]] Settings with(std::string_view name, std::string value, std::string where) const;

    /// Returns whether the command has this option.
    [[nodiscard]] bool has(std::string_view name) const;
    /// An option that was given. Both pointers are valid as long as the Settings.
    struct Given {
        const OptionSpec* option;
        const Setting* setting;
    };
    /// Returns the options of this command that were given, each with its setting of highest precedence.
    [[nodiscard]] std::vector<Given> given() const;
    /// Returns the setting of highest precedence of `name`, which must be an option of this command (CHECKed); null if
    /// it was not given.
    [[nodiscard]] const Setting* find(std::string_view name) const;
    /// Returns the setting if it is from the command line, else null, also if the command does not have the option. For
    /// options without effect: they are an error on the command line, but are ignored in the environment and the
    /// configuration file, which serve many commands.
    [[nodiscard]] const Setting* on_command_line(std::string_view name) const;
    /// Returns which of `names`, options that exclude each other, has the setting of highest precedence; empty if none
    /// was given. Throws UsageError if two of them have the same origin, unless an option before the second of them in
    /// `names` has a higher one.
    [[nodiscard]] std::string_view strongest_of(std::span<const std::string_view> names) const;

    // flag(), text(), path(), texts(), integer(), unsigned_integer() and real() return the option's value, the last one
    // if there are several. If it was not given, flag() returns false, texts() an empty vector, the others nothing.
    // `name` must be an option of the command (CHECKed). They throw UsageError if the value is malformed or out of
    // range.

    [[nodiscard]] bool flag(std::string_view name) const;
    [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
    /// Returns the name of a file or model. Throws UsageError if it is empty.
    [[nodiscard]] std::optional<std::string> path(std::string_view name) const;
    /// Returns all values, in the order given.
    [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, Range<std::int64_t> range) const;
    /// Returns a number of tokens: like integer(), and "4K" is 4 * 1024.
    [[nodiscard]] std::optional<std::int64_t> tokens(std::string_view name, Range<std::int64_t> range) const;
    /// Returns the option's value from 0 to 2^64 - 1. `or_else` names what the caller accepts besides numbers, for the
    /// message.
    [[nodiscard]] std::optional<std::uint64_t> unsigned_integer(std::string_view name, std::string_view or_else) const;
    [[nodiscard]] std::optional<double> real(std::string_view name, Range<double> range) const;

    [[nodiscard]] const EnvironmentReader& environment() const { return environment_; }
    /// Returns a line for -v: "seed = 7 (SLIPSTREAM_SEED)". If the option was not given, `otherwise` is the origin.
    [[nodiscard]] std::string describe(std::string_view name, std::string_view value, std::string_view otherwise) const;

private:
    struct Named {
        const OptionSpec* option;
        std::optional<Setting> setting;  // setting of highest precedence; no value: the option was not given
    };
    [[nodiscard]] const Named& named(std::string_view name) const;

    std::vector<Named> settings_;  // [options of this command, common options]
    EnvironmentReader environment_;
};

/// Returns the environment variable of an option: "max-tokens" -> "SLIPSTREAM_MAX_TOKENS".
[[nodiscard]] std::string environment_name(std::string_view option);

}  // namespace slipstream::tools
