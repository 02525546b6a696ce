// Decodes GGUF metadata values. The parser has checked all lengths, so no read can pass the end.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/formats/gguf_file.h"
#include "runtime/formats/gguf_scalar.h"
#include "runtime/text/printable.h"

namespace slipstream {

std::size_t scalar_bytes(GgufValueType type) {
    switch (type) {
        case GgufValueType::U8:
        case GgufValueType::I8:
        case GgufValueType::Bool:
            return 1;
        case GgufValueType::U16:
        case GgufValueType::I16:
            return 2;
        case GgufValueType::U32:
        case GgufValueType::I32:
        case GgufValueType::F32:
            return 4;
        case GgufValueType::U64:
        case GgufValueType::I64:
        case GgufValueType::F64:
            return 8;
        case GgufValueType::String:
        case GgufValueType::Array:
            break;
    }
    CHECK(false, "type {} is not a scalar", static_cast<std::uint32_t>(type));
    return 0;
}

namespace {

constexpr std::uint64_t kShownElements = 6;

std::optional<std::int64_t> to_integer(GgufValueType type, std::span<const std::byte> raw) {
    switch (type) {
        case GgufValueType::U8:
            return load_scalar<std::uint8_t>(raw);
        case GgufValueType::I8:
            return load_scalar<std::int8_t>(raw);
        case GgufValueType::U16:
            return load_scalar<std::uint16_t>(raw);
        case GgufValueType::I16:
            return load_scalar<std::int16_t>(raw);
        case GgufValueType::U32:
            return load_scalar<std::uint32_t>(raw);
        case GgufValueType::I32:
            return load_scalar<std::int32_t>(raw);
        case GgufValueType::I64:
            return load_scalar<std::int64_t>(raw);
        case GgufValueType::U64: {
            const auto value = load_scalar<std::uint64_t>(raw);
            if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
            return static_cast<std::int64_t>(value);
        }
        default:
            return std::nullopt;
    }
}

std::optional<double> to_number(GgufValueType type, std::span<const std::byte> raw) {
    switch (type) {
        case GgufValueType::F32:
            return load_scalar<float>(raw);
        case GgufValueType::F64:
            return load_scalar<double>(raw);
        case GgufValueType::U64:
            return static_cast<double>(load_scalar<std::uint64_t>(raw));
        default:
            break;
    }
    const auto integer = to_integer(type, raw);
    if (!integer) return std::nullopt;
    return static_cast<double>(*integer);
}

// Returns the string at the start of `rest`, and removes it from `rest`.
std::string_view take_string(std::span<const std::byte>& rest) {
    const auto length = static_cast<std::size_t>(load_scalar<std::uint64_t>(rest));
    const auto text = rest.subspan(8, length);
    rest = rest.subspan(8 + length);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
}

std::string scalar_text(GgufValueType type, std::span<const std::byte> raw) {
    if (type == GgufValueType::Bool) return load_scalar<std::uint8_t>(raw) != 0 ? "true" : "false";
    if (type == GgufValueType::U64) return fmt::format("{}", load_scalar<std::uint64_t>(raw));
    if (type == GgufValueType::F32) return fmt::format("{}", load_scalar<float>(raw));
    if (type == GgufValueType::F64) return fmt::format("{}", load_scalar<double>(raw));
    return fmt::format("{}", to_integer(type, raw).value_or(0));
}

bool is_scalar(GgufValueType type) {
    return type != GgufValueType::String && type != GgufValueType::Array;
}

}  // namespace

std::optional<std::int64_t> GgufValue::integer() const {
    return to_integer(type, raw);
}

std::optional<double> GgufValue::number() const {
    return is_scalar(type) ? to_number(type, raw) : std::nullopt;
}

std::optional<bool> GgufValue::boolean() const {
    if (type != GgufValueType::Bool) return std::nullopt;
    return load_scalar<std::uint8_t>(raw) != 0;
}

std::optional<std::string_view> GgufValue::string() const {
    if (type != GgufValueType::String) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
}

std::optional<std::vector<std::int64_t>> GgufValue::integers() const {
    if (type != GgufValueType::Array || !is_scalar(element_type)) return std::nullopt;
    const GgufValueType read_as = element_type == GgufValueType::Bool ? GgufValueType::U8 : element_type;
    const std::size_t step = scalar_bytes(read_as);
    std::vector<std::int64_t> result(count);
    for (std::size_t i = 0; i < result.size(); ++i) {
        const auto value = to_integer(read_as, raw.subspan(i * step));
        if (!value) return std::nullopt;
        result[i] = *value;
    }
    return result;
}

std::optional<std::vector<double>> GgufValue::numbers() const {
    if (type != GgufValueType::Array || !is_scalar(element_type)) return std::nullopt;
    const std::size_t step = scalar_bytes(element_type);
    std::vector<double> result(count);
    for (std::size_t i = 0; i < result.size(); ++i) {
        const auto value = to_number(element_type, raw.subspan(i * step));
        if (!value) return std::nullopt;
        result[i] = *value;
    }
    return result;
}

std::optional<std::vector<std::string>> GgufValue::strings() const {
    if (type != GgufValueType::Array || element_type != GgufValueType::String) return std::nullopt;
    std::vector<std::string> result;
    result.reserve(count);
    auto rest = raw;
    for (std::uint64_t i = 0; i < count; ++i) result.emplace_back(take_string(rest));
    return result;
}

std::string GgufValue::to_text() const {
    if (type == GgufValueType::String)
        return fmt::format("\"{}\"", printable({reinterpret_cast<const char*>(raw.data()), raw.size()}));
    if (type != GgufValueType::Array) return scalar_text(type, raw);
    if (element_type == GgufValueType::Array) return fmt::format("[{} arrays]", count);
    std::string text = "[";
    auto rest = raw;
    for (std::uint64_t i = 0; i < std::min(count, kShownElements); ++i) {
        if (i > 0) text += ", ";
        if (element_type == GgufValueType::String) {
            text += fmt::format("\"{}\"", printable(take_string(rest)));
        } else {
            text += scalar_text(element_type, rest);
            rest = rest.subspan(scalar_bytes(element_type));
        }
    }
    return text + (count > kShownElements ? fmt::format(", ... {} in all]", count) : "]");
}

}  // namespace slipstream
