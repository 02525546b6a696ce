// Builds JSON for output: objects whose keys keep the order in which they were added. The sources of the commands need
// not include the JSON library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

enum class JsonLayout : std::uint8_t { OneLine, Indented };

/// A JSON object that is built key by key. Move-only; a moved-from object must not be used.
class JsonObject {
public:
    JsonObject();
    JsonObject(JsonObject&& other) noexcept;
    JsonObject& operator=(JsonObject&& other) noexcept;
    ~JsonObject();

    // Each of these sets one key and returns this object. A key that was set before keeps its place and gets the new
    // value. Bytes that are not UTF-8 are written as U+FFFD. Objects and lists are copied.

    /// Sets `key` to a string. If `value` is not UTF-8, also sets "<key>_hex" to its bytes in hexadecimal. Returns this
    /// object.
    JsonObject& text(std::string_view key, std::string_view value);
    JsonObject& integer(std::string_view key, std::int64_t value);
    JsonObject& unsigned_integer(std::string_view key, std::uint64_t value);
    JsonObject& real(std::string_view key, double value);
    JsonObject& boolean(std::string_view key, bool value);
    JsonObject& null(std::string_view key);
    JsonObject& object(std::string_view key, const JsonObject& value);
    JsonObject& objects(std::string_view key, const std::vector<JsonObject>& values);
    JsonObject& texts(std::string_view key, const std::vector<std::string>& values);
    JsonObject& reals(std::string_view key, const std::vector<double>& values);
    JsonObject& integers(std::string_view key, const std::vector<std::int64_t>& values);

    /// Returns the object as JSON text with a newline at the end; JsonLayout::Indented indents by two blanks.
    [[nodiscard]] std::string to_text(JsonLayout layout) const;

private:
    struct Tree;
    std::unique_ptr<Tree> tree_;
};

}  // namespace slipstream::tools
