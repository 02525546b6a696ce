// JSON from files: bounded depth, no duplicate keys, and typed look-up of fields, with errors that name the file and
// the field. A field that is null counts as absent, as in transformers. This header includes the whole JSON header, so
// only .cpp files that read JSON should include it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

/// Typed look-up in a JSON object. The functions integer(), number(), boolean(), string(), object() and numbers()
/// return nullopt or null if the field is absent or null, and throw FormatError if it is of another type.
class JsonFields {
public:
    /// `object` must outlive this. `name` names it in messages.
    JsonFields(const nlohmann::json& object, std::string name) : object_(object), name_(std::move(name)) {}

    [[nodiscard]] const std::string& name() const { return name_; }

    /// Throws a FormatError that says what is wrong (`what`) with the field `key`.
    [[noreturn]] void fail(std::string_view key, std::string_view what) const {
        throw FormatError(fmt::format("{}: field {} {}", name_, key, what));
    }

    /// Returns whether the key exists, even if its value is null.
    [[nodiscard]] bool has(const char* key) const { return object_.contains(key); }
    /// Returns the value of the field, or null if it is absent or null. Owned by the JSON object.
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
        return get<double>(key, &nlohmann::json::is_number, "is not a number");
    }
    [[nodiscard]] std::optional<bool> boolean(const char* key) const {
        return get<bool>(key, &nlohmann::json::is_boolean, "is neither true nor false");
    }
    [[nodiscard]] std::optional<std::string> string(const char* key) const {
        return get<std::string>(key, &nlohmann::json::is_string, "is not a text");
    }
    /// Returns the object in the field, or null if the field is absent. Owned by the outer object.
    [[nodiscard]] const nlohmann::json* object(const char* key) const {
        const auto* value = find(key);
        if (value != nullptr && !value->is_object()) fail(key, "is not an object");
        return value;
    }
    [[nodiscard]] std::optional<std::vector<double>> numbers(const char* key) const {
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
    /// Returns the integer in the field. Throws FormatError if the field is absent or not an integer of 64 bits.
    [[nodiscard]] std::int64_t required(const char* key) const {
        if (const auto value = integer(key)) return *value;
        fail(key, "is missing");
    }
    /// Returns `value` as an integer. Throws FormatError, which names the field `key`, if it is not an integer of 64
    /// bits.
    [[nodiscard]] std::int64_t to_integer(const nlohmann::json& value, const char* key) const {
        const bool beyond = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
        if (!value.is_number_integer() || beyond) fail(key, "is not an integer");
        return value.get<std::int64_t>();
    }

private:
    template <typename T>
    [[nodiscard]] std::optional<T> get(const char* key, bool (nlohmann::json::*is)() const,
                                       std::string_view what) const {
        const auto* value = find(key);
        if (value == nullptr) return std::nullopt;
        if (!(value->*is)()) fail(key, what);
        return value->get<T>();
    }
    const nlohmann::json& object_;
    std::string name_;
};

// Parsing of JSON from files that may be broken or hostile.

/// A handler for nlohmann::json::sax_parse() that builds a JSON value and throws FormatError for duplicate keys, for
/// nesting deeper than 32, and for text that is not JSON. A class that handles some parts differently derives from it
/// and hides its functions.
class JsonBuilder {
public:
    /// `text` is the text that will be parsed; `name` is the name of the file, for messages.
    JsonBuilder(std::string_view text, std::string_view name) : n_bytes_(text.size()), name_(name) {}

    bool null() { return add(nullptr); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(std::int64_t value) { return add(value); }
    bool number_unsigned(std::uint64_t value) { return add(value); }
    bool number_float(double value, const std::string& /*text*/) { return add(value); }
    bool string(std::string& value) { return add(std::move(value)); }
    bool binary(nlohmann::json::binary_t& /*value*/) { return false; }  // JSON text has no binary values
    bool start_object(std::size_t /*size*/) { return open(nlohmann::json::object()); }
    bool start_array(std::size_t /*size*/) { return open(nlohmann::json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& key) {
        if (open_.back().value->contains(key))
            throw FormatError(fmt::format("{}: JSON key \"{}\" occurs twice in one object", name_, printable(key)));
        open_.back().key = std::move(key);
        return true;
    }
    bool parse_error(std::size_t at, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) {
        throw FormatError(fmt::format("{}: not JSON at byte {} of {}", name_, at, n_bytes_));
    }

    [[nodiscard]] nlohmann::json take() { return std::move(root_); }
    [[nodiscard]] std::string_view name() const { return name_; }

protected:
    /// depth() returns the number of containers that are open. key_at() returns the current key of the open container
    /// at index `depth`, counted from the outermost (0); the index must be below depth(), and the result is valid until
    /// the next event.
    [[nodiscard]] std::size_t depth() const { return open_.size(); }
    [[nodiscard]] std::string_view key_at(std::size_t depth) const { return open_[depth].key; }

private:
    // Limits how deeply objects and lists may be nested, in levels, so that recursion over the value of a hostile file
    // stays shallow.
    static constexpr std::size_t kMaxDepth = 32;
    struct Open {
        nlohmann::json* value;
        std::string key;  // key of the next value, if this is an object
    };

    nlohmann::json& place(nlohmann::json value) {
        if (open_.empty()) return root_ = std::move(value);
        nlohmann::json& around = *open_.back().value;
        if (around.is_array()) return around.emplace_back(std::move(value));
        return around[open_.back().key] = std::move(value);
    }
    bool add(nlohmann::json value) {
        place(std::move(value));
        return true;
    }
    bool open(nlohmann::json empty) {
        if (open_.size() == kMaxDepth)
            throw FormatError(fmt::format("{}: JSON nested deeper than {}", name_, kMaxDepth));
        nlohmann::json& value = place(std::move(empty));
        open_.push_back({&value, {}});
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    std::size_t n_bytes_;
    std::string name_;
    nlohmann::json root_;
    std::vector<Open> open_;
};

/// Parses `text` and returns the object that it describes. Throws FormatError if it is not JSON, not an object at the
/// top level, nested deeper than 32, or has a duplicate key; `name` is the name of the file, for the message.
[[nodiscard]] inline nlohmann::json parse_json_object(std::string_view text, std::string_view name) {
    JsonBuilder builder(text, name);
    nlohmann::json::sax_parse(text, &builder);
    nlohmann::json result = builder.take();
    if (!result.is_object()) throw FormatError(fmt::format("{}: holds JSON, but no object", name));
    return result;
}

}  // namespace slipstream
