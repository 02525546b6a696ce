#include "tools/options/options.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/options/build_version.h"
#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

struct Renamed {
    std::string_view theirs, ours;
};
// llama.cpp's names of one dash and several letters, which the argument library would take for several options.
constexpr std::array kRenamed{Renamed{"-dev", "--devices"}, Renamed{"-ctk", "--kv-type"},
                              Renamed{"-md", "--draft-model"}, Renamed{"-sys", "--system"}};

struct Answered {
    std::string_view theirs, answer;
};
constexpr std::array kAnswered{
    Answered{"-ngl",
             "what lies on a card follows from --device-memory, which comes with the CUDA backend; leave it out"},
    Answered{"--n-gpu-layers",
             "what lies on a card follows from --device-memory, which comes with the CUDA backend; leave it out"},
    Answered{"-ts", "several cards share a model by --devices and --split, which come later; leave it out"},
    Answered{"--tensor-split", "several cards share a model by --devices and --split, which come later; leave it out"},
    Answered{"-fa", "there is one attention here and it needs no switch; leave it out"},
    Answered{"--flash-attn", "there is one attention here and it needs no switch; leave it out"},
};

// The option of `command` that is spelt `flag`, or null.
const OptionSpec* find_option(const CommandSpec& command, std::string_view flag) {
    const auto spelt = [flag](const OptionSpec& option) {
        for (const std::string& name : CLI::detail::split(std::string(option.flags), ','))
            if (name == flag) return true;
        return false;
    };
    const auto own = std::find_if(command.options.begin(), command.options.end(), spelt);
    if (own != command.options.end()) return &*own;
    const auto common = common_options();
    const auto shared = std::find_if(common.begin(), common.end(), spelt);
    return shared == common.end() ? nullptr : &*shared;
}

// What the library would misread: foreign names, and "--name=" with an empty value. Values are left alone.
std::vector<std::string> rewritten(const CommandSpec& command, std::span<const std::string> arguments) {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string argument = arguments[i];
        if (argument == "--") {
            result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
            break;
        }
        for (const Renamed& entry : kRenamed)
            if (argument == entry.theirs) argument = entry.ours;
        for (const Answered& entry : kAnswered)
            if (argument == entry.theirs) throw UsageError(fmt::format("{}: {}", entry.theirs, entry.answer));
        const std::size_t equals = argument.find('=');
        if (argument.starts_with("--") && equals != std::string::npos) {
            const OptionSpec* option = find_option(command, argument.substr(0, equals));
            if (option != nullptr && !option->value.empty()) {
                result.push_back(argument.substr(0, equals));
                result.push_back(argument.substr(equals + 1));
                continue;
            }
        }
        const OptionSpec* option = find_option(command, argument);
        result.push_back(std::move(argument));
        if (option != nullptr && !option->value.empty() && i + 1 < arguments.size()) result.push_back(arguments[++i]);
    }
    return result;
}

CLI::Option* declare(CLI::App& app, const OptionSpec& spec) {
    const std::string help(spec.help);
    if (spec.value.empty()) return app.add_flag(std::string(spec.flags), help);
    CLI::Option* option = app.add_option(
        std::string(spec.flags), [](const CLI::results_t&) { return true; }, help);
    option->type_name(std::string(spec.value));
    if (!spec.flags.starts_with("-"))
        return spec.value.ends_with("...") ? option->expected(1, 1 << 28)->allow_extra_args() : option;
    // Any number of times, one value each, taken as it stands.
    return option->expected(1, 1 << 28)->allow_extra_args(false);
}

// The library's words for a mistake, on one line and without what it adds for its own users.
std::string message_of(const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    if (!text.empty() && text.back() == '.') text.pop_back();
    return text;
}

std::string message_of_extras(const std::vector<std::string>& extras) {
    for (const std::string& extra : extras)
        if (extra.starts_with("-")) return fmt::format("unknown option {}", extra);
    return fmt::format("'{}' is not expected here; a text with spaces needs quotes",
                       extras.empty() ? "" : extras.front());
}

}  // namespace

ParsedCommandLine parse_command_line(std::span<const CommandSpec> commands, std::span<const std::string> arguments) {
    CLI::App app("Slipstream runs language models larger than the graphics card, with exact output.", "slipstream");
    app.get_formatter()->column_width(34);
    app.set_help_flag("-h,--help", "Show this help and leave");
    app.set_version_flag("--version", fmt::format("slipstream {}", build_version()), "Show the version and leave");
    app.require_subcommand(1);
    app.footer("'slipstream COMMAND --help' shows a command's options and an example.");

    std::deque<std::pair<const OptionSpec*, CLI::Option*>> declared;  // of the command in question
    std::vector<CLI::App*> apps;
    const std::string_view asked = arguments.empty() ? std::string_view() : std::string_view(arguments.front());
    const CommandSpec* command = nullptr;
    for (const CommandSpec& spec : commands) {
        CLI::App* sub = app.add_subcommand(std::string(spec.name), std::string(spec.summary));
        if (spec.name != asked) continue;
        command = &spec;
        sub->footer(fmt::format("{}{}Example:\n  {}", spec.details, spec.details.empty() ? "" : "\n\n", spec.example));
        for (const OptionSpec& option : spec.options) declared.emplace_back(&option, declare(*sub, option));
        for (const OptionSpec& option : common_options()) declared.emplace_back(&option, declare(*sub, option));
    }

    if (command == nullptr && !asked.empty() && !asked.starts_with("-"))
        throw UsageError(fmt::format("there is no command '{}'", asked));
    ParsedCommandLine parsed;
    std::vector<std::string> rest(arguments.begin(), arguments.end());
    if (command != nullptr) {
        rest = rewritten(*command, arguments.subspan(1));
        rest.insert(rest.begin(), std::string(command->name));
    }
    std::reverse(rest.begin(), rest.end());  // the library takes them from the back
    try {
        app.parse(rest);
    } catch (const CLI::CallForHelp&) {
        parsed.text =
            command == nullptr ? app.help() : app.get_subcommand(std::string(command->name))->help("slipstream");
        return parsed;
    } catch (const CLI::CallForVersion& version) {
        parsed.text = std::string(version.what()) + "\n";
        return parsed;
    } catch (const CLI::RequiredError&) {
        throw UsageError(arguments.empty() ? "no command was given" : fmt::format("unknown option {}", asked));
    } catch (const CLI::ExtrasError&) {
        throw UsageError(message_of_extras(app.remaining(true)));
    } catch (const CLI::ParseError& error) {
        throw UsageError(message_of(error));
    }
    parsed.command = command;
    for (const auto& [spec, option] : declared) {
        if (option->count() == 0) continue;
        parsed.values.emplace(spec->name, option->results());
    }
    return parsed;
}

}  // namespace slipstream::tools
