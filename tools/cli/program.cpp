#include "tools/cli/program.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/machine/environment.h"
#include "tools/options/config_file.h"
#include "tools/options/lab_commands.h"
#include "tools/options/options.h"
#include "tools/options/output_files.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr int kDone = 0;
constexpr int kNotServed = 1;
constexpr int kUsage = 2;

// Decides whether the terminal gets colours, progress bars and cursor movements. Nothing else reads TERM or NO_COLOR.
TerminalUse terminal_use(const EnvironmentReader& environment) {
    if (environment("TERM").value_or("dumb") == "dumb") return TerminalUse::TextAlone;
    return environment("NO_COLOR") ? TerminalUse::NoColors : TerminalUse::Everything;
}

Verbosity verbosity(const Settings& settings) {
    constexpr std::array<std::string_view, 2> kOptions{"quiet", "verbose"};
    const std::string_view chosen = settings.strongest_of(kOptions);
    if (chosen.empty() || !settings.flag(chosen)) return Verbosity::Normal;
    return chosen == "quiet" ? Verbosity::Quiet : Verbosity::Verbose;
}

// Removes what another program reads: both have one configuration file. The lab checks its own sections alone, since it
// does not know the commands of `slipstream`.
void keep_own_entries(const ProgramSpec& program, std::vector<TomlEntry>& entries) {
    if (program.audience == Audience::Users) {
        std::erase_if(entries, [](const TomlEntry& entry) { return is_lab_command(entry.section); });
        return;
    }
    const auto has_option = [&](const CommandSpec& command, std::string_view name) {
        return std::ranges::find(command.options, name, &OptionSpec::name) != command.options.end();
    };
    const auto common = common_options();
    std::erase_if(entries, [&](const TomlEntry& entry) {
        if (!entry.section.empty())
            return std::ranges::find(program.commands, entry.section, &CommandSpec::name) == program.commands.end();
        return std::ranges::find(common, entry.key, &OptionSpec::name) == common.end() &&
               std::ranges::none_of(program.commands,
                                    [&](const auto& command) { return has_option(command, entry.key); });
    });
}

int run_command(const ProgramSpec& program, const ParsedCommandLine& parsed, const EnvironmentReader& environment,
                std::optional<Console>& console) {
    ConfigFile config;
    std::string mistake;
    const auto layered = [&] {
        return Settings(*parsed.command, program.commands, parsed.values, environment, config.entries, config.name);
    };
    std::optional<Settings> resolved;
    try {
        config = read_config_file(parsed.values, environment);
        keep_own_entries(program, config.entries);
        resolved.emplace(layered());
    } catch (const UsageError& error) {
        // `version` needs nothing from the file. It works without it, so that users with a broken file can run it.
        if (parsed.command->name != "version" || parsed.values.contains("config")) throw;
        mistake = error.what();
        config = {};
        resolved.emplace(layered());
    }
    Settings& settings = *resolved;
    check_output_files(settings);
    console.emplace(verbosity(settings), terminal_use(environment), settings.path("log-file"));
    if (!mistake.empty()) console->note(mistake);
    for (const std::string& note : parsed.notes) console->note(note);
    if (!config.name.empty()) console->detail(fmt::format("configuration: {}", config.name));
    CommandContext context{settings, *console};
    return parsed.command->run(context);
}

int run(const ProgramSpec& program, const std::vector<std::string>& arguments) {
    const EnvironmentReader environment = process_environment();
    std::optional<Console> console;
    ParsedCommandLine parsed;
    const auto needed_console = [&]() -> Console& {
        if (!console) console.emplace(Verbosity::Normal, terminal_use(environment), std::nullopt);
        return *console;
    };
    const auto fail = [&](int code, std::string_view message) {
        needed_console().error(message);
        return code;
    };
    try {
        parsed = parse_command_line(program, arguments);
        if (parsed.command == nullptr) {
            TextOutput(std::nullopt).write(parsed.text);
            return kDone;
        }
        return run_command(program, parsed, environment, console);
    } catch (const Interrupted&) {
        // Interrupted is also thrown after stdout was closed; signal_exit_code() is 0 then.
        if (signal_exit_code() != 0) needed_console().note("interrupted");
        return signal_exit_code();
    } catch (const UsageError& error) {
        const bool known = std::ranges::any_of(program.commands, [&](const CommandSpec& command) {
            return !arguments.empty() && command.name == arguments.front();
        });
        return fail(kUsage, fmt::format("{} (see {} {}{}--help)", error.what(), program.name,
                                        known ? arguments.front() : "", known ? " " : ""));
    } catch (const std::bad_alloc&) {
        return fail(kNotServed, "the system has no more memory; use a smaller --ctx or model");
    } catch (const std::exception& error) {
        return fail(kNotServed, error.what());
    }
}

}  // namespace

int program_main(const ProgramSpec& program, int argc, char** argv) {
    open_standard_descriptors();
    watch_signals();
    return run(program, {argv + (argc > 0 ? 1 : 0), argv + argc});
}

}  // namespace slipstream::tools
