#include "tools/options/help_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/base/build_version.h"
#include "tools/base/usage_error.h"
#include "tools/options/help_text.h"

namespace slipstream::tools {

namespace {

// Escapes `text` for roff: dashes are printed as typed, and the line cannot begin with a control character.
std::string roff(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '\n') {
            result += ' ';
        } else if (c == '-') {
            result += "\\-";
        } else if (c == '\\') {
            result += "\\e";
        } else {
            result += c;
        }
    }
    return result.starts_with(".") || result.starts_with("'") ? fmt::format("\\&{}", result) : result;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
        text.replace(at, what.size(), by);
    return text;
}

// Returns `text` as a word in single quotes for sh, bash and zsh.
std::string in_single_quotes(std::string_view text) {
    return fmt::format("'{}'", replaced(std::string(text), "'", "'\\''"));
}

std::string roff_option(const OptionSpec& option) {
    std::string flags;
    for (const std::string& spelling : spellings_of(option))
        if (spelling.starts_with("-"))
            flags += fmt::format("{}{}", flags.empty() ? "\\fB" : "\\fR, \\fB", roff(spelling));
    std::string line = fmt::format(".TP\n{}", flags.empty() ? flags : flags + "\\fR");
    if (!option.value.empty()) line += fmt::format("{}\\fI{}\\fR", flags.empty() ? "" : " ", roff(option.value));
    return fmt::format("{}\n{}\n", line, roff(option.help));
}

// Returns whether `options` has `option`, with the same text.
bool has_same(std::span<const OptionSpec> options, const OptionSpec& option) {
    return std::ranges::any_of(options, [&](const OptionSpec& other) {
        return other.flags == option.flags && other.value == option.value && other.help == option.help;
    });
}

bool is_shared(std::span<const CommandSpec> commands, const OptionSpec& option) {
    return std::ranges::count_if(commands,
                                 [&](const CommandSpec& command) { return has_same(command.options, option); }) > 1;
}

// Returns the first long spelling of an option, else its first one.
std::string main_spelling(const OptionSpec& option) {
    const std::vector<std::string> spellings = spellings_of(option);
    const auto found = std::ranges::find_if(spellings, [](const std::string& name) { return name.starts_with("--"); });
    return found == spellings.end() ? spellings.front() : *found;
}

