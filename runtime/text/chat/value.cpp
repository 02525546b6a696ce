#include "runtime/text/chat/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/base/check.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kBytesPerWeight = 16;
constexpr std::int64_t kMaxWeight = std::int64_t{1} << 60;
// Below this a walk over the items beats an index.
constexpr std::size_t kUnindexedItems = 8;

struct UndefinedCell final : Cell {
    explicit UndefinedCell(UndefinedInfo why) : info(std::move(why)) {}
    UndefinedInfo info;
};

int deeper(int depth, int child) {
    const int result = std::max(depth, child + 1);
    if (result > kMaxValueDepth) fail("values nested deeper than {}", kMaxValueDepth);
    return result;
}

std::int64_t heavier(std::int64_t weight, const Value& child) {
    return std::min(weight + child.weight(), kMaxWeight);
}

std::size_t mix(std::size_t seed, std::size_t hash) {
    return seed ^ (hash + 0x9e3779b97f4a7c15ULL + (seed << 6U) + (seed >> 2U));
}

// Equal keys hash alike: integral floats as their integers, text whether escaped or not.
std::size_t hash_of(const Value& value) {
    switch (value.kind()) {
        case Kind::Bool:
        case Kind::Int:
            return std::hash<std::int64_t>()(value.integer());
        case Kind::Float:
            if (const auto whole = exact_integer(value.real())) return std::hash<std::int64_t>()(*whole);
            return std::hash<double>()(value.real());
        case Kind::Text:
            return std::hash<std::string_view>()(value.view());
        case Kind::Tuple: {
            std::size_t seed = value.items().size();
            for (const Value& item : value.items()) seed = mix(seed, hash_of(item));
            return seed;
        }
        case Kind::Object:
            return value.object().hash();
        default:
            return static_cast<std::size_t>(value.kind());
    }
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const Value& x, const Value& y) {
               // As Python's containers do: what is the same is equal, even a NaN that compares unequal to itself.
               return (x.identity() != nullptr && x.identity() == y.identity()) || equal(x, y);
           });
}

bool equal_dicts(const Dict& a, const Dict& b) {
    return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&b](const Dict::Item& item) {
               const Value* other = b.find(item.first);
               return other != nullptr && equal(item.second, *other);
           });
}

}  // namespace

Value::Value(std::string text) : Value(Kind::Text, std::make_shared<Text>(std::move(text))) {}
Value::Value(std::shared_ptr<Object> object) : Value(Kind::Object, std::move(object)) {}

Value Value::none() {
    return {Kind::None, nullptr};
}

Value Value::markup(std::string text) {
    auto content = std::make_shared<Text>(std::move(text));
    content->is_markup = true;
    return {Kind::Text, std::move(content)};
}

Value Value::list(std::vector<Value> items) {
    return {Kind::List, std::make_shared<Sequence>(std::move(items))};
}
Value Value::tuple(std::vector<Value> items) {
    return {Kind::Tuple, std::make_shared<Sequence>(std::move(items))};
}
Value Value::dict(Dict dict) {
    return {Kind::Dict, std::make_shared<Dict>(std::move(dict))};
}

Value Value::dict(std::initializer_list<std::pair<std::string_view, Value>> items) {
    Dict result;
    for (const auto& [key, value] : items) result.set(key, value);
    return dict(std::move(result));
}

Value Value::group(Value grouper, Value members) {
    auto pair = std::make_shared<Sequence>(std::vector{std::move(grouper), std::move(members)});
    pair->is_group = true;
    return {Kind::Tuple, std::move(pair)};
}

Value Value::undefined(UndefinedInfo info) {
    return {Kind::Undefined, std::make_shared<UndefinedCell>(std::move(info))};
}

const Text& Value::text() const {
    DCHECK(kind_ == Kind::Text);
    return static_cast<const Text&>(*cell_);
}
std::string_view Value::view() const {
    return text().bytes;
}
const Sequence& Value::sequence() const {
    DCHECK(is_sequence());
    return static_cast<const Sequence&>(*cell_);
}
const std::vector<Value>& Value::items() const {
    return sequence().items;
}
const Dict& Value::dict() const {
    DCHECK(kind_ == Kind::Dict);
    return static_cast<const Dict&>(*cell_);
}
const UndefinedInfo& Value::undefined_info() const {
    DCHECK(kind_ == Kind::Undefined);
    return static_cast<const UndefinedCell&>(*cell_).info;
}
Object& Value::object() const {
    DCHECK(kind_ == Kind::Object);
    return static_cast<Object&>(*cell_);
}
std::shared_ptr<Object> Value::object_ref() const {
    DCHECK(kind_ == Kind::Object);
    return std::static_pointer_cast<Object>(cell_);
}

