#include "tools/options/options.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/base/build_version.h"
#include "tools/base/closest_name.h"
#include "tools/base/usage_error.h"
#include "tools/options/help_files.h"
#include "tools/options/help_text.h"
#include "tools/options/lab_commands.h"
#include "tools/options/llama_options.h"
#include "tools/options/program.h"

namespace slipstream::tools {

namespace {

struct Renamed {
    std::string_view theirs, ours;
    std::string_view unit{};  // appended to a value that is a plain number
};
// llama.cpp's spellings of options that exist here: names of one dash and several letters, which CLI11 cannot declare,
// and names that differ.
constexpr std::array kRenamed{Renamed{"-dev", "--devices"},
                              Renamed{"-ctk", "--kv-type"},
                              Renamed{"--cache-type-k", "--kv-type"},
                              Renamed{"-ctv", "--kv-type"},
                              Renamed{"--cache-type-v", "--kv-type"},
                              Renamed{"-md", "--draft-model"},
                              Renamed{"-sys", "--system"},
                              Renamed{"-hf", "--model"},
                              Renamed{"-hfr", "--model"},
                              Renamed{"--hf-repo", "--model"},
                              Renamed{"-no-cnv", "--no-template"},
                              Renamed{"--no-conversation", "--no-template"},
                              Renamed{"-cram", "--kept-memory", "M"},
                              Renamed{"--cache-ram", "--kept-memory", "M"}};
// llama.cpp's options for a conversation, which here is the command `chat`.
constexpr std::array<std::string_view, 2> kConversation{"-cnv", "--conversation"};

// Returns the option of `command`, or the common option, that has the spelling `flag`; null if there is none.
const OptionSpec* find_option(const CommandSpec& command, std::string_view flag) {
    const auto spelt = [flag](const OptionSpec& option) {
        return std::ranges::any_of(spellings_of(option), [&](const std::string& name) { return name == flag; });
    };
    const auto own = std::find_if(command.options.begin(), command.options.end(), spelt);
    if (own != command.options.end()) return &*own;
    const auto common = common_options();
    const auto shared = std::find_if(common.begin(), common.end(), spelt);
    return shared == common.end() ? nullptr : &*shared;
}

// If `argument` is an option of one dash and one letter with a number attached ("-n20", "-s-1", and "-l5=1", whose
// value is "5=1"), returns the length of the option's name, 2; else 0.
std::size_t attached_number(const CommandSpec& command, const std::string& argument) {
    constexpr std::size_t kShort = 2;
    if (argument.size() <= kShort || argument[1] == '-') return 0;
    const OptionSpec* option = find_option(command, argument.substr(0, kShort));
    const std::size_t digits = argument[kShort] == '-' ? kShort + 1 : kShort;
    const std::size_t end = std::min(argument.find_first_not_of("0123456789", digits), argument.size());
    const bool number = end > digits && (end == argument.size() || argument[end] == '=');
    return option != nullptr && !option->value.empty() && number ? kShort : 0;
}

// Returns whether the argument after an option is its value: it is not the spelling of another option, unless the value
// may be any text.
bool has_value_after(const CommandSpec& command, const OptionSpec& option, std::span<const std::string> rest) {
    if (rest.empty()) return false;
    const bool takes_any_text = option.value == "TEXT" || option.value == "PROMPT";
    return takes_any_text || !rest.front().starts_with("--") ||
           find_option(command, std::string_view(rest.front()).substr(0, rest.front().find('='))) == nullptr;
}

[[noreturn]] void refuse_unknown(const CommandSpec& command, std::string_view argument) {
    if (const std::string_view lab = lab_command_of(command, argument); !lab.empty())
        throw UsageError(where_lab_is(argument, lab));
    std::vector<std::string> known;
    for (const OptionSpec& option : command.options)
        for (std::string& name : spellings_of(option)) known.push_back(std::move(name));
    for (const OptionSpec& option : common_options())
        for (std::string& name : spellings_of(option)) known.push_back(std::move(name));
    std::erase_if(known, [](const std::string& name) { return !name.starts_with("--"); });
    const std::vector<std::string_view> names(known.begin(), known.end());
    const std::string_view meant = argument.starts_with("--") ? closest_name(argument, names) : std::string_view();
    if (argument == "--json" && std::ranges::find(known, "--stats") != known.end())
        throw UsageError("unknown option --json; --stats FILE writes the statistics of a run as JSON");
    throw UsageError(meant.empty() ? fmt::format("unknown option {}", argument)
                                   : fmt::format("unknown option {}; {} is one", argument, meant));
}

struct HelpAsked {
    HelpDepth depth;
};
struct ConversationAsked {
    std::string option;
};

// The types that llama.cpp's options give K and V of the cache, which are of one type here.
class CacheTypes {
public:
    // Call for each option with its value, as it was typed.
    void add(std::string_view typed, const std::string& value) {
        if (typed == "-ctk" || typed == "--cache-type-k") k_ = value;
        if (typed == "-ctv" || typed == "--cache-type-v") v_ = value;
    }
    // Throws UsageError if K and V differ. F16 is llama.cpp's own default, so for F16 one of the options is enough.
    void check() const {
        if (!k_ && !v_) return;
        const std::string k = k_.value_or("f16");
        const std::string v = v_.value_or("f16");
        if (k != v)
            throw UsageError(fmt::format(
                "-ctk {} and -ctv {}: K and V of the cache are of one type here; give --kv-type instead", k, v));
    }

private:
    std::optional<std::string> k_;
    std::optional<std::string> v_;
};

// Arguments for CLI11, and what the user is told of options that were taken out.
struct Rewritten {
    std::vector<std::string> arguments;
    std::vector<std::string> notes;
};

// Returns `arguments` without what CLI11 would misread: llama.cpp's spellings, "--name=" with an empty value, and
// "-xyz", which it would split into letters. Values are not changed. Throws HelpAsked, ConversationAsked, UsageError.
Rewritten rewritten(const CommandSpec& command, std::span<const std::string> arguments) {
    Rewritten result;
    CacheTypes cache_types;
    std::string devices;  // value of --devices that -ngl 0 asks for; empty: it is not given
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string argument = arguments[i];
        if (argument == "--") {
            result.arguments.insert(result.arguments.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                                    arguments.end());
            break;
        }
        if (argument == "-h" || argument == "--help") throw HelpAsked{HelpDepth::Common};
        if (argument == "--help-all") throw HelpAsked{HelpDepth::All};
        std::string value;
        bool has_value = false;
        if (const std::size_t name = attached_number(command, argument); name > 0) {
            value = argument.substr(name);
            argument.resize(name);
            has_value = true;
        } else if (const std::size_t equals = argument.find('=');
                   argument.starts_with("-") && equals != std::string::npos) {
            value = argument.substr(equals + 1);
            argument.resize(equals);
            has_value = true;
        }
        if (std::ranges::find(kConversation, argument) != kConversation.end()) {
            if (command.name == "chat") continue;
            if (command.name == "generate") throw ConversationAsked{argument};
        }
        const std::string typed = argument;
        const OptionSpec* option = find_option(command, argument);
        std::string_view unit;
        for (const Renamed& entry : kRenamed)
            if (option == nullptr && argument == entry.theirs) {
                argument = entry.ours;
                option = find_option(command, argument);
                unit = entry.unit;
            }
        if (option == nullptr) {
            const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
            if (const auto theirs = llama_option(command, argument, has_value ? &value : nullptr, next)) {
                result.notes.push_back(theirs->note);
                if (!theirs->devices.empty()) devices = theirs->devices;
                if (theirs->takes_next) ++i;
                continue;
            }
        }
        const bool is_option = argument.size() > 1 && argument.starts_with("-");
        if (is_option && option == nullptr) refuse_unknown(command, typed);
        if (!is_option) option = nullptr;  // an argument that equals the name of a positional option is a text
        if (option != nullptr && option->value.empty() && has_value)
            throw UsageError(fmt::format("{} takes no value, found '{}'", argument, value));
        std::vector<std::string>& kept = result.arguments;
        kept.push_back(std::move(argument));
        if (option == nullptr || option->value.empty()) continue;
        if (has_value) {
            kept.push_back(std::move(value));
        } else if (has_value_after(command, *option, arguments.subspan(i + 1))) {
            kept.push_back(arguments[++i]);
        } else {
            throw UsageError(fmt::format("{} requires a value, {}{}; none follows it", typed, option->value,
                                         typed == kept.back() ? "" : fmt::format(" (it is {} here)", kept.back())));
        }
        if (const std::string& given = kept.back(); !unit.empty() &&
                                                    given.find_first_not_of('0') != std::string::npos &&
                                                    given.find_first_not_of("0123456789") == std::string::npos)
            kept.back() += unit;
        cache_types.add(typed, kept.back());
    }
    cache_types.check();
    if (!devices.empty()) {
        if (std::ranges::find(result.arguments, "--devices") != result.arguments.end())
            throw UsageError(
                fmt::format("-ngl 0 is --devices {} here, and --devices is given too; leave one out", devices));
        result.arguments.insert(result.arguments.begin(), {"--devices", devices});
    }
    return result;
}

CLI::Option* declare(CLI::App& app, const OptionSpec& spec) {
    const std::string help(spec.help);
    if (spec.value.empty()) return app.add_flag(std::string(spec.flags), help);
    CLI::Option* option = app.add_option(
        std::string(spec.flags), [](const CLI::results_t&) { return true; }, help);
    option->type_name(std::string(spec.value));
    // A positional option that also has a name. If it is given several times, the last value counts.
    if (!spec.flags.starts_with("-") && spec.flags.find(',') != std::string_view::npos)
        return option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!spec.flags.starts_with("-"))
        return spec.value.ends_with("...") ? option->expected(1, 1 << 28)->allow_extra_args() : option;
    // May be repeated; each occurrence takes one value, whatever it looks like.
    return option->expected(1, 1 << 28)->allow_extra_args(false);
}