// Returns the part of the manual page about one command: its own options in full, those of several commands by name.
std::string roff_command(const CommandSpec& command, std::span<const CommandSpec> commands) {
    std::string text = fmt::format(".SS {}\n{}.\n", command.name, roff(command.summary));
    if (!command.details.empty()) text += fmt::format(".PP\n{}\n", roff(command.details));
    std::string shared;
    for (const OptionSpec& option : command.options) {
        if (is_shared(commands, option)) {
            shared += fmt::format("{}\\fB{}\\fR", shared.empty() ? "" : ", ", roff(main_spelling(option)));
        } else {
            text += roff_option(option);
        }
    }
    if (!shared.empty()) text += fmt::format(".PP\nOptions of several commands (below): {}.\n", shared);
    return text + fmt::format(".PP\nExample:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(command.example));
}

// Returns the options that several commands have, each once, by subject.
std::string roff_shared_options(std::span<const CommandSpec> commands) {
    CommandSpec all{};
    for (const CommandSpec& command : commands)
        for (const OptionSpec& option : command.options)
            if (is_shared(commands, option) && !has_same(all.options, option)) all.options.push_back(option);
    std::string text;
    for (const OptionGroup& group : grouped_options(all, HelpDepth::All)) {
        std::string options;
        for (const OptionSpec* option : group.options)
            // grouped_options() adds the options of every command, which manual_page() lists apart.
            if (has_same(all.options, *option)) options += roff_option(*option);
        if (!options.empty()) text += fmt::format(".SS {}\n{}", roff(group.title), options);
    }
    return text;
}

std::string names_of(std::span<const CommandSpec> commands) {
    std::string names;
    for (const CommandSpec& command : commands) names += fmt::format("{} ", command.name);
    return names + "help";
}

// Calls use(option, spellings) for each option of the command and each common option, with the spellings that begin
// with a dash; skips options that are only positional.
template <typename Use>
void for_each_option(const CommandSpec& command, Use use) {
    const auto pass = [&](const OptionSpec& option) {
        std::vector<std::string> spellings = spellings_of(option);
        std::erase_if(spellings, [](const std::string& spelling) { return !spelling.starts_with("-"); });
        if (!spellings.empty()) use(option, spellings);
    };
    for (const OptionSpec& option : command.options) pass(option);
    for (const OptionSpec& option : common_options()) pass(option);
}

// Returns the values of an option for a shell's list of words: "auto, f16" -> "auto f16".
std::string words_of(const OptionSpec& option) {
    return replaced(option.choices, ",", "");
}

// Returns a pattern of `case` for the places where a value of the option is completed, each as COMMAND:WORD_BEFORE. The
// word before a positional value is the name of the command.
std::string places_of(const CommandSpec& command, const OptionSpec& option) {
    std::string places;
    for (const std::string& spelling : spellings_of(option))
        places += fmt::format("{}{}:{}", places.empty() ? "" : "|", command.name,
                              spelling.starts_with("-") ? std::string_view(spelling) : command.name);
    return places;
}

// Shell command that prints the names of the models that `models` lists, one per line. Completes -m, beside files.
constexpr std::string_view kListModels = "slipstream models 2>/dev/null | sed -n '2,$s/ .*//p'";

std::string bash_completion(std::span<const CommandSpec> commands) {
    std::string text = fmt::format(
        "# bash completion of slipstream\n"
        "_slipstream() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options=\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ] || [ \"$COMP_CWORD\" -eq 2 -a \"$before\" = help ]; then\n"
        "        COMPREPLY=($(compgen -W '{} --help --version' -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case $before in\n"
        "        -m|--model|-md|--draft-model)\n"
        "            COMPREPLY=($(compgen -f -W \"$({})\" -- \"$word\"))\n"
        "            return ;;\n"
        "    esac\n"
        "    local values=\n"
        "    case ${{COMP_WORDS[1]}}:$before in\n",
        names_of(commands), kListModels);
    for (const CommandSpec& command : commands)
        for (const OptionSpec& option : command.options)
            if (!option.choices.empty())
                text += fmt::format("        {}) values='{}' ;;\n", places_of(command, option), words_of(option));
    text +=
        "    esac\n"
        "    if [ -n \"$values\" ]; then\n"
        "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case ${COMP_WORDS[1]} in\n";
    for (const CommandSpec& command : commands) {
        std::string options;
        for_each_option(command, [&](const OptionSpec&, const std::vector<std::string>& spellings) {
            for (const std::string& spelling : spellings) options += spelling + " ";
        });
        text += fmt::format("        {}) options='{}--help --help-all' ;;\n", command.name, options);
    }
    return text +
           "    esac\n"
           "    case $word in\n"
           "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
           "        *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
           "    esac\n"
           "}\n"
           "complete -o filenames -F _slipstream slipstream\n";
}

std::string zsh_completion(std::span<const CommandSpec> commands) {
    std::string text = "#compdef slipstream\n_slipstream() {\n    local -a commands options\n    commands=(\n";
    const auto plain = [](std::string_view help) {  // escapes characters that zsh's completion interprets
        std::string result = replaced(std::string(help), "\\", "\\\\");
        for (const char* mark : {"[", "]", ":"}) result = replaced(result, mark, fmt::format("\\{}", mark));
        return result;
    };
    for (const CommandSpec& command : commands)
        text +=
            fmt::format("        {}\n", in_single_quotes(fmt::format("{}:{}", command.name, plain(command.summary))));
    text += fmt::format(
        "        'help:All about a command'\n"
        "    )\n"
        "    if (( CURRENT == 2 )) || [[ $words[2] == help ]]; then _describe command commands; return; fi\n"
        "    case $words[CURRENT-1] in\n"
        "        -m|--model|-md|--draft-model) compadd -- ${{(f)\"$({})\"}}; _files; return ;;\n"
        "    esac\n"
        "    case $words[2]:$words[CURRENT-1] in\n",
        kListModels);
    for (const CommandSpec& command : commands)
        for (const OptionSpec& option : command.options)
            if (!option.choices.empty())
                text +=
                    fmt::format("        {}) compadd -- {}; return ;;\n", places_of(command, option), words_of(option));
    text += "    esac\n    case $words[2] in\n";
    for (const CommandSpec& command : commands) {
        text += fmt::format("        {}) options=(\n", command.name);
        for_each_option(command, [&](const OptionSpec& option, const std::vector<std::string>& spellings) {
            for (const std::string& spelling : spellings)
                text += fmt::format("            {}\n",
                                    in_single_quotes(fmt::format("{}:{}", spelling, plain(option.help))));
        });
        text += "        ) ;;\n";
    }
    return text +
           "    esac\n"
           "    if [[ $PREFIX == -* ]]; then _describe option options; else _files; fi\n"
           "}\n"
           "_slipstream \"$@\"\n";
}

std::string fish_completion(std::span<const CommandSpec> commands) {
    std::string text = "# fish completion of slipstream\n";
    const auto fish = [](std::string_view words) {
        return fmt::format("'{}'", replaced(replaced(std::string(words), "\\", "\\\\"), "'", "\\'"));
    };
    for (const CommandSpec& command : commands)
        text += fmt::format("complete -c slipstream -n __fish_use_subcommand -f -a {} -d {}\n", command.name,
                            fish(command.summary));
    text += "complete -c slipstream -n __fish_use_subcommand -f -a help -d 'All about a command'\n";
    text +=
        fmt::format("complete -c slipstream -n '__fish_seen_subcommand_from help' -f -a '{}'\n", names_of(commands));
    for (const CommandSpec& command : commands)
        for_each_option(command, [&](const OptionSpec& option, const std::vector<std::string>& spellings) {
            text += fmt::format("complete -c slipstream -n '__fish_seen_subcommand_from {}'", command.name);
            for (const std::string& spelling : spellings) {
                if (spelling.starts_with("--")) {
                    text += fmt::format(" -l {}", spelling.substr(2));
                } else {
                    text += fmt::format(" -{} {}", spelling.size() == 2 ? 's' : 'o', spelling.substr(1));
                }
            }
            if (option.name == "model" || option.name == "draft-model") {
                text += fmt::format(" -r -a {}", fish(fmt::format("({})", kListModels)));
            } else if (!option.choices.empty()) {
                text += fmt::format(" -x -a {}", fish(words_of(option)));
            } else if (!option.value.empty()) {
                text += " -r";
            }
            text += fmt::format(" -d {}\n", fish(option.help));
        });
    for (const CommandSpec& command : commands)
        for (const OptionSpec& option : command.options)
            if (!option.choices.empty() && !option.flags.starts_with("-"))
                text += fmt::format("complete -c slipstream -n '__fish_seen_subcommand_from {}' -a {}\n", command.name,
                                    fish(words_of(option)));
    return text;
}

}  // namespace

