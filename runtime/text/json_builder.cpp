#include "runtime/text/json_builder.h"

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Limits how deeply objects and lists may be nested, in levels, so that recursion over the value of a hostile file
// stays shallow.
constexpr std::size_t kMaxDepth = 32;

}  // namespace

bool JsonBuilder::null() {
    return add(nullptr);
}

bool JsonBuilder::boolean(bool value) {
    return add(value);
}

bool JsonBuilder::number_integer(std::int64_t value) {
    return add(value);
}

bool JsonBuilder::number_unsigned(std::uint64_t value) {
    return add(value);
}

bool JsonBuilder::number_float(double value, const std::string& /*text*/) {
    return add(value);
}

bool JsonBuilder::string(std::string& value) {
    return add(std::move(value));
}

bool JsonBuilder::binary(nlohmann::json::binary_t& /*value*/) {
    return false;  // JSON text has no binary values
}

bool JsonBuilder::start_object(std::size_t /*size*/) {
    return open(nlohmann::json::object());
}

bool JsonBuilder::start_array(std::size_t /*size*/) {
    return open(nlohmann::json::array());
}

bool JsonBuilder::end_object() {
    return close();
}

bool JsonBuilder::end_array() {
    return close();
}

bool JsonBuilder::key(std::string& key) {
    if (open_.back().value->contains(key))
        throw FormatError(fmt::format("{}: JSON key \"{}\" occurs twice in one object", name_, printable(key)));
    open_.back().key = std::move(key);
    return true;
}

bool JsonBuilder::parse_error(std::size_t at, const std::string& /*token*/,
                              const nlohmann::json::exception& /*error*/) {
    throw FormatError(fmt::format("{}: not JSON at byte {} of {}", name_, at, n_bytes_));
}

nlohmann::json& JsonBuilder::place(nlohmann::json value) {
    if (open_.empty()) return root_ = std::move(value);
    nlohmann::json& around = *open_.back().value;
    if (around.is_array()) return around.emplace_back(std::move(value));
    return around[open_.back().key] = std::move(value);
}

bool JsonBuilder::add(nlohmann::json value) {
    place(std::move(value));
    return true;
}

bool JsonBuilder::open(nlohmann::json empty) {
    if (open_.size() == kMaxDepth) throw FormatError(fmt::format("{}: JSON nested deeper than {}", name_, kMaxDepth));
    nlohmann::json& value = place(std::move(empty));
    open_.push_back({&value, {}});
    return true;
}

bool JsonBuilder::close() {
    open_.pop_back();
    return true;
}

nlohmann::json parse_json_object(std::string_view text, std::string_view name) {
    JsonBuilder builder(text, name);
    parse_json_events(text, builder);
    nlohmann::json result = builder.take();
    if (!result.is_object()) throw FormatError(fmt::format("{}: holds JSON, but no object", name));
    return result;
}

}  // namespace slipstream