// Returns CLI11's message on one line and without the full stop at its end.
std::string message_of(const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    if (!text.empty() && text.back() == '.') text.pop_back();
    return text;
}

std::string message_of_extras(const CommandSpec& command, const std::vector<std::string>& extras) {
    for (const std::string& extra : extras)
        if (extra.starts_with("-")) return fmt::format("unknown option {}", extra);
    const std::string extra = extras.empty() ? "" : extras.front();
    const bool takes_text = std::ranges::any_of(
        command.options, [](const OptionSpec& option) { return option.flags.starts_with(option.name); });
    std::string hint;
    if (takes_text) {
        hint = "; a text with spaces needs quotes";
    } else if (find_option(command, "--model") != nullptr && extra.find(' ') == std::string::npos) {
        hint = fmt::format("; -m {} names a model", extra);
    }
    return fmt::format("'{}' is not expected here{}", extra, hint);
}

// What users of other programs type for a command of this one.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOtherCommands{{
    {"run", "'generate' continues a text, 'chat' talks"},
    {"pull", "`tools/get_model smollm2` fetches a first model, `ollama pull` and `hf download` others"},
    {"download", "`tools/get_model smollm2` fetches a first model, `ollama pull` and `hf download` others"},
    {"list", "'models' lists the models on this machine"},
    {"show", "'inspect' tells what a model file holds"},
}};

