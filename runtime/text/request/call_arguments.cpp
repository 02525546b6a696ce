#include "runtime/text/request/call_arguments.h"

#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream {

using jinja::Dict;
using jinja::Kind;

namespace {

// Returns `value` as the JSON that templates write.
std::string json_text(const TemplateValue& value) {
    static const ChatTemplate kForm = ChatTemplate::parse("{{ tools | tojson }}", "the arguments");
    return kForm.render({.messages = TemplateValue::list({}), .tools = value}).bytes;
}

}  // namespace

TemplateValue CallArguments::for_template(const TemplateValue* given) {
    TemplateValue value = given == nullptr ? TemplateValue::none() : parsed(*given);
    if (value.is_none()) value = TemplateValue::dict(Dict());
    if (value.is(Kind::Dict)) return forms().object ? said_value(value) : TemplateValue::said(json_text(value));
    TemplateValue text = TemplateValue::said(given->is_text() ? std::string(given->view()) : json_text(*given));
    if (forms().text) return text;
    Dict object;
    object.set("arguments", std::move(text));
    return TemplateValue::dict(std::move(object));
}

// Returns the value that the JSON text `arguments` describes, or `arguments` if it is none. Clients write an empty text
// for no arguments.
TemplateValue CallArguments::parsed(const TemplateValue& arguments) {
    if (!arguments.is_text()) return arguments;
    if (arguments.view().find_first_not_of(" \t\r\n") == std::string_view::npos) return TemplateValue::none();
    try {
        const std::size_t n_values = check_json_amount(arguments.view(), "arguments", n_values_left_);
        n_values_left_ -= n_values;
        return parse_template_json(arguments.view(), "arguments");
    } catch (const RequestError&) {   // too many values, or too deep
    } catch (const TemplateError&) {  // not JSON
    }
    return arguments;
}

// Returns the forms of arguments that the template takes: objects, texts, or both. A template that fails on both forms
// fails for another reason, so both are returned then and arguments keep their form.
const CallArguments::Forms& CallArguments::forms() {
    if (!forms_) {
        const bool object = writes(TemplateValue::dict({{"x", TemplateValue("y")}}));
        const bool text = writes(TemplateValue("x"));
        forms_ = {.object = object || !text, .text = text || !object};
    }
    return *forms_;
}

// Returns whether the template writes a short conversation with a call that has these arguments.
bool CallArguments::writes(TemplateValue arguments) const {
    const TemplateValue id("abcdefgh1");  // Mistral's templates accept nine letters or digits
    const TemplateValue call = TemplateValue::dict(
        {{"id", id},
         {"type", TemplateValue("function")},
         {"function", TemplateValue::dict({{"name", TemplateValue("f")}, {"arguments", std::move(arguments)}})}});
    const auto message = [](std::string_view role, Dict more) {
        more.set("role", TemplateValue(role));
        more.set("content", TemplateValue("a"));
        return TemplateValue::dict(std::move(more));
    };
    Dict calls, result;
    calls.set("tool_calls", TemplateValue::list({call}));
    result.set("tool_call_id", id);
    try {
        static_cast<void>(form_->render(TemplateValue::list(
            {message("user", {}), message("assistant", std::move(calls)), message("tool", std::move(result))})));
        return true;
    } catch (const TemplateError&) {
        return false;
    }
}

}  // namespace slipstream
