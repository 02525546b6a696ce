#include "runtime/text/request/request_tools.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/printable.h"
#include "runtime/text/request/request_error.h"

namespace slipstream {

using jinja::Kind;

bool is_tool_name(std::string_view name) {
    constexpr std::size_t kMaxBytes = 128;
    const auto is_allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_-.:/").find(c) != std::string_view::npos;
    };
    return !name.empty() && name.size() <= kMaxBytes && std::ranges::all_of(name, is_allowed);
}

RequestedTools read_tools(const TemplateValue& tools) {
    if (!tools.is(Kind::List)) throw FieldError("tools", "is no list");
    RequestedTools result;
    std::vector<TemplateValue> values;
    for (const TemplateValue& tool : tools.items()) {
        const std::string field = fmt::format("tools[{}]", values.size());
        if (!tool.is(Kind::Dict)) throw FieldError(field, "is no object");
        if (const TemplateValue* type = tool.dict().find("type");
            type != nullptr && !(type->is_text() && type->view() == "function"))
            throw FieldError(field + ".type",
                             fmt::format("\"{}\" is not served; only \"function\" is",
                                         type->is_text() ? printable(type->view()) : std::string("?")));
        const TemplateValue* function = tool.dict().find("function");
        if (function == nullptr || !function->is(Kind::Dict)) throw FieldError(field + ".function", "is no object");
        const TemplateValue* name = function->dict().find("name");
        if (name == nullptr || !name->is_text() || !is_tool_name(name->view()))
            throw FieldError(field + ".function.name",
                             "must have 1 to 128 letters, digits, or characters of \"_-.:/\"");
        if (find_tool(result.offered, name->view()) != nullptr)
            throw FieldError(field + ".function.name", fmt::format("\"{}\" is the name of another tool", name->view()));
        if (const TemplateValue* strict = function->dict().find("strict"); strict != nullptr && jinja::is_true(*strict))
            throw FieldError(field + ".function.strict", "arguments cannot be forced into a schema; leave it out");
        const TemplateValue* parameters = function->dict().find("parameters");
        if (parameters != nullptr && !parameters->is(Kind::Dict) && !parameters->is_none())
            throw FieldError(field + ".function.parameters", "is no JSON schema");
        result.offered.push_back({.name = std::string(name->view()),
                                  .parameters = parameters != nullptr ? *parameters : TemplateValue::none()});
        values.push_back(said_value(tool));
    }
    result.values = TemplateValue::list(std::move(values));
    return result;
}

}  // namespace slipstream
