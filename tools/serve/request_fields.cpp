#include "tools/serve/request_fields.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/request/request_json.h"
#include "tools/serve/api_error.h"

namespace slipstream::tools {

namespace {

using jinja::Kind;

}  // namespace

TemplateValue parse_request_body(std::string_view text) {
    TemplateValue value;
    try {
        value = parse_request_json(text, "the body");
    } catch (const RequestError& error) {
        throw ApiError::invalid("", error.what());
    }
    if (!value.is(Kind::Dict)) throw ApiError::invalid("", "the body is not a JSON object");
    return value;
}

RequestFields::RequestFields(const TemplateValue& object, std::string prefix)
    : dict_(&object.dict()), prefix_(std::move(prefix)) {}

const TemplateValue* RequestFields::find(std::string_view name) const {
    const TemplateValue* value = dict_->find(name);
    return value == nullptr || value->is_none() ? nullptr : value;
}

void RequestFields::refuse(std::string_view name, std::string_view what) const {
    throw ApiError::invalid(full_name(name), fmt::format("{}: {}", full_name(name), what));
}

std::optional<std::string> RequestFields::text(std::string_view name) const {
    const TemplateValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_text()) refuse(name, "a text is expected");
    return std::string(value->view());
}

std::string RequestFields::required_text(std::string_view name) const {
    auto value = text(name);
    if (!value) refuse(name, "a text is expected");
    return std::move(*value);
}

std::optional<bool> RequestFields::boolean(std::string_view name) const {
    const TemplateValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is(Kind::Bool)) refuse(name, "true or false is expected");
    return value->truth();
}

std::optional<std::int64_t> RequestFields::integer(std::string_view name, Range<std::int64_t> range) const {
    const TemplateValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    constexpr double kExact = 9007199254740992.0;  // 2^53: a larger real may stand for several integers
    std::optional<std::int64_t> number;
    if (value->is(Kind::Int)) number = value->integer();
    if (value->is(Kind::Float) && std::abs(value->real()) <= kExact && std::floor(value->real()) == value->real())
        number = static_cast<std::int64_t>(value->real());
    if (!number || *number < range.lowest || *number > range.highest)
        refuse(name, fmt::format("an integer {} is expected", limits_text(range)));
    return number;
}

std::optional<double> RequestFields::real(std::string_view name, Range<double> range) const {
    const TemplateValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool is_number = value->is(Kind::Int) || value->is(Kind::Float);
    if (!is_number || !(value->real() >= range.lowest && value->real() <= range.highest))
        refuse(name, fmt::format("a number {} is expected", limits_text(range)));
    return value->real();
}

const std::vector<TemplateValue>* RequestFields::list(std::string_view name) const {
    const TemplateValue* value = find(name);
    if (value != nullptr && !value->is(Kind::List)) refuse(name, "a list is expected");
    return value == nullptr ? nullptr : &value->items();
}

const TemplateValue* RequestFields::object(std::string_view name) const {
    const TemplateValue* value = find(name);
    if (value != nullptr && !value->is(Kind::Dict)) refuse(name, "an object is expected");
    return value;
}

std::vector<TokenId> token_ids(std::span<const TemplateValue> values, std::int64_t vocab, std::string_view name) {
    std::vector<TokenId> ids;
    ids.reserve(values.size());
    for (const TemplateValue& value : values) {
        if (!value.is(Kind::Int) || value.integer() < 0 || value.integer() >= vocab)
            throw ApiError::invalid(std::string(name),
                                    fmt::format("{}: token ids from 0 to {} are expected", name, vocab - 1));
        ids.push_back(static_cast<TokenId>(value.integer()));
    }
    return ids;
}

}  // namespace slipstream::tools
