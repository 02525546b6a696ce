// How a subcommand declares itself: its options as data, and the function that serves it. The argument library sees
// the data only (options.cpp); environment and configuration file use the same names (settings.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace slipstream::tools {

class Console;
class Settings;

enum class OptionRole : std::uint8_t {
    Value,
    InputFile,           // a file that is read: no output may be the same
    OutputFile,          // a file to be written; "-" is a mistake
    OutputFileOrStdout,  // the same, and "-" is stdout
};

/// One option of a subcommand.
struct OptionSpec {
    std::string_view name;   // the long name without dashes; also its key in the configuration file
    std::string_view flags;  // all spellings, "-n,--max-tokens,--predict"; one without dashes is positional
    std::string_view value;  // what stands for its value in the help, "N"; empty: a flag; a positional "F...": several
    std::string_view help;
    OptionRole role = OptionRole::Value;
};

/// What a subcommand gets to work with.
struct CommandContext {
    Settings& settings;
    Console& console;
};

struct CommandSpec {
    std::string_view name;
    std::string_view summary;
    std::string_view details;  // further lines of the help, or empty
    std::string_view example;  // a command line that runs
    std::vector<OptionSpec> options;
    int (*run)(CommandContext& context);  // returns the exit code
};

[[nodiscard]] CommandSpec bench_command();
[[nodiscard]] CommandSpec chat_command();
[[nodiscard]] CommandSpec generate_command();
[[nodiscard]] CommandSpec inspect_command();
[[nodiscard]] CommandSpec models_command();
[[nodiscard]] CommandSpec perplexity_command();
[[nodiscard]] CommandSpec plan_command();
[[nodiscard]] CommandSpec replay_command();
[[nodiscard]] CommandSpec tables_command();
[[nodiscard]] CommandSpec tokenize_command();
[[nodiscard]] CommandSpec version_command();

/// Options that every subcommand has: messages and configuration.
[[nodiscard]] std::span<const OptionSpec> common_options();

}  // namespace slipstream::tools
