#include "tools/engine/prompts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "runtime/formats/chat_templates.h"
#include "runtime/text/chat/choose_template.h"
#include "runtime/text/printable.h"
#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kOtherTemplate = "--template F uses another one, --no-template continues raw text";

PromptTemplate family_template(const TemplateFamily& family, const TemplateSettings& chosen,
                               const Tokenizer& tokenizer) {
    return {ChatTemplate::parse(std::string(family.source), fmt::format("the {} template", family.name)),
            chosen.arguments, tokenizer, family.turn_end};
}

// Returns the last four names of a path, which identify the model: a file, or a snapshot in the Hugging Face cache.
std::string end_of_path(std::filesystem::path path) {
    std::string name;
    for (int i = 0; i < 4 && path.has_filename(); ++i) {
        name = fmt::format("{}/{}", path.filename().string(), name);
        path = path.parent_path();
    }
    return name;
}

// Returns whether the prompt offers tools: its conversation does, or --template-arg tools=[...].
ToolUse tool_use(const TemplateSettings& chosen) {
    const auto gives_tools = [](const auto& argument) {
        return argument.first == "tools" && !argument.second.is_none();
    };
    return chosen.offers_tools || std::ranges::any_of(chosen.arguments, gives_tools) ? ToolUse::Tools
                                                                                     : ToolUse::NoTools;
}

std::string listed(const std::vector<NamedChatTemplate>& templates) {
    if (templates.empty()) return "the model has none";
    std::string names;
    for (const NamedChatTemplate& known : templates) names += (names.empty() ? "" : ", ") + printable(known.name);
    return fmt::format("the model has only {}", names);
}

PromptTemplate named_template(TemplateSettings& chosen, const TokenizerSource& source, const Tokenizer& tokenizer) {
    if (chosen.file) return {std::move(*chosen.file), chosen.arguments, tokenizer};
    if (find_chat_template(source.chat_templates, chosen.name) != nullptr)
        return {*chat_template_of(source.chat_templates, ToolUse::NoTools, chosen.name), chosen.arguments, tokenizer};
    if (const TemplateFamily* family = find_template_family(chosen.name))
        return family_template(*family, chosen, tokenizer);
    throw RequestError(
        fmt::format("--template {}: there is no such file, no such family, and {}; name a file, or one of {}",
                    printable(chosen.name), listed(source.chat_templates), template_family_names()));
}

std::optional<PromptTemplate> named_or_own(TemplateSettings& chosen, const OpenedModel& model,
                                           const Tokenizer& tokenizer, const EngineCallbacks& callbacks) {
    if (chosen.choice == TemplateChoice::None) return std::nullopt;
    const TokenizerSource& source = model.files().tokenizer_source();
    if (chosen.choice == TemplateChoice::Named) {
        PromptTemplate made = named_template(chosen, source, tokenizer);
        callbacks.note(fmt::format("the prompt goes through {}", made.name()));
        return made;
    }
    try {
        auto own = chat_template_of(source.chat_templates, tool_use(chosen));
        if (!own) return std::nullopt;
        callbacks.note(fmt::format("the prompt goes through {} (--no-template: raw text)", own->name()));
        return PromptTemplate(std::move(*own), chosen.arguments, tokenizer);
    } catch (const TemplateError& error) {
        throw RequestError(fmt::format("{}; {}", error.what(), kOtherTemplate));
    } catch (const RequestError& error) {  // several templates, and none is the default
        throw RequestError(
            fmt::format("{}; --template NAME uses one of them, --no-template continues raw text", error.what()));
    }
}

// Reports or refuses variables that the template never reads, since they are probably misspelt or meant for another
// template.
void check_arguments(const PromptTemplate& made, const TemplateSettings& chosen, const EngineCallbacks& callbacks) {
    for (const auto& [key, value] : chosen.arguments) {
        if (!made.reads(key)) {
            const std::string names = fmt::format("{}", fmt::join(made.arguments_read(), ", "));
            const std::string line =
                fmt::format("{}: {} does not read {}; it reads {}", chosen.arguments_from, made.name(), printable(key),
                            names.empty() ? "no variables" : printable(names));
            if (chosen.arguments_demanded) throw UsageError(line);
            callbacks.note(line);
            continue;
        }
        if (value.is_text() && (value.view().starts_with('{') || value.view().starts_with('[')))
            callbacks.note(fmt::format("{}: the value of {} is taken as text, for it is not JSON",
                                       chosen.arguments_from, printable(key)));
    }
}

}  // namespace

std::optional<PromptTemplate> completion_template(TemplateSettings& chosen, const OpenedModel& model,
                                                  const Tokenizer& tokenizer, const EngineCallbacks& callbacks) {
    auto made = named_or_own(chosen, model, tokenizer, callbacks);
    if (made) {
        check_arguments(*made, chosen, callbacks);
        return made;
    }
    if (chosen.system_demanded || chosen.arguments_demanded)
        throw UsageError(fmt::format("--{}: {}; name a template by --template, or write the text into the prompt",
                                     chosen.system_demanded ? "system" : "template-arg",
                                     chosen.choice == TemplateChoice::None
                                         ? "--no-template leaves the prompt as it is"
                                         : "the model has no chat template to put it into"));
    return made;
}

std::optional<PromptTemplate> conversation_template(TemplateSettings& chosen, const OpenedModel& model,
                                                    const Tokenizer& tokenizer, const EngineCallbacks& callbacks) {
    auto made = named_or_own(chosen, model, tokenizer, callbacks);
    if (!made && chosen.choice == TemplateChoice::Automatic) {
        const auto is_control_token = [&](std::string_view text) {
            const std::vector<TokenId> ids = tokenizer.encode(text, SpecialTokens::Parse);
            return std::ranges::any_of(ids, [&](TokenId id) {
                return tokenizer.piece(id) == text && tokenizer.token_kind(id) != TokenKind::Normal;
            });
        };
        if (const TemplateFamily* family = guess_template_family(is_control_token, end_of_path(model.path()))) {
            callbacks.note(fmt::format(
                "the model has no chat template; by its name and control tokens it is {} (--template F gives another)",
                family->name));
            made.emplace(family_template(*family, chosen, tokenizer));
        }
    }
    if (made) {
        check_arguments(*made, chosen, callbacks);
        return made;
    }
    if (chosen.arguments_demanded)
        throw UsageError("--template-arg: there is no chat template to take it; name one by --template");
    return made;
}

}  // namespace slipstream::tools
