// Typed look-up of JSON fields with errors that name file and field. For .cpp files that read JSON anyway: it includes
// the whole JSON header. A field that is null counts as absent, as it does for transformers.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

class JsonFields {
public:
    /// `object` must outlive this.
    JsonFields(const nlohmann::json& object, std::string name) : object_(object), name_(std::move(name)) {}

    [[nodiscard]] const std::string& name() const { return name_; }

    [[noreturn]] void fail(std::string_view key, std::string_view what) const {
        throw FormatError(fmt::format("{}: field {} {}", name_, key, what));
    }

    /// Whether the key stands there, be it with null.
    [[nodiscard]] bool has(const char* key) const { return object_.contains(key); }
    [[nodiscard]] const nlohmann::json* find(const char* key) const {
        const auto found = object_.find(key);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }
    [[nodiscard]] std::optional<std::int64_t> integer(const char* key) const {
        const auto* value = find(key);
        if (value == nullptr) return std::nullopt;
        return to_integer(*value, key);
    }
    [[nodiscard]] std::optional<double> number(const char* key) const {
        const auto* value = find(key);
        if (value == nullptr) return std::nullopt;
        if (!value->is_number()) fail(key, "is no number");
        return value->get<double>();
    }
    [[nodiscard]] std::optional<bool> boolean(const char* key) const {
        const auto* value = find(key);
        if (value == nullptr) return std::nullopt;
        if (!value->is_boolean()) fail(key, "is neither true nor false");
        return value->get<bool>();
    }
    [[nodiscard]] std::optional<std::string> string(const char* key) const {
        const auto* value = find(key);
        if (value == nullptr) return std::nullopt;
        if (!value->is_string()) fail(key, "is no text");
        return value->get<std::string>();
    }
    /// The inner object, or nullptr.
    [[nodiscard]] const nlohmann::json* object(const char* key) const {
        const auto* value = find(key);
        if (value != nullptr && !value->is_object()) fail(key, "is no object");
        return value;
    }
    [[nodiscard]] std::optional<std::vector<double>> numbers(const char* key) const {
        const auto* value = find(key);
        if (value == nullptr) return std::nullopt;
        if (!value->is_array()) fail(key, "is no list");
        std::vector<double> result;
        for (const auto& element : *value) {
            if (!element.is_number()) fail(key, "holds something that is no number");
            result.push_back(element.get<double>());
        }
        return result;
    }
    [[nodiscard]] std::int64_t required(const char* key) const {
        if (const auto value = integer(key)) return *value;
        fail(key, "is missing");
    }
    [[nodiscard]] std::int64_t to_integer(const nlohmann::json& value, const char* key) const {
        const bool beyond = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
        if (!value.is_number_integer() || beyond) fail(key, "is no integer");
        return value.get<std::int64_t>();
    }

private:
    const nlohmann::json& object_;
    std::string name_;
};

}  // namespace slipstream