std::string manual_page(std::span<const CommandSpec> commands) {
    std::string text = fmt::format(
        ".TH SLIPSTREAM 1 \"\" \"slipstream {}\" \"User Commands\"\n"
        ".SH NAME\nslipstream \\- run language models that do not fit into GPU memory, exactly\n"
        ".SH SYNOPSIS\n.B slipstream\n\\fICOMMAND\\fR [\\fIOPTION\\fR]...\n"
        ".SH DESCRIPTION\n"
        "Weights and KV cache that do not fit on the device stay in pinned memory of the host and stream through the "
        "device once per pass. Speculative decoding puts draft tokens into the same pass, and the model verifies all "
        "at "
        "once. Draft tokens decide how fast the text comes, never what it says.\n"
        ".PP\nThe text goes to stdout and nothing else does.\n.SH COMMANDS\n",
        roff(build_version()));
    for (const CommandSpec& command : commands) text += roff_command(command, commands);
    text += fmt::format(".SH OPTIONS OF SEVERAL COMMANDS\n{}", roff_shared_options(commands));
    text += ".SH OPTIONS OF EVERY COMMAND\n";
    for (const OptionSpec& option : common_options()) text += roff_option(option);
    return text +
           ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR, \\fB\\-\\-help\\-all\\fR\nWhat the command's options are; with "
           "those "
           "for research.\n"
           ".SH ENVIRONMENT\n"
           ".TP\n\\fBSLIPSTREAM_\\fIOPTION\\fR\nThe value of an option that the command line does not give, as "
           "SLIPSTREAM_THREADS.\n"
           ".TP\n\\fBSLIPSTREAM_MODELS\\fR\nFolders of models, separated by colons.\n"
           ".TP\n\\fBTERM\\fR\nA terminal that is \"dumb\", or not named, gets text alone: no colours, no bars.\n"
           ".TP\n\\fBNO_COLOR\\fR, \\fBCUDA_VISIBLE_DEVICES\\fR, \\fBXDG_CONFIG_HOME\\fR, \\fBXDG_CACHE_HOME\\fR\nAs "
           "everywhere.\n"
           ".SH FILES\n"
           ".TP\n\\fI~/.config/slipstream/config.toml\\fR\nOptions by name; those of one command under [command].\n"
           ".TP\n\\fI~/.cache/slipstream/models\\fR\nModels that tools/get_model downloaded.\n"
           ".TP\n\\fI~/.cache/slipstream/tables\\fR\nWhat was learnt from earlier texts: tables of draft tokens, and "
           "how often experts were chosen (\\-\\-tables "
           "off: "
           "nothing is kept).\n"
           ".SH EXIT STATUS\n0 done; 1 the request could not be served, as one line on stderr says; 2 a mistake on the "
           "command line; 129, 130 and 143 ended by SIGHUP (a closed window), SIGINT or SIGTERM: what was generated, "
           "the "
           "session and what was learnt are kept.\n";
}

std::string completion_script(std::string_view shell, std::span<const CommandSpec> commands) {
    if (shell == "bash") return bash_completion(commands);
    if (shell == "zsh") return zsh_completion(commands);
    if (shell == "fish") return fish_completion(commands);
    throw UsageError(fmt::format("--completion: bash, zsh or fish expected, found '{}'", shell));
}

}  // namespace slipstream::tools
