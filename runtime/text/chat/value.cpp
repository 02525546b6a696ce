#include "runtime/text/chat/value.h"

#include <algorithm>
#include <array>

#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/object.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

// Below this a walk over the items beats an index.
constexpr std::size_t kUnindexedItems = 8;

struct UndefinedCell final : Cell {
    explicit UndefinedCell(UndefinedInfo why) : info(std::move(why)) {}
    UndefinedInfo info;
};

int deeper(int depth, const Value& child) {
    const int result = std::max(depth, child.depth() + 1);
    if (result > kMaxValueDepth) fail("values nested deeper than {}", kMaxValueDepth);
    return result;
}

// Equal keys hash alike: integral floats as their integers.
std::size_t hash_of(const Value& value) {
    switch (value.kind()) {
        case Kind::Bool:
        case Kind::Int:
            return std::hash<std::int64_t>()(value.integer());
        case Kind::Float:
            if (const auto whole = exact_integer(value.real())) return std::hash<std::int64_t>()(*whole);
            return std::hash<double>()(value.real());
        case Kind::Text:
        case Kind::LongInt:
            return std::hash<std::string_view>()(value.view());
        case Kind::Tuple: {
            std::size_t seed = value.items().size();
            for (const Value& item : value.items()) seed = seed * 0x9e3779b97f4a7c15ULL + hash_of(item);
            return seed;
        }
        default:
            return static_cast<std::size_t>(value.kind());
    }
}

}  // namespace

Value::Value(MarkedText text) : Value(Kind::Text, new Text(std::move(text))) {}

Value Value::none() {
    Value value;
    value.kind_ = Kind::None;
    return value;
}

Value Value::said(std::string text) {
    std::vector<TextSpan> spans;
    if (!text.empty()) spans.push_back({0, text.size()});
    return Value(MarkedText{std::move(text), std::move(spans)});
}

Value Value::long_integer(std::string digits) {
    return {Kind::LongInt, new Text({std::move(digits), {}})};
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
    return {kind, new Sequence(std::move(items))};
}

Value Value::dict(Dict dict) {
    return {Kind::Dict, new Dict(std::move(dict))};
}

Value Value::dict(std::initializer_list<std::pair<std::string_view, Value>> items) {
    Dict result;
    for (const auto& [key, value] : items) result.set(key, value);
    return dict(std::move(result));
}

Value Value::undefined(UndefinedInfo info) {
    return {Kind::Undefined, new UndefinedCell(std::move(info))};
}

const Text& Value::text() const {
    return static_cast<const Text&>(*cell_);
}
std::string_view Value::view() const {
    return text().bytes();
}
Sequence& Value::sequence() const {
    return static_cast<Sequence&>(*cell_);
}
const std::vector<Value>& Value::items() const {
    return sequence().items;
}
const Dict& Value::dict() const {
    return static_cast<const Dict&>(*cell_);
}
const UndefinedInfo& Value::undefined_info() const {
    return static_cast<const UndefinedCell&>(*cell_).info;
}
Object& Value::object() const {
    return static_cast<Object&>(*cell_);
}

int Value::depth() const {
    if (is_sequence()) return sequence().depth;
    if (kind_ == Kind::Dict) return dict().depth();
    return kind_ == Kind::Object ? object().depth() : 0;
}

std::int64_t Text::n_chars() const {
    std::int64_t n = n_chars_.load(std::memory_order_relaxed);
    if (n < 0) {
        n = count_chars(bytes());
        n_chars_.store(n, std::memory_order_relaxed);
    }
    return n;
}

Sequence::Sequence(std::vector<Value> elements) : items(std::move(elements)) {
    for (const Value& item : items) depth = deeper(depth, item);
}

std::ptrdiff_t Dict::place_of(const Value& key) const {
    if (items_.size() <= kUnindexedItems) {
        const auto found =
            std::find_if(items_.begin(), items_.end(), [&key](const Item& item) { return same_key(item.first, key); });
        return found == items_.end() ? -1 : found - items_.begin();
    }
    const auto [begin, end] = index_.equal_range(hash_of(key));
    const auto found =
        std::find_if(begin, end, [&](const auto& entry) { return same_key(items_[entry.second].first, key); });
    return found == end ? -1 : static_cast<std::ptrdiff_t>(found->second);
}

void Dict::set(Value key, Value value) {
    depth_ = deeper(deeper(depth_, key), value);
    if (const std::ptrdiff_t place = place_of(key); place >= 0) {
        items_[static_cast<std::size_t>(place)].second = std::move(value);
        return;
    }
    items_.emplace_back(std::move(key), std::move(value));
    if (items_.size() <= kUnindexedItems) return;
    const std::size_t first_new = index_.empty() ? 0 : items_.size() - 1;
    for (std::size_t i = first_new; i < items_.size(); ++i)
        index_.emplace(hash_of(items_[i].first), static_cast<std::uint32_t>(i));
}

const Value* Dict::find(const Value& key) const {
    const std::ptrdiff_t place = place_of(key);
    return place < 0 ? nullptr : &items_[static_cast<std::size_t>(place)].second;
}

const Value* Dict::find(std::string_view key) const {
    if (items_.size() > kUnindexedItems) return find(Value(key));
    for (const auto& [name, value] : items_)
        if (name.is_text() && name.view() == key) return &value;
    return nullptr;
}

std::string UndefinedInfo::message() const {
    if (!hint.empty()) return hint;
    if (owner_type.empty()) return fmt::format("'{}' is undefined", name);
    if (!key.empty()) return fmt::format("{} has no element {}", owner_type, key);
    return fmt::format("'{}' has no attribute '{}'", owner_type, name);
}

bool is_hashable(const Value& value) {
    if (value.is(Kind::Tuple)) return std::all_of(value.items().begin(), value.items().end(), is_hashable);
    return !value.is_sequence() && !value.is(Kind::Dict);
}

bool same_key(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    if (a.is_none() || a.is_undefined() || (a.cell() != nullptr && a.cell() == b.cell())) return true;
    if (a.is_text() || a.is(Kind::LongInt)) return a.view() == b.view();
    return a.is(Kind::Tuple) &&
           std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same_key);
}

bool is_true(const Value& value) {
    if (value.is_integral()) return value.integer() != 0;
    if (value.is(Kind::Float)) return value.real() != 0;
    if (value.is_text()) return !value.view().empty();
    if (value.is(Kind::Dict)) return value.dict().size() != 0;
    if (value.is_sequence()) return value.is(Kind::Generator) || !value.items().empty();
    return value.is(Kind::LongInt) || value.is(Kind::Object);
}

std::string_view type_name(const Value& value) {
    constexpr std::array<std::string_view, 16> kNames = {
        "Undefined", "Undefined", "NoneType", "bool",      "int",         "int beyond 64 bits", "float",     "str",
        "list",      "tuple",     "range",    "dict_keys", "dict_values", "dict_items",         "generator", "dict"};
    return value.is(Kind::Object) ? value.object().type_name() : kNames[static_cast<std::size_t>(value.kind())];
}

std::string owner_name(const Value& value) {
    if (value.is_none()) return "None";
    return fmt::format("{} object", type_name(value));
}

void refuse_undefined(const Value& value) {
    if (value.is_undefined()) throw TemplateError(value.undefined_info().message());
}

}  // namespace slipstream::jinja
