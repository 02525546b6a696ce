// JSON to be written: objects built key by key, in order. Keeps the JSON library out of the commands' sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

enum class JsonLayout : std::uint8_t { OneLine, Indented };

class JsonObject {
public:
    JsonObject();
    JsonObject(JsonObject&& other) noexcept;
    JsonObject& operator=(JsonObject&& other) noexcept;
    ~JsonObject();

    // Each adds one key and returns the object itself. Text that is not UTF-8 gets U+FFFD where it breaks.
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

    /// The whole as text, with a newline at the end.
    [[nodiscard]] std::string to_text(JsonLayout layout) const;

private:
    struct Tree;
    std::unique_ptr<Tree> tree_;
};

}  // namespace slipstream::tools