const CommandSpec& find_command(const ProgramSpec& program, std::string_view name) {
    const auto found = std::ranges::find(program.commands, name, &CommandSpec::name);
    if (found != program.commands.end()) return *found;
    if (is_lab_command(name)) throw UsageError(where_lab_is(fmt::format("'{}'", name), name));
    std::vector<std::string_view> names;
    for (const CommandSpec& command : program.commands) names.push_back(command.name);
    const std::string_view meant = closest_name(name, names);
    for (const auto& [other, answer] : kOtherCommands)
        if (name == other) throw UsageError(fmt::format("unknown command '{}'; {}", name, answer));
    throw UsageError(
        fmt::format("unknown command '{}'{}", name, meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
}

OptionValues parsed_values(const CommandSpec& command, std::vector<std::string> arguments) {
    CLI::App app;
    app.set_help_flag();
    std::deque<std::pair<const OptionSpec*, CLI::Option*>> declared;
    for (const OptionSpec& option : command.options) declared.emplace_back(&option, declare(app, option));
    for (const OptionSpec& option : common_options()) declared.emplace_back(&option, declare(app, option));
    try {
        std::ranges::reverse(arguments);  // CLI11 takes the arguments from the back
        app.parse(arguments);
    } catch (const CLI::ExtrasError&) {
        throw UsageError(message_of_extras(command, app.remaining(true)));
    } catch (const CLI::ParseError& error) {
        throw UsageError(message_of(error));
    }
    OptionValues values;
    for (const auto& [spec, option] : declared)
        if (option->count() > 0) values.emplace(spec->name, option->results());
    return values;
}

void parse_arguments(const CommandSpec& command, std::span<const std::string> arguments, ParsedCommandLine& parsed) {
    Rewritten found = rewritten(command, arguments);
    parsed.values = parsed_values(command, std::move(found.arguments));
    parsed.notes = std::move(found.notes);
}

// Parses the arguments of a `generate` that asked for a conversation as arguments of `chat`. The message of an error
// says so.
void parse_conversation(const CommandSpec& chat, std::span<const std::string> arguments, std::string_view asked_by,
                        ParsedCommandLine& parsed) {
    try {
        parse_arguments(chat, arguments, parsed);
    } catch (const UsageError& error) {
        throw UsageError(fmt::format("{} is 'slipstream chat' here, and for that: {}", asked_by, error.what()));
    }
}

// Returns the answer to `help`, `help COMMAND`, and to `help --man` and `help --completion SHELL`, which an
// installation calls. `asked` are the arguments after the first `help`.
std::string help_answer(const ProgramSpec& program, std::span<const std::string> asked) {
    if (asked.empty() || (asked.front() == "help" && asked.size() == 1)) return program_help(program);
    if (program.audience == Audience::Users) {
        if (asked.front() == "--man" && asked.size() == 1) return manual_page(program.commands);
        if (asked.front() == "--completion" && asked.size() == 2) return completion_script(asked[1], program.commands);
    }
    const CommandSpec* command = nullptr;
    HelpDepth depth = HelpDepth::Common;
    for (const std::string& argument : asked) {
        if (argument == "--help-all" || argument == "--all") {
            depth = HelpDepth::All;
        } else if (command != nullptr || argument.starts_with("-")) {
            throw UsageError(fmt::format("help: one command expected, found '{}'", argument));
        } else {
            command = &find_command(program, argument);
        }
    }
    return command == nullptr ? program_help(program) : command_help(program.name, *command, depth);
}

}  // namespace

ParsedCommandLine parse_command_line(const ProgramSpec& program, std::span<const std::string> arguments) {
    ParsedCommandLine parsed;
    if (arguments.empty() || arguments.front() == "-h" || arguments.front().starts_with("--help")) {
        parsed.text = program_help(program);
        return parsed;
    }
    if (arguments.front() == "--version") {
        parsed.text = fmt::format("{} {}\n", program.name, build_version());
        return parsed;
    }
    if (arguments.front() == "help") {
        parsed.text = help_answer(program, arguments.subspan(1));
        return parsed;
    }
    if (arguments.front().starts_with("-"))
        throw UsageError(fmt::format("unknown option {}; a command comes first", arguments.front()));
    const CommandSpec* command = &find_command(program, arguments.front());
    const std::span<const std::string> given = arguments.subspan(1);
    try {
        try {
            parse_arguments(*command, given, parsed);
        } catch (const ConversationAsked& asked) {
            command = &find_command(program, "chat");
            parse_conversation(*command, given, asked.option, parsed);
        }
    } catch (const HelpAsked& asked) {
        parsed.text = command_help(program.name, *command, asked.depth);
        return parsed;
    }
    parsed.command = command;
    return parsed;
}

}  // namespace slipstream::tools
