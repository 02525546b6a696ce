#include "tools/options/template_options.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"

namespace slipstream::tools {

namespace {

// Reads the template file `name` if it exists. Names of templates come second, so that a file of any name can be used.
void read_named(const std::string& name, TemplateSettings& chosen) {
    chosen.choice = TemplateChoice::Named;
    chosen.name = name;
    std::error_code ignored;
    if (std::filesystem::exists(name, ignored))
        chosen.file = ChatTemplate::parse(read_text(name, "--template", kMostSettingBytes), name);
}

// Throws UsageError if `key` is a variable that is set from the conversation; the names are those of transformers.
void check_argument(const std::string& key, std::string_view where) {
    constexpr std::array<std::string_view, 2> kOurs{"messages", "add_generation_prompt"};
    for (const std::string_view name : kOurs)
        if (key == name)
            throw UsageError(fmt::format("{}: {} is made out of the conversation; leave it out", where, key));
}

}  // namespace

std::vector<OptionSpec> template_option_specs() {
    return {
        {"system", "--system,--system-prompt", "TEXT", "System message: the model reads it before the conversation"},
        {"no-template", "--no-template", "", "Raw text, though the model has a chat template"},
        {"template", "--template,--chat-template-file", "F",
         "Chat template instead of the model's own: a Jinja file, another of the model's, or a common one, "
         "by name",
         OptionRole::InputFile},
        {"template-arg", "--template-arg", "K=V", "Variable of the template, V as JSON or text (may be repeated)"}};
}

TemplateSettings template_settings(const Settings& settings) {
    TemplateSettings chosen;
    constexpr std::array<std::string_view, 2> kOptions{"template", "no-template"};
    const std::string_view strongest = settings.strongest_of(kOptions);
    if (strongest == "template") read_named(*settings.path("template"), chosen);
    if (strongest == "no-template" && settings.flag("no-template")) chosen.choice = TemplateChoice::None;
    if (const Setting* given = settings.find("template-arg")) chosen.arguments_from = given->where;
    chosen.arguments_demanded = settings.on_command_line("template-arg") != nullptr;
    chosen.system_demanded = settings.on_command_line("system") != nullptr;
    for (const std::string& argument : settings.texts("template-arg")) {
        const std::string& where = chosen.arguments_from;
        try {
            chosen.arguments.push_back(parse_template_argument(argument));
        } catch (const RequestError& error) {
            throw UsageError(fmt::format("{}: {}", where, error.what()));
        }
        check_argument(chosen.arguments.back().first, where);
    }
    if (!settings.has("system")) return chosen;
    if (auto system = settings.text("system"); system && !system->empty()) chosen.system = std::move(system);
    return chosen;
}

}  // namespace slipstream::tools
