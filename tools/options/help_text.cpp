#include "tools/options/help_text.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tools/base/text_parts.h"
#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kHelpColumn = 26;  // column, from 0, in which the descriptions of options begin

enum class Reader : std::uint8_t { Anyone, Researcher };

struct Subject {
    std::string_view option;
    std::string_view title;
    Reader reader = Reader::Anyone;
};

constexpr std::string_view kOwn = "Options";
constexpr std::string_view kServer = "Server";
constexpr std::string_view kText = "Text";
constexpr std::string_view kModel = "Model and device";
constexpr std::string_view kMemory = "Memory";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kDrafting = "Speculative decoding";
constexpr std::string_view kResults = "Sessions and results";
constexpr std::string_view kMessages = "Messages and settings";
constexpr std::array kTitles{kOwn, kServer, kText, kModel, kMemory, kSampling, kDrafting, kResults, kMessages};

// Subjects of options. Options that are not listed have the subject kOwn.
constexpr std::array kSubjects{
    Subject{"host", kServer},
    Subject{"port", kServer},
    Subject{"api-key-file", kServer},
    Subject{"insecure", kServer},
    Subject{"allow-host", kServer},
    Subject{"allow-origin", kServer},
    Subject{"alias", kServer},
    Subject{"prompt", kText},
    Subject{"prompt-file", kText},
    Subject{"messages", kText},
    Subject{"max-tokens", kText},
    Subject{"stop", kText},
    Subject{"system", kText},
    Subject{"no-template", kText},
    Subject{"template", kText},
    Subject{"template-arg", kText},
    Subject{"special", kText},
    Subject{"echo", kText},
    Subject{"model", kModel},
    Subject{"ctx", kModel},
    Subject{"kv-type", kModel},
    Subject{"devices", kModel},
    Subject{"split", kModel},
    Subject{"shares", kModel},
    Subject{"threads", kModel},
    Subject{"device-memory", kMemory},
    Subject{"host-memory", kMemory},
    Subject{"kept-memory", kMemory},
    Subject{"experts", kMemory},
    Subject{"link-gib-s", kMemory, Reader::Researcher},
    Subject{"ring", kMemory, Reader::Researcher},
    Subject{"expect-tokens", kMemory, Reader::Researcher},
    Subject{"rates", kMemory, Reader::Researcher},
    Subject{"temperature", kSampling},
    Subject{"top-k", kSampling},
    Subject{"top-p", kSampling},
    Subject{"min-p", kSampling},
    Subject{"repeat-penalty", kSampling},
    Subject{"repeat-last-n", kSampling},
    Subject{"presence-penalty", kSampling},
    Subject{"frequency-penalty", kSampling},
    Subject{"logit-bias", kSampling},
    Subject{"ignore-eos", kSampling},
    Subject{"seed", kSampling},
    Subject{"draft", kDrafting},
    Subject{"draft-model", kDrafting},
    Subject{"budget", kDrafting},
    Subject{"tables", kDrafting},
    Subject{"kv-budget", kDrafting, Reader::Researcher},
    Subject{"kv-view", kDrafting, Reader::Researcher},
    Subject{"view-type", kDrafting, Reader::Researcher},
    Subject{"view-score", kDrafting, Reader::Researcher},
    Subject{"view-rebuild", kDrafting, Reader::Researcher},
    Subject{"tree", kDrafting, Reader::Researcher},
    Subject{"gamma", kDrafting, Reader::Researcher},
    Subject{"lookup-ngram", kDrafting, Reader::Researcher},
    Subject{"cacheback", kDrafting, Reader::Researcher},
    Subject{"frozen-table", kDrafting, Reader::Researcher},
    Subject{"corpus", kDrafting, Reader::Researcher},
    Subject{"verify", kDrafting, Reader::Researcher},
    Subject{"noise-ranking", kDrafting, Reader::Researcher},
    Subject{"self-check", kDrafting, Reader::Researcher},
    Subject{"session", kResults},
    Subject{"session-limit", kResults},
    Subject{"output", kResults},
    Subject{"token-ids", kResults, Reader::Researcher},
    Subject{"stats", kResults},
    Subject{"trace", kResults},
    Subject{"json", kResults},
};

Subject subject_of(const OptionSpec& option) {
    const auto* const found =
        std::ranges::find_if(kSubjects, [&](const Subject& subject) { return subject.option == option.name; });
    return found == kSubjects.end() ? Subject{option.name, kOwn} : *found;
}

bool is_positional(std::string_view spelling) {
    return !spelling.starts_with("-");
}

