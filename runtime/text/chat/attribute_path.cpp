#include "runtime/text/chat/attribute_path.h"

#include <algorithm>

#include "runtime/text/chat/attributes.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kMaxParts = 100;

// Pieces between separators; at least one.
std::vector<std::string_view> pieces(std::string_view text, char separator) {
    std::vector<std::string_view> result;
    while (true) {
        if (result.size() == kMaxParts) fail("an attribute of more than {} parts", kMaxParts);
        const std::size_t end = text.find(separator);
        result.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return result;
        text.remove_prefix(end + 1);
    }
}

Value part_of(std::string_view piece) {
    const bool digits =
        !piece.empty() && std::all_of(piece.begin(), piece.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) return Value(piece);
    return Value(*parse_int(piece, 10));
}

}  // namespace

AttributePath::AttributePath(const Value& attribute) {
    if (attribute.is_none() || attribute.is_missing()) return;
    if (!attribute.is_text()) {
        parts_.push_back(attribute);
        return;
    }
    for (const std::string_view piece : pieces(attribute.view(), '.')) parts_.push_back(part_of(piece));
}

Value AttributePath::of(Runtime& runtime, Value item, const Value& otherwise) const {
    for (const Value& part : parts_) {
        runtime.spend(1);
        item = get_item(runtime, item, part);
        if (item.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) item = otherwise;
    }
    return item;
}

std::vector<AttributePath> attribute_paths(const Value& attributes) {
    if (!attributes.is_text()) return {AttributePath(attributes)};
    std::vector<AttributePath> paths;
    for (const std::string_view piece : pieces(attributes.view(), ',')) paths.emplace_back(Value(piece));
    return paths;
}

Value comparable(Runtime& runtime, const Value& value, LetterCase letter_case) {
    if (letter_case == LetterCase::Kept || !value.is_text()) return value;
    runtime.spend_for(value);
    return runtime.text(to_lower(value.view()));
}

}  // namespace slipstream::jinja
