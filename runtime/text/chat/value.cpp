#include "runtime/text/chat/value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

int deeper(int depth, const Value& child) {
    const int result = std::max(depth, child.depth() + 1);
    if (result > kMaxValueDepth) fail("values nested deeper than {}", kMaxValueDepth);
    return result;
}

void pay(Runtime* runtime, const Value& looked_at) {
    const bool has_text = looked_at.is_text() || looked_at.is(Kind::LongInt);
    if (runtime != nullptr) runtime->spend_bytes(has_text ? looked_at.view().size() : 0);
}

// Returns the hash of a key of a dict. Equal keys have equal hashes: all numbers are hashed as floats. Throws
// TemplateError if `value` is not hashable. Steps are charged to `runtime`; null: they are not charged.
std::uint32_t hash_of(const Value& value, Runtime* runtime) {
    if (!is_hashable(value)) fail("unhashable type: '{}'", type_name(value));
    pay(runtime, value);
    std::size_t hash = static_cast<std::size_t>(value.kind());
    if (value.is_number())
        hash = std::isnan(value.real()) ? 0 : std::hash<double>()(value.real());
    else if (value.is_text() || value.is(Kind::LongInt))
        hash = std::hash<std::string_view>()(value.view());
    else if (value.is(Kind::Tuple))
        for (const Value& item : value.items()) hash = hash * 1000003 + hash_of(item, runtime);
    else if (value.is(Kind::Object))
        hash = std::hash<const void*>()(value.cell().get());
    // The factor makes all bits of the hash reach the lower ones, which select a slot.
    return static_cast<std::uint32_t>((hash * 0x9e3779b97f4a7c15U) >> 32U);
}

bool is_same_key(const Value& a, const Value& b, Runtime* runtime) {
    pay(runtime, a);
    if (a.is_number() && b.is_number())
        return compare_numbers(a, b) == 0 || (std::isnan(a.real()) && std::isnan(b.real()));
    if (a.kind() != b.kind()) return false;
    if (a.is_text() || a.is(Kind::LongInt)) return a.view() == b.view();
    if (a.is_undefined() || a.cell() == b.cell()) return true;
    const auto is_same = [runtime](const Value& x, const Value& y) { return is_same_key(x, y, runtime); };
    return a.is(Kind::Tuple) && std::ranges::equal(a.items(), b.items(), is_same);
}

}  // namespace

Value::Value(Text text) : Value(Kind::Text, std::make_shared<Box<Text>>(std::move(text))) {}
Value::Value(MarkedText text) : Value(Text{std::move(text)}) {}

Value Value::said(std::string text) {
    std::vector<TextSpan> spans;
    if (!text.empty()) spans.push_back({0, text.size()});
    return Value(MarkedText{std::move(text), std::move(spans)});
}

Value Value::undefined(Undefined why) {
    return {Kind::Undefined, std::make_shared<Box<Undefined>>(std::move(why))};
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
    int depth = 1;
    for (const Value& item : items) depth = deeper(depth, item);
    const bool is_key = kind == Kind::Tuple && std::ranges::all_of(items, is_hashable);
    return {kind, std::make_shared<Box<Sequence>>(Sequence{std::move(items), depth, {}, 0, is_key})};
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

std::size_t Dict::slot_of(const Value& key, std::uint32_t hash, Runtime* runtime) const {
    std::size_t at = hash & (slots_.size() - 1);
    for (int n = 0; slots_[at].place != kFree; at = (at + 1) & (slots_.size() - 1)) {
        if (runtime != nullptr) runtime->spend(1);
        if (++n > kMostSteps) fail("keys that were made to collide");
        if (slots_[at].hash == hash && is_same_key(items_[slots_[at].place].first, key, runtime)) break;
    }
    return at;
}

void Dict::set(Value key, Value value, Runtime* runtime) {
    const std::uint32_t hash = hash_of(key, runtime);
    depth_ = std::max(deeper(depth_, value), deeper(depth_, key));
    if (2 * items_.size() >= slots_.size()) {
        const std::vector<Slot> old =
            std::exchange(slots_, std::vector<Slot>(std::max<std::size_t>(2 * slots_.size(), 4)));
        for (const Slot& slot : old)
            if (slot.place != kFree) slots_[slot_of(items_[slot.place].first, slot.hash, runtime)] = slot;
    }
    Slot& slot = slots_[slot_of(key, hash, runtime)];
    if (slot.place != kFree) {
        items_[slot.place].second = std::move(value);
        return;
    }
    slot = {hash, static_cast<std::uint32_t>(items_.size())};
    items_.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(const Value& key, Runtime* runtime) const {
    const std::uint32_t hash = hash_of(key, runtime);
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[slot_of(key, hash, runtime)];
    return slot.place == kFree ? nullptr : &items_[slot.place].second;
}

std::string Undefined::message() const {
    if (of == Of::Other) return what;
    if (of == Of::Variable) return fmt::format("'{}' is undefined", what);
    const std::string name = owner == "NoneType" ? std::string("None") : fmt::format("{} object", owner);
    return of == Of::Element ? fmt::format("{} has no element {}", name, what)
                             : fmt::format("'{}' has no attribute '{}'", name, what);
}

bool is_hashable(const Value& value) {
    return value.is_sequence() ? value.sequence().is_key : !value.is(Kind::Dict);
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
