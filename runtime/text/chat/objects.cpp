#include "runtime/text/chat/objects.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

// Python's index rules: from the end where negative. Nothing where it is out of range or no integer.
std::optional<std::int64_t> checked_index(const Value& key, std::int64_t length) {
    if (!key.is_integral()) return std::nullopt;
    const std::int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    return index >= 0 && index < length ? std::optional(index) : std::nullopt;
}

// Unsigned: the distance of two 64-bit integers may not fit a signed one.
std::uint64_t distance(std::int64_t low, std::int64_t high) {
    return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
}
std::uint64_t magnitude(std::int64_t step) {
    return step < 0 ? distance(step, 0) : static_cast<std::uint64_t>(step);
}

std::int64_t sized(const Value& container) {
    switch (container.kind()) {
        case Kind::Text:
            return container.text().n_chars;
        case Kind::List:
        case Kind::Tuple:
            return static_cast<std::int64_t>(container.items().size());
        case Kind::Dict:
            return static_cast<std::int64_t>(container.dict().size());
        default:
            break;
    }
    if (const auto* range = dynamic_cast<const Range*>(&container.object())) return range->size();
    const auto* view = dynamic_cast<const DictView*>(&container.object());
    CHECK(view != nullptr, "no container to iterate over");
    return static_cast<std::int64_t>(view->dict().dict().size());
}

}  // namespace

void Object::write_repr(TextBuilder& out, int /*level*/) const {
    out.append(fmt::format("<{} object>", type_name()));
}

void LongInteger::write_repr(TextBuilder& out, int /*level*/) const {
    out.append(digits_);
}

bool LongInteger::equals(const Object& other) const {
    const auto* number = dynamic_cast<const LongInteger*>(&other);
    return number != nullptr && number->digits_ == digits_;
}

const LongInteger* LongInteger::of(const Value& value) {
    return value.is(Kind::Object) ? dynamic_cast<const LongInteger*>(&value.object()) : nullptr;
}

std::optional<Value> Object::attribute(Runtime& /*runtime*/, std::string_view /*name*/) {
    return std::nullopt;
}
std::optional<Value> Object::element(Runtime& /*runtime*/, const Value& /*key*/) {
    return std::nullopt;
}
Value Object::call(Runtime& /*runtime*/, Arguments& /*arguments*/) {
    fail("'{}' object is not callable", type_name());
}
std::optional<std::int64_t> Object::length(Runtime& /*runtime*/) {
    return std::nullopt;
}

ItemIterator::ItemIterator(Value container, Direction direction)
    : container_(std::move(container)), direction_(direction), n_items_(sized(container_)) {
    CHECK(direction == Direction::Forwards || !container_.is_text(), "texts are reversed as a whole");
}

std::optional<Value> ItemIterator::next(Runtime& runtime) {
    runtime.spend(1);
    if (n_done_ == n_items_) return std::nullopt;
    const std::int64_t index = direction_ == Direction::Forwards ? n_done_ : n_items_ - 1 - n_done_;
    ++n_done_;
    if (!container_.is_text()) return item(runtime, static_cast<std::size_t>(index));
    const Char c = first_char(container_.view().substr(byte_));
    byte_ += c.bytes.size();
    return runtime.text(std::string(c.bytes));  // the characters of marked text are not marked
}

Value ItemIterator::item(Runtime& /*runtime*/, std::size_t index) const {
    if (container_.is_sequence()) return container_.items()[index];
    if (container_.is(Kind::Dict)) return container_.dict().items()[index].first;
    if (const auto* range = dynamic_cast<const Range*>(&container_.object()))
        return Value(range->at(static_cast<std::int64_t>(index)));
    return static_cast<const DictView&>(container_.object()).item(index);
}

Range::Range(std::int64_t start, std::int64_t stop, std::int64_t step) : start_(start), stop_(stop), step_(step) {
    CHECK(step != 0, "a range needs a step");
    std::uint64_t count = 0;
    if (step > 0 && start < stop) count = (distance(start, stop) - 1) / magnitude(step) + 1;
    if (step < 0 && start > stop) count = (distance(stop, start) - 1) / magnitude(step) + 1;
    if (count > kMaxItems) fail("range() of more than {} items", kMaxItems);
    length_ = static_cast<std::int64_t>(count);
}

