#include "tools/template_options.h"

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/console.h"
#include "tools/file_output.h"
#include "tools/template_families.h"
#include "tools/usage_error.h"

namespace slipstream::tools {

namespace {

ChatTemplate parse_family(const TemplateFamily& family) {
    return ChatTemplate::parse(std::string(family.source), fmt::format("the {} template", family.name));
}

// A file of that name comes first, so that no file is out of reach.
void read_named(const std::string& name, TemplateSettings& chosen) {
    chosen.choice = TemplateChoice::Named;
    std::error_code ignored;
    if (std::filesystem::exists(name, ignored)) {
        chosen.named = ChatTemplate::parse(read_bytes(name), name);
        return;
    }
    const TemplateFamily* family = find_template_family(name);
    if (family == nullptr)
        throw RequestError(
            fmt::format("--template {}: there is no such file, and no such family; name a file, or one of {}", name,
                        template_family_names()));
    chosen.named = parse_family(*family);
}

// What transformers calls these variables is not for arguments to say.
void check_argument(const std::string& key, std::string_view where) {
    constexpr std::array<std::string_view, 2> kOurs{"messages", "add_generation_prompt"};
    for (const std::string_view name : kOurs)
        if (key == name)
            throw UsageError(fmt::format("{}: {} is made out of the conversation; leave it out", where, key));
}

// As much of a path as names the model: a file, or a snapshot in the Hugging Face cache.
std::string end_of_path(std::filesystem::path path) {
    std::string name;
    for (int i = 0; i < 4 && path.has_filename(); ++i) {
        name = fmt::format("{}/{}", path.filename().string(), name);
        path = path.parent_path();
    }
    return name;
}

std::optional<PromptTemplate> named_or_own(TemplateSettings& chosen, const ServedModel& served,
                                           const Tokenizer& tokenizer, Console& console) {
    if (chosen.choice == TemplateChoice::None) return std::nullopt;
    if (chosen.choice == TemplateChoice::Named) {
        console.note(fmt::format("the prompt goes through {}", chosen.named->name()));
        return PromptTemplate(std::move(*chosen.named), chosen.arguments, tokenizer);
    }
    const auto& own = served.files->chat_template();
    if (!own) return std::nullopt;
    try {
        PromptTemplate made(ChatTemplate::parse(*own, "the model's chat template"), chosen.arguments, tokenizer);
        console.note("the prompt goes through the model's chat template (--no-template: raw text)");
        return made;
    } catch (const TemplateError& error) {
        throw RequestError(
            fmt::format("{}; --template F takes another one, --no-template continues raw text", error.what()));
    }
}

}  // namespace

std::vector<OptionSpec> template_option_specs() {
    return {
        {"system", "--system,--system-prompt", "TEXT", "What the model is told before the conversation"},
        {"no-template", "--no-template", "", "Raw text, though the model has a chat template"},
        {"template", "--template,--chat-template-file", "F",
         "Chat template instead of the model's own: a Jinja file, or the name of a common one", OptionRole::InputFile},
        {"template-arg", "--template-arg", "K=V", "Variable of the template, V as JSON or text (may be repeated)"}};
}

TemplateSettings template_settings(const Settings& settings) {
    TemplateSettings chosen;
    constexpr std::array<std::string_view, 2> kOptions{"template", "no-template"};
    const std::string_view strongest = settings.strongest_of(kOptions);
    if (strongest == "template") read_named(*settings.path("template"), chosen);
    if (strongest == "no-template" && settings.flag("no-template")) chosen.choice = TemplateChoice::None;
    for (const std::string& argument : settings.texts("template-arg")) {
        const std::string& where = settings.find("template-arg")->where;
        try {
            chosen.arguments.push_back(parse_template_argument(argument));
        } catch (const RequestError& error) {
            throw UsageError(fmt::format("{}: {}", where, error.what()));
        }
        check_argument(chosen.arguments.back().first, where);
    }
    if (auto system = settings.text("system"); system && !system->empty()) chosen.system = std::move(system);
    return chosen;
}

std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const ServedModel& served,
                                                  const Tokenizer& tokenizer, CommandContext& context) {
    auto made = named_or_own(chosen, served, tokenizer, context.console);
    if (made) return made;
    for (const std::string_view name : {"system", "template-arg"}) {
        const Setting* setting = context.settings.find(name);
        if (setting != nullptr && setting->origin == Origin::CommandLine)
            throw UsageError(
                fmt::format("--{}: {}; name a template by --template, or write the text into the prompt", name,
                            chosen.choice == TemplateChoice::None ? "--no-template leaves the prompt as it is"
                                                                  : "the model has no chat template to put it into"));
    }
    return made;
}

std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const ServedModel& served,
                                                    const Tokenizer& tokenizer, CommandContext& context) {
    auto made = named_or_own(chosen, served, tokenizer, context.console);
    if (!made && chosen.choice == TemplateChoice::Automatic) {
        if (const TemplateFamily* family = guess_template_family(tokenizer, end_of_path(served.path))) {
            context.console.note(
                fmt::format("the model has no chat template; what tells of one says {} (--template F takes another)",
                            family->name));
            made.emplace(parse_family(*family), chosen.arguments, tokenizer);
        }
    }
    if (made) return made;
    if (const Setting* setting = context.settings.find("template-arg");
        setting != nullptr && setting->origin == Origin::CommandLine)
        throw UsageError("--template-arg: there is no chat template to take it; name one by --template");
    return made;
}

}  // namespace slipstream::tools
