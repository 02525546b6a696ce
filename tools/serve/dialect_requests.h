// The parsers of the dialects: each reads the fields that it does not share with the others, and converts a
// conversation into the form of chat completions, which all later code uses. parse_text_request() calls them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/request_fields.h"
#include "tools/serve/text_request.h"

namespace slipstream::tools {

struct DialectParser {
    std::span<const std::string_view> fields;  // names of the fields that `parse` reads
    void (*parse)(const RequestFields& fields, const RequestContext& context, TextRequest& request);
};

[[nodiscard]] const DialectParser& completion_parser();
[[nodiscard]] const DialectParser& llama_parser();
[[nodiscard]] const DialectParser& messages_parser();
[[nodiscard]] const DialectParser& responses_parser();

// For the parsers:

constexpr Range<std::int64_t> kTokenCount{
    -1, std::numeric_limits<std::int64_t>::max()};  // range of a number of tokens; -1: no limit
constexpr int kMostLogprobs = 20;

/// Throws ApiError if the field is there and is not the number `only`.
void demand(const RequestFields& fields, std::string_view name, std::int64_t only);
/// Returns the stop texts in the field `name`, which has a text or a list of texts; none if it is absent. Throws
/// ApiError for more than 16 texts, and for a text that is empty or longer than 256 bytes.
[[nodiscard]] std::vector<std::string> parse_stops(const RequestFields& fields, std::string_view name);
/// Returns the fields of the object `value`, which must outlive them. In messages their names begin with `name` and a
/// dot. Throws ApiError if the value is not an object.
[[nodiscard]] RequestFields fields_of(const TemplateValue& value, const std::string& name);
/// Throws ApiError for an object whose type `type` cannot be served; `served` names the types that can be, in the
/// message.
[[noreturn]] void refuse_type(const RequestFields& fields, std::string_view type, std::string_view served);
/// Returns a text as a part of a message's content in chat completions: {"type": "text", "text": `text`}.
[[nodiscard]] TemplateValue text_part(const std::string& text);
/// Returns a tool, or a call of one, as in chat completions: {"type": "function", "function": `function`}.
[[nodiscard]] jinja::Dict function_object(jinja::Dict function);
/// Returns the tool_choice of chat completions that demands the tool `name`.
[[nodiscard]] TemplateValue choice_of_tool(const std::string& name);

}  // namespace slipstream::tools
