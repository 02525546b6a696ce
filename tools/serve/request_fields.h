// Fields of requests: read one by one with ranges. Values are those of the template language,
// so that messages and tools reach a chat template as they were sent, in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/token_id.h"
#include "tools/base/range.h"

namespace slipstream::tools {

/// Parses the body of a request. Throws ApiError unless it is a JSON object within the limits of
/// runtime/text/request/request_json.h.
[[nodiscard]] TemplateValue parse_request_body(std::string_view text);

/// Typed look-up of the fields of an object. A field that is null counts as absent. Throws ApiError, which names the
/// field, if a value has another type or is out of its range.
class RequestFields {
public:
    /// `object` must outlive this. `prefix` is put before names in messages: "stream_options.".
    explicit RequestFields(const TemplateValue& object, std::string prefix = {});

    [[nodiscard]] const TemplateValue* find(std::string_view name) const;
    [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
    [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
    [[nodiscard]] std::string required_text(std::string_view name) const;
    [[nodiscard]] std::optional<bool> boolean(std::string_view name) const;
    /// Returns the field's integer, which must be in `range`; 3.0 is read as 3. No value if the field is absent.
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, Range<std::int64_t> range) const;
    [[nodiscard]] std::optional<double> real(std::string_view name, Range<double> range) const;
    /// Returns the field's list, which the object owns; null if the field is absent.
    [[nodiscard]] const std::vector<TemplateValue>* list(std::string_view name) const;
    /// Returns the field, an object, which the outer object owns; null if the field is absent.
    [[nodiscard]] const TemplateValue* object(std::string_view name) const;

    [[nodiscard]] std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
    [[noreturn]] void refuse(std::string_view name, std::string_view what) const;

private:
    const jinja::Dict* dict_;
    std::string prefix_;
};

/// Returns the values as token ids. Throws ApiError, which names the field `name`, unless all are integers from 0 to
/// vocab - 1.
[[nodiscard]] std::vector<TokenId> token_ids(std::span<const TemplateValue> values, std::int64_t vocab,
                                             std::string_view name);

}  // namespace slipstream::tools