int Value::depth() const {
    if (is_sequence()) return sequence().depth;
    if (kind_ == Kind::Dict) return dict().depth();
    return kind_ == Kind::Object ? object().depth() : 0;
}

std::int64_t Value::weight() const {
    if (kind_ == Kind::Text) return 1 + static_cast<std::int64_t>(view().size() / kBytesPerWeight);
    if (is_sequence()) return sequence().weight;
    return kind_ == Kind::Dict ? dict().weight() : 1;
}

Text::Text(std::string content) : bytes(std::move(content)), n_chars(count_chars(bytes)) {}

Sequence::Sequence(std::vector<Value> elements) : items(std::move(elements)) {
    for (const Value& item : items) {
        depth = deeper(depth, item.depth());
        weight = heavier(weight, item);
    }
}

void Dict::set(Value key, Value value) {
    depth_ = deeper(deeper(depth_, key.depth()), value.depth());
    weight_ = heavier(heavier(weight_, key), value);
    if (const std::ptrdiff_t place = place_of(key); place >= 0) {
        items_[static_cast<std::size_t>(place)].second = std::move(value);
        return;
    }
    items_.emplace_back(std::move(key), std::move(value));
    if (items_.size() <= kUnindexedItems) return;
    if (index_.empty())
        for (std::size_t i = 0; i + 1 < items_.size(); ++i)
            index_.emplace(hash_of(items_[i].first), static_cast<std::uint32_t>(i));
    index_.emplace(hash_of(items_.back().first), static_cast<std::uint32_t>(items_.size() - 1));
}

std::ptrdiff_t Dict::place_of(const Value& key) const {
    const auto same = [&key](const Value& other) {
        return (key.identity() != nullptr && key.identity() == other.identity()) || equal(key, other);
    };
    if (index_.empty()) {
        for (std::size_t i = 0; i < items_.size(); ++i)
            if (same(items_[i].first)) return static_cast<std::ptrdiff_t>(i);
        return -1;
    }
    const auto [begin, end] = index_.equal_range(hash_of(key));
    for (auto it = begin; it != end; ++it)
        if (same(items_[it->second].first)) return it->second;
    return -1;
}

const Value* Dict::find(const Value& key) const {
    const std::ptrdiff_t place = place_of(key);
    return place < 0 ? nullptr : &items_[static_cast<std::size_t>(place)].second;
}

const Value* Dict::find(std::string_view key) const {
    if (!index_.empty()) return find(Value(key));
    for (const auto& [name, value] : items_)
        if (name.is_text() && name.view() == key) return &value;
    return nullptr;
}

std::string UndefinedInfo::message() const {
    if (!hint.empty()) return hint;
    if (owner_type.empty()) return fmt::format("{} is undefined", quoted(name));
    if (!key.empty()) return fmt::format("{} has no element {}", owner_type, key);
    return fmt::format("{} has no attribute {}", quoted(owner_type), quoted(name));
}

bool is_hashable(const Value& value) {
    if (value.is(Kind::Tuple)) return std::all_of(value.items().begin(), value.items().end(), is_hashable);
    return !value.is(Kind::List) && !value.is(Kind::Dict);
}

bool equal(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == std::partial_ordering::equivalent;
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::Text:
            return a.view() == b.view();
        case Kind::List:
        case Kind::Tuple:
            return a.identity() == b.identity() || equal_items(a.items(), b.items());
        case Kind::Dict:
            return a.identity() == b.identity() || equal_dicts(a.dict(), b.dict());
        case Kind::Object:
            return a.identity() == b.identity() || a.object().equals(b.object());
        default:
            return true;
    }
}

bool is_true(const Value& value) {
    switch (value.kind()) {
        case Kind::Bool:
        case Kind::Int:
            return value.integer() != 0;
        case Kind::Float:
            return value.real() != 0;
        case Kind::Text:
            return !value.view().empty();
        case Kind::List:
        case Kind::Tuple:
            return !value.items().empty();
        case Kind::Dict:
            return value.dict().size() != 0;
        case Kind::Object:
            return value.object().truth();
        default:
            return false;
    }
}

std::string_view type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::None:
            return "NoneType";
        case Kind::Bool:
            return "bool";
        case Kind::Int:
            return "int";
        case Kind::Float:
            return "float";
        case Kind::Text:
            return value.text().is_markup ? "Markup" : "str";
        case Kind::List:
            return "list";
        case Kind::Tuple:
            return value.sequence().is_group ? "_GroupTuple" : "tuple";
        case Kind::Dict:
            return "dict";
        case Kind::Object:
            return value.object().type_name();
        default:
            return "Undefined";
    }
}

std::string owner_name(const Value& value) {
    return value.is_none() ? "None" : fmt::format("{} object", type_name(value));
}

}  // namespace slipstream::jinja
