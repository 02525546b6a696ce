// Declares a subcommand: its options as data, and the function that runs it. The parser of the command line
// (options.cpp) reads only this data; environment and configuration file use the same option names (settings.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

class Console;
class Settings;

enum class OptionRole : std::uint8_t {
    Value,
    InputFile,           // a file that is read; no output may be the same file
    OutputFile,          // a file that is written; the value "-" is an error
    OutputFileOrStdout,  // a file that is written; "-" means stdout
};

/// One option of a subcommand.
struct OptionSpec {
    std::string_view name;   // long name without dashes; also the key in the configuration file
    std::string_view flags;  // all spellings, "-n,--max-tokens,--predict"; a spelling without dashes is positional
    std::string_view value;  // placeholder of the value in the help, "N"; empty: a flag; positional "F...": several
    std::string_view help;
    OptionRole role = OptionRole::Value;
    std::string choices{};  // values that shells complete, "auto, f16"; empty: shells complete names of files
};

/// What the run function of a subcommand gets.
struct CommandContext {
    Settings& settings;
    Console& console;
};

struct CommandSpec {
    std::string_view name;
    std::string_view summary;
    std::string_view details;  // further lines of the help; may be empty
    std::string_view example;  // a command line that works, for the help
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
[[nodiscard]] CommandSpec serve_command();
[[nodiscard]] CommandSpec tables_command();
[[nodiscard]] CommandSpec tokenize_command();
[[nodiscard]] CommandSpec version_command();

/// Returns the options that every subcommand has, for messages and configuration.
[[nodiscard]] std::span<const OptionSpec> common_options();

}  // namespace slipstream::tools
