#include "runtime/text/json_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace slipstream {

void JsonFields::fail(std::string_view key, std::string_view what) const {
    throw FormatError(fmt::format("{}: field {} {}", name_, key, what));
}

std::vector<std::string> JsonFields::keys() const {
    std::vector<std::string> keys;
    if (object_ == nullptr) return keys;
    for (auto field = object_->begin(); field != object_->end(); ++field) keys.push_back(field.key());
    return keys;
}

bool JsonFields::has(const char* key) const {
    return object_ != nullptr && object_->contains(key);
}

const nlohmann::json* JsonFields::find(const char* key) const {
    if (object_ == nullptr) return nullptr;
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonFields::integer(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    return to_integer(*value, key);
}

std::optional<double> JsonFields::number(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) fail(key, "is not a number");
    return value->get<double>();
}

std::optional<bool> JsonFields::boolean(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) fail(key, "is neither true nor false");
    return value->get<bool>();
}

std::optional<std::string> JsonFields::string(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) fail(key, "is not a text");
    return value->get<std::string>();
}

const nlohmann::json* JsonFields::object(const char* key) const {
    const auto* value = find(key);
    if (value != nullptr && !value->is_object()) fail(key, "is not an object");
    return value;
}

std::optional<std::vector<double>> JsonFields::numbers(const char* key) const {
    const auto* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) fail(key, "is not a list");
    std::vector<double> result;
    for (const auto& element : *value) {
        if (!element.is_number()) fail(key, "holds something that is not a number");
        result.push_back(element.get<double>());
    }
    return result;
}

std::int64_t JsonFields::required(const char* key) const {
    if (const auto value = integer(key)) return *value;
    fail(key, "is missing");
}

std::int64_t JsonFields::to_integer(const nlohmann::json& value, const char* key) const {
    const bool beyond = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
    if (!value.is_number_integer() || beyond) fail(key, "is not an integer");
    return value.get<std::int64_t>();
}

}  // namespace slipstream
