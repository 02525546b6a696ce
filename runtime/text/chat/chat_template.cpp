#include "runtime/text/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/parser.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/printable.h"

namespace slipstream {

using jinja::Dict;
using jinja::Kind;

namespace {

// Keys under which a message may have the model's reasoning, in order of precedence. Most templates read the first key,
// those of gpt-oss the second.
constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking", "reasoning"};

// Returns `message` with its reasoning under the keys that the template looks at. If the template looks at the key that
// the message has, the message is returned unchanged: a template that looks at several keys tells them apart.
TemplateValue with_reasoning_names(const jinja::Template& tree, const TemplateValue& message) {
    if (!message.is(Kind::Dict)) return message;
    const auto reasoning_of = [&](std::string_view field) {
        const TemplateValue* value = message.dict().find(field);
        return value != nullptr && !value->is_none() ? value : nullptr;
    };
    const auto given =
        std::ranges::find_if(kReasoningFields, [&](std::string_view field) { return reasoning_of(field) != nullptr; });
    const bool reads_given = std::ranges::any_of(kReasoningFields, [&](std::string_view field) {
        return reasoning_of(field) != nullptr && tree.words.contains(field);
    });
    if (given == kReasoningFields.end() || reads_given) return message;
    Dict result;
    for (const auto& [key, value] : message.dict().items()) result.set(key, value);
    for (const std::string_view field : kReasoningFields)
        if (tree.words.contains(field)) result.set(field, *reasoning_of(*given));
    return TemplateValue::dict(std::move(result));
}

TemplateValue prepared(const jinja::Template& tree, const TemplateValue& messages) {
    if (!messages.is(Kind::List)) jinja::fail("the messages are not a list");
    std::vector<TemplateValue> result;
    for (const TemplateValue& message : messages.items()) {
        if (!message.is(Kind::Dict)) jinja::fail("a message is not an object with a role and a content");
        result.push_back(with_reasoning_names(tree, message));
    }
    return TemplateValue::list(std::move(result));
}

Dict variables_of(const jinja::Template& tree, const TemplateInputs& inputs) {
    Dict variables;
    variables.set("messages", prepared(tree, inputs.messages));
    variables.set("tools", inputs.tools);
    variables.set("documents", inputs.documents);
    variables.set("add_generation_prompt", TemplateValue(inputs.add_generation_prompt));
    if (inputs.bos_token) variables.set("bos_token", TemplateValue(*inputs.bos_token));
    if (inputs.eos_token) variables.set("eos_token", TemplateValue(*inputs.eos_token));
    for (const auto& [name, value] : inputs.arguments) variables.set(name, value);
    return variables;
}

}  // namespace

struct ChatTemplate::Parsed {
    std::string name;
    std::string source;
    jinja::Template tree;
};

const std::string& ChatTemplate::name() const {
    return parsed_->name;
}
const std::string& ChatTemplate::source() const {
    return parsed_->source;
}

bool ChatTemplate::reads(std::string_view variable) const {
    const jinja::Template& tree = parsed_->tree;
    return std::ranges::any_of(tree.reads, [&](jinja::NameId name) { return tree.names[name] == variable; });
}

std::vector<std::string> ChatTemplate::variables() const {
    std::vector<std::string> names;
    for (const jinja::NameId id : parsed_->tree.reads) {
        const std::string& name = parsed_->tree.names[id];
        if (jinja::find_global(name) == nullptr) names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
}

ChatTemplate ChatTemplate::parse(std::string source, std::string name) {
    auto parsed = std::make_shared<Parsed>();
    int line = 0;
    try {
        if (source.size() > kMaxTemplateBytes) jinja::fail("a template of more than {} bytes", kMaxTemplateBytes);
        parsed->tree = jinja::parse_template(source, line);
    } catch (const TemplateError& error) {
        throw TemplateError(name, line, error.message());
    }
    parsed->name = std::move(name);
    parsed->source = std::move(source);
    return ChatTemplate(std::move(parsed));
}

MarkedText ChatTemplate::render(const TemplateInputs& inputs, const TemplateLimits& limits) const {
    jinja::Runtime runtime(limits, inputs.now);
    try {
        const Dict variables = variables_of(parsed_->tree, inputs);
        return jinja::Evaluator(runtime, parsed_->tree, variables).render();
    } catch (const TemplateError& error) {
        throw TemplateError(parsed_->name, runtime.line, error.message());
    }
}

TemplateValue chat_message(std::string_view role, std::string_view content) {
    return TemplateValue::dict({{"role", TemplateValue(role)}, {"content", TemplateValue(content)}});
}

TemplateValue parse_template_json(std::string_view text, std::string_view what) {
    return jinja::parse_json(text, what);
}

std::pair<std::string, TemplateValue> parse_template_argument(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0)
        throw RequestError(
            fmt::format("template argument \"{}\": write NAME=VALUE, the value as JSON or text", printable(text)));
    const std::string_view value = text.substr(equals + 1);
    std::string name(text.substr(0, equals));
    try {
        return {std::move(name), jinja::parse_json(value, "template argument")};
    } catch (const TemplateError&) {
        return {std::string(text.substr(0, equals)), TemplateValue(value)};  // not JSON: V is a text
    }
}

}  // namespace slipstream
