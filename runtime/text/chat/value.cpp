#include "runtime/text/chat/value.h"

#include <algorithm>
#include <array>

#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

// Below this a walk over the items beats an index.
constexpr std::size_t kUnindexedItems = 8;

int deeper(int depth, const Value& child) {
    const int result = std::max(depth, child.depth() + 1);
    if (result > kMaxValueDepth) fail("values nested deeper than {}", kMaxValueDepth);
    return result;
}

// Equal keys hash alike: all numbers as floats.
std::size_t hash_of(const Value& value) {
    if (value.is_number()) return std::hash<double>()(value.real());
    if (value.is_text()) return std::hash<std::string_view>()(value.view());
    return static_cast<std::size_t>(value.kind());
}

bool is_same_key(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    if (a.is_text() || a.is(Kind::LongInt)) return a.view() == b.view();
    return a.is_undefined() || a.cell() == b.cell();
}

void check_key(const Value& key) {
    if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
}

}  // namespace

Value::Value(Text text) : Value(Kind::Text, std::make_shared<Box<Text>>(std::move(text))) {}
Value::Value(MarkedText text) : Value(Text{std::move(text)}) {}

Value Value::said(std::string text) {
    std::vector<TextSpan> spans;
    if (!text.empty()) spans.push_back({0, text.size()});
    return Value(MarkedText{std::move(text), std::move(spans)});
}

Value Value::long_integer(std::string digits) {
    return {Kind::LongInt, std::make_shared<Box<Text>>(Text{{std::move(digits), {}}})};
}

Value Value::undefined(Undefined why) {
    return {Kind::Undefined, std::make_shared<Box<Undefined>>(std::move(why))};
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
    int depth = 1;
    for (const Value& item : items) depth = deeper(depth, item);
    return {kind, std::make_shared<Box<Sequence>>(Sequence{std::move(items), depth, {}, 0})};
}

Value Value::dict(Dict dict) {
    return {Kind::Dict, std::make_shared<Box<Dict>>(std::move(dict))};
}

Value Value::dict(std::initializer_list<std::pair<std::string_view, Value>> items) {
    Dict result;
    for (const auto& [key, value] : items) result.set(key, value);
    return dict(std::move(result));
}

std::string_view Value::view() const {
    return text().bytes();
}
const std::vector<Value>& Value::items() const {
    return sequence().items;
}
Object& Value::object() const {
    return static_cast<Object&>(*cell_);
}

int Value::depth() const {
    if (is_sequence()) return sequence().depth;
    if (kind_ == Kind::Dict) return dict().depth();
    return kind_ == Kind::Object ? object().depth() : 0;
}

std::ptrdiff_t Dict::place_of(const Value& key) const {
    check_key(key);
    if (items_.size() <= kUnindexedItems) {
        const auto found = std::ranges::find_if(items_, [&](const Item& item) { return is_same_key(item.first, key); });
        return found == items_.end() ? -1 : found - items_.begin();
    }
    const auto [begin, end] = index_.equal_range(hash_of(key));
    const auto found =
        std::find_if(begin, end, [&](const auto& entry) { return is_same_key(items_[entry.second].first, key); });
    return found == end ? -1 : static_cast<std::ptrdiff_t>(found->second);
}

void Dict::set(Value key, Value value) {
    depth_ = deeper(depth_, value);
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

std::string Undefined::message() const {
    if (of == Of::Other) return what;
    if (of == Of::Variable) return fmt::format("'{}' is undefined", what);
    const std::string name = owner == "NoneType" ? std::string("None") : fmt::format("{} object", owner);
    return of == Of::Element ? fmt::format("{} has no element {}", name, what)
                             : fmt::format("'{}' has no attribute '{}'", name, what);
}

bool is_hashable(const Value& value) {
    return !value.is_sequence() && !value.is(Kind::Dict);
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

void refuse_undefined(const Value& value) {
    if (value.is_undefined()) throw TemplateError(value.undefined().message());
}

}  // namespace slipstream::jinja
