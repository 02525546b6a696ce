#include "tools/base/json_object.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/text/utf8.h"

namespace slipstream::tools {

struct JsonObject::Tree {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();

    template <typename Value>
    void set(std::string_view key, Value&& value) {
        json[std::string(key)] = std::forward<Value>(value);
    }
};

JsonObject::JsonObject() : tree_(std::make_unique<Tree>()) {}
JsonObject::JsonObject(JsonObject&& other) noexcept = default;
JsonObject& JsonObject::operator=(JsonObject&& other) noexcept = default;
JsonObject::~JsonObject() = default;

JsonObject& JsonObject::text(std::string_view key, std::string_view value) {
    tree_->set(key, std::string(value));
    if (valid_utf8_prefix(value) == value.size()) return *this;
    std::string digits;
    for (const char byte : value) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    tree_->set(fmt::format("{}_hex", key), digits);
    return *this;
}

JsonObject& JsonObject::integer(std::string_view key, std::int64_t value) {
    tree_->set(key, value);
    return *this;
}

JsonObject& JsonObject::unsigned_integer(std::string_view key, std::uint64_t value) {
    tree_->set(key, value);
    return *this;
}

JsonObject& JsonObject::real(std::string_view key, double value) {
    tree_->set(key, value);
    return *this;
}

JsonObject& JsonObject::boolean(std::string_view key, bool value) {
    tree_->set(key, value);
    return *this;
}

JsonObject& JsonObject::null(std::string_view key) {
    tree_->set(key, nullptr);
    return *this;
}

JsonObject& JsonObject::object(std::string_view key, const JsonObject& value) {
    tree_->set(key, value.tree_->json);
    return *this;
}

JsonObject& JsonObject::objects(std::string_view key, const std::vector<JsonObject>& values) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const JsonObject& value : values) list.push_back(value.tree_->json);
    tree_->set(key, std::move(list));
    return *this;
}

JsonObject& JsonObject::texts(std::string_view key, const std::vector<std::string>& values) {
    tree_->set(key, values);
    return *this;
}

JsonObject& JsonObject::reals(std::string_view key, const std::vector<double>& values) {
    tree_->set(key, values);
    return *this;
}

JsonObject& JsonObject::integers(std::string_view key, const std::vector<std::int64_t>& values) {
    tree_->set(key, values);
    return *this;
}

std::string JsonObject::to_text(JsonLayout layout) const {
    return tree_->json.dump(layout == JsonLayout::Indented ? 2 : -1, ' ', false,
                            nlohmann::ordered_json::error_handler_t::replace) +
           "\n";
}

}  // namespace slipstream::tools
