#include "tools/serve/request_json.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/text/chat/template_error.h"
#include "tools/serve/api_error.h"

namespace slipstream::tools {

namespace {

using jinja::Kind;

// Counts what a text holds without building it.
class JsonCounter {
public:
    bool null() { return add(); }
    bool boolean(bool /*value*/) { return add(); }
    bool number_integer(std::int64_t /*value*/) { return add(); }
    bool number_unsigned(std::uint64_t /*value*/) { return add(); }
    bool number_float(double /*value*/, const std::string& /*text*/) { return add(); }
    bool string(std::string& /*value*/) { return add(); }
    bool binary(nlohmann::json::binary_t& /*value*/) { return false; }
    bool start_object(std::size_t /*size*/) { return open(); }
    bool start_array(std::size_t /*size*/) { return open(); }
    bool key(std::string& /*name*/) { return true; }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool parse_error(std::size_t at, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) {
        throw ApiError::invalid("", fmt::format("the body is not JSON at byte {}", at));
    }

private:
    bool add() {
        if (++n_values_ > kMostJsonValues)
            throw ApiError::invalid("", fmt::format("the body has more than {} values", kMostJsonValues));
        return true;
    }
    bool open() {
        if (++depth_ > kMostJsonDepth)
            throw ApiError::invalid("", fmt::format("the body is nested deeper than {} levels", kMostJsonDepth));
        return add();
    }
    bool close() {
        --depth_;
        return true;
    }

    std::size_t n_values_ = 0;
    std::size_t depth_ = 0;
};

}  // namespace

TemplateValue parse_request_json(std::string_view text) {
    JsonCounter counter;
    nlohmann::json::sax_parse(text, &counter);
    try {
        TemplateValue value = parse_template_json(text, "the body");
        if (value.is(Kind::Dict)) return value;
    } catch (const TemplateError& error) {
        throw ApiError::invalid("", error.what());
    }
    throw ApiError::invalid("", "the body is not a JSON object");
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
