// Parsing of JSON from files that may be broken or hostile: bounded depth, no duplicate keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/json_parser.h"

namespace slipstream {

/// A handler for parse_json_events() that builds a JSON value and throws FormatError for duplicate keys, for nesting
/// deeper than 32, and for text that is not JSON. A class that handles some parts differently derives from it and
/// overrides its functions.
class JsonBuilder : public JsonHandler {
public:
    /// `text` is the text that will be parsed; `name` is the name of the file, for messages.
    JsonBuilder(std::string_view text, std::string_view name) : n_bytes_(text.size()), name_(name) {}

    bool null() override;
    bool boolean(bool value) override;
    bool number_integer(std::int64_t value) override;
    bool number_unsigned(std::uint64_t value) override;
    bool number_float(double value, const std::string& text) override;
    bool string(std::string& value) override;
    bool binary(nlohmann::json::binary_t& value) override;
    bool start_object(std::size_t size) override;
    bool start_array(std::size_t size) override;
    bool end_object() override;
    bool end_array() override;
    bool key(std::string& key) override;
    bool parse_error(std::size_t at, const std::string& token, const nlohmann::json::exception& error) override;

    [[nodiscard]] nlohmann::json take() { return std::move(root_); }
    [[nodiscard]] std::string_view name() const { return name_; }

protected:
    /// depth() returns the number of containers that are open. key_at() returns the current key of the open container
    /// at index `depth`, counted from the outermost (0); the index must be below depth(), and the result is valid until
    /// the next event.
    [[nodiscard]] std::size_t depth() const { return open_.size(); }
    [[nodiscard]] std::string_view key_at(std::size_t depth) const { return open_[depth].key; }

private:
    struct Open {
        nlohmann::json* value;
        std::string key;  // key of the next value, if this is an object
    };

    nlohmann::json& place(nlohmann::json value);
    bool add(nlohmann::json value);
    bool open(nlohmann::json empty);
    bool close();

    std::size_t n_bytes_;
    std::string name_;
    nlohmann::json root_;
    std::vector<Open> open_;
};

/// Parses `text` and returns the object that it describes. Throws FormatError if it is not JSON, not an object at the
/// top level, nested deeper than 32, or has a duplicate key; `name` is the name of the file, for the message.
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, std::string_view name);

}  // namespace slipstream