// Returns "-n, --max-tokens N": the first short and the first long spelling, or all of them with HelpDepth::All.
std::string shown_flags(const OptionSpec& option, HelpDepth depth) {
    std::string flags;
    bool has_short = false;
    bool has_long = false;
    for (const std::string& spelling : spellings_of(option)) {
        if (is_positional(spelling)) continue;
        bool& has = spelling.starts_with("--") ? has_long : has_short;
        if (has && depth == HelpDepth::Common) continue;
        has = true;
        flags += fmt::format("{}{}", flags.empty() ? "" : ", ", spelling);
    }
    if (flags.empty()) return std::string(option.value);
    if (!has_short) flags = fmt::format("    {}", flags);
    return option.value.empty() ? flags : fmt::format("{} {}", flags, option.value);
}

std::string option_lines(const std::string& flags, std::string_view help) {
    std::string line = fmt::format("  {}", flags);
    if (line.size() + 2 > kHelpColumn) {
        line.append(1, '\n').append(kHelpColumn, ' ');
    } else {
        line.resize(kHelpColumn, ' ');
    }
    return line + wrapped(help, kColumns - kHelpColumn, kHelpColumn) + "\n";
}

// Returns "slipstream tables [build|inspect] [FILE...] [OPTION]...".
std::string usage_of(std::string_view program, const CommandSpec& command) {
    std::string usage = fmt::format("{} {}", program, command.name);
    for (const OptionSpec& option : command.options)
        for (const std::string& spelling : spellings_of(option))
            if (is_positional(spelling)) usage += fmt::format(" [{}]", option.value);
    return usage + " [OPTION]...";
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
    std::string result;
    std::size_t width = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        if (text[at] == '\n' && at + 1 < text.size() && text[at + 1] == '\n') {
            result.append("\n\n").append(indent, ' ');
            width = 0;
            at += 2;
            continue;
        }
        if (text[at] == ' ' || text[at] == '\n') {
            ++at;
            continue;
        }
        const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
        const std::string_view word = text.substr(at, end - at);
        const auto cells = static_cast<std::size_t>(cells_of(word));
        if (width > 0 && width + 1 + cells > columns) {
            result.append(1, '\n').append(indent, ' ');
            width = 0;
        }
        if (width > 0) {
            result += ' ';
            ++width;
        }
        result += word;
        width += cells;
        at = end;
    }
    return result;
}

std::vector<std::string> spellings_of(const OptionSpec& option) {
    const std::vector<std::string_view> parts = split_list(option.flags);
    return {parts.begin(), parts.end()};
}

std::vector<OptionGroup> grouped_options(const CommandSpec& command, HelpDepth depth) {
    std::vector<OptionGroup> groups;
    const auto add = [&](std::string_view title, const OptionSpec& option) {
        auto group = std::ranges::find(groups, title, &OptionGroup::title);
        if (group == groups.end()) group = groups.insert(groups.end(), OptionGroup{title, {}});
        group->options.push_back(&option);
    };
    for (const std::string_view title : kTitles)
        for (const OptionSpec& option : command.options)
            if (const Subject subject = subject_of(option);
                subject.title == title && (depth == HelpDepth::All || subject.reader == Reader::Anyone))
                add(title, option);
    for (const OptionSpec& option : common_options()) add(kMessages, option);
    return groups;
}

std::string program_help(const ProgramSpec& program) {
    std::string text = wrapped(program.purpose, kColumns);
    text += fmt::format("\n\nUsage: {} COMMAND [OPTION]...\n\nCommands\n", program.name);
    std::size_t longest = 0;
    for (const CommandSpec& command : program.commands) longest = std::max(longest, command.name.size());
    const std::size_t name_columns = longest + 2;
    for (const CommandSpec& command : program.commands)
        text += fmt::format("  {:<{}}{}\n", command.name, name_columns,
                            wrapped(command.summary, kColumns - name_columns - 2, name_columns + 2));
    text += fmt::format("  {:<{}}{}\n", "help", name_columns, "This list, or all about one command: help COMMAND");
    if (!program.first_steps.empty()) text += fmt::format("\nFirst steps\n{}", program.first_steps);
    return text;
}

std::string command_help(std::string_view program, const CommandSpec& command, HelpDepth depth) {
    std::string text = wrapped(command.summary, kColumns) + "\n\nUsage: " + usage_of(program, command) + "\n";
    for (const OptionGroup& group : grouped_options(command, depth)) {
        text += fmt::format("\n{}\n", group.title);
        for (const OptionSpec* option : group.options) text += option_lines(shown_flags(*option, depth), option->help);
        if (group.title == kMessages) {
            text += option_lines("-h, --help", fmt::format("This help; '{} help COMMAND' is the same", program));
            text += option_lines("    --help-all", "With options for research, and every spelling");
        }
    }
    if (!command.details.empty()) text += fmt::format("\n{}\n", wrapped(command.details, kColumns));
    return text + fmt::format("\nExample:\n  {}\n", command.example);
}

}  // namespace slipstream::tools