void Range::write_repr(TextBuilder& out, int /*level*/) const {
    out.append(step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                          : fmt::format("range({}, {}, {})", start_, stop_, step_));
}

std::optional<Value> Range::attribute(Runtime& /*runtime*/, std::string_view name) {
    if (name == "start") return Value(start_);
    if (name == "stop") return Value(stop_);
    if (name == "step") return Value(step_);
    return std::nullopt;
}

std::optional<Value> Range::element(Runtime& /*runtime*/, const Value& key) {
    const auto index = checked_index(key, length_);
    return index ? std::optional(Value(at(*index))) : std::nullopt;
}

bool Range::equals(const Object& other) const {
    const auto* range = dynamic_cast<const Range*>(&other);
    if (range == nullptr || range->length_ != length_) return false;
    return length_ == 0 || (range->start_ == start_ && (length_ == 1 || range->step_ == step_));
}

std::size_t Range::hash() const {
    return std::hash<std::int64_t>()(length_ == 0 ? 0 : start_ + length_);
}

bool Range::contains(std::int64_t number) const {
    if (length_ == 0) return false;
    const std::int64_t last = at(length_ - 1);
    if (number < std::min(start_, last) || number > std::max(start_, last)) return false;
    return step_ > 0 ? distance(start_, number) % magnitude(step_) == 0
                     : distance(number, start_) % magnitude(step_) == 0;
}

std::string_view DictView::type_name() const {
    return part_ == Part::Keys ? "dict_keys" : part_ == Part::Values ? "dict_values" : "dict_items";
}

void DictView::write_repr(TextBuilder& out, int level) const {
    out.append(fmt::format("{}([", type_name()));
    for (std::size_t i = 0; i < dict_.dict().size(); ++i) {
        if (i > 0) out.append(", ");
        jinja::write_repr(out, item(i), level + 1);
    }
    out.append("])");
}

std::optional<std::int64_t> DictView::length(Runtime& /*runtime*/) {
    return static_cast<std::int64_t>(dict_.dict().size());
}

Value DictView::item(std::size_t index) const {
    const auto& [key, value] = dict_.dict().items()[index];
    if (part_ == Part::Keys) return key;
    return part_ == Part::Values ? value : Value::tuple({key, value});
}

void Namespace::write_repr(TextBuilder& out, int level) const {
    out.append("<Namespace ");
    jinja::write_repr(out, Value::dict(attributes_), level + 1);
    out.append('>');
}

std::optional<Value> Namespace::attribute(Runtime& /*runtime*/, std::string_view name) {
    const Value* value = attributes_.find(name);
    return value == nullptr ? std::nullopt : std::optional(*value);
}

void Namespace::set(std::string_view name, Value value) {
    if (name.starts_with('_')) fail("a namespace takes no attribute that begins with an underscore: {}", quoted(name));
    attributes_.set(name, std::move(value));
}

void Function::write_repr(TextBuilder& out, int /*level*/) const {
    out.append(fmt::format("<built-in function {}>", name_));
}

std::shared_ptr<Iterator> iterate(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return runtime.make<ItemIterator>(Value::tuple({}));
    if (!is_iterable(value)) fail("'{}' object is not iterable", type_name(value));
    if (value.is(Kind::Object))
        if (auto iterator = std::dynamic_pointer_cast<Iterator>(value.object_ref())) return iterator;
    return runtime.make<ItemIterator>(value);
}

bool is_iterable(const Value& value) {
    if (value.is(Kind::Object)) return value.object().is_iterable();
    return value.is_text() || value.is_sequence() || value.is(Kind::Dict) || value.is_undefined();
}

std::vector<Value> to_items(Runtime& runtime, const Value& value) {
    if (value.is_sequence()) {
        runtime.spend(static_cast<std::int64_t>(value.items().size()));
        return value.items();
    }
    std::vector<Value> items;
    const auto iterator = iterate(runtime, value);
    while (auto item = iterator->next(runtime)) items.push_back(std::move(*item));
    return items;
}

std::optional<std::int64_t> length_of(Runtime& runtime, const Value& value) {
    if (value.is(Kind::Object)) return value.object().length(runtime);
    if (value.is_undefined()) return 0;
    return value.is_text() || value.is_sequence() || value.is(Kind::Dict) ? std::optional(sized(value)) : std::nullopt;
}

}  // namespace slipstream::jinja
