// Typed look-up of fields in a JSON object from a file, with errors that name the file and the field. A field that is
// null counts as absent, as in transformers. This header does not include the whole JSON header: a .cpp file that looks
// into the values includes <nlohmann/json.hpp> itself.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream {

/// Typed look-up in a JSON object. The functions integer(), number(), boolean(), string(), object() and numbers()
/// return nullopt or null if the field is absent or null, and throw FormatError if it is of another type.
class JsonFields {
public:
    /// `object` must outlive this. `name` names it in messages.
    JsonFields(const nlohmann::json& object, std::string name) : JsonFields(&object, std::move(name)) {}
    /// `object` may be null: an object without fields.
    JsonFields(const nlohmann::json* object, std::string name) : object_(object), name_(std::move(name)) {}

    [[nodiscard]] const std::string& name() const { return name_; }

    /// Throws a FormatError that says what is wrong (`what`) with the field `key`.
    [[noreturn]] void fail(std::string_view key, std::string_view what) const;

    /// Returns the keys of all fields, also of those that are null.
    [[nodiscard]] std::vector<std::string> keys() const;
    /// Returns whether the key exists, even if its value is null.
    [[nodiscard]] bool has(const char* key) const;
    /// Returns the value of the field, or null if it is absent or null. Owned by the JSON object.
    [[nodiscard]] const nlohmann::json* find(const char* key) const;
    [[nodiscard]] std::optional<std::int64_t> integer(const char* key) const;
    [[nodiscard]] std::optional<double> number(const char* key) const;
    [[nodiscard]] std::optional<bool> boolean(const char* key) const;
    [[nodiscard]] std::optional<std::string> string(const char* key) const;
    /// Returns the object in the field, or null if the field is absent. Owned by the outer object.
    [[nodiscard]] const nlohmann::json* object(const char* key) const;
    [[nodiscard]] std::optional<std::vector<double>> numbers(const char* key) const;
    /// Returns the integer in the field. Throws FormatError if the field is absent or not an integer of 64 bits.
    [[nodiscard]] std::int64_t required(const char* key) const;
    /// Returns `value` as an integer. Throws FormatError, which names the field `key`, if it is not an integer of 64
    /// bits.
    [[nodiscard]] std::int64_t to_integer(const nlohmann::json& value, const char* key) const;

private:
    const nlohmann::json* object_;
    std::string name_;
};

}  // namespace slipstream
