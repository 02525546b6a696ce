#include "runtime/text/request/request_tools.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/text/chat/prompt_template.h"
#include "runtime/text/printable.h"
#include "runtime/text/request/request_error.h"
#include "runtime/text/request/request_fields.h"

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
    if (!tools.is(Kind::List)) throw FieldError("tools", "must be a list");
    RequestedTools result;
    std::vector<TemplateValue> values;
    std::unordered_set<std::string_view> names;
    for (const TemplateValue& tool : tools.items()) {
        const std::string field = fmt::format("tools[{}]", values.size());
        if (!tool.is(Kind::Dict)) throw FieldError(field, "must be an object");
        if (const TemplateValue* type = find_field(tool.dict(), "type");
            type != nullptr && !(type->is_text() && type->view() == "function"))
            throw FieldError(field + ".type",
                             type->is_text()
                                 ? fmt::format("\"{}\" is not served; only \"function\" is", printable(type->view()))
                                 : std::string("must be a text"));
        const TemplateValue* function = find_field(tool.dict(), "function");
        if (function == nullptr || !function->is(Kind::Dict))
            throw FieldError(field + ".function", "must be an object");
        const TemplateValue* name = find_field(function->dict(), "name");
        if (name == nullptr || !name->is_text() || !is_tool_name(name->view()))
            throw FieldError(field + ".function.name",
                             "must have 1 to 128 letters, digits, or characters of \"_-.:/\"");
        if (!names.insert(name->view()).second)
            throw FieldError(field + ".function.name", fmt::format("\"{}\" is the name of another tool", name->view()));
        if (const TemplateValue* strict = find_field(function->dict(), "strict");
            strict != nullptr && jinja::is_true(*strict))
            throw FieldError(field + ".function.strict", "arguments cannot be forced into a schema; leave it out");
        const TemplateValue* parameters = find_field(function->dict(), "parameters");
        if (parameters != nullptr && !parameters->is(Kind::Dict))
            throw FieldError(field + ".function.parameters", "must be a JSON schema, an object");
        result.offered.push_back({.name = std::string(name->view()),
                                  .parameters = parameters != nullptr ? *parameters : TemplateValue::none()});
        values.push_back(said_value(tool));
    }
    result.values = TemplateValue::list(std::move(values));
    return result;
}

}  // namespace slipstream
