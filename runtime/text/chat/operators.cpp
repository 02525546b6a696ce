#include "runtime/text/chat/operators.h"

#include <string.h>

#include <algorithm>
#include <array>

#include "runtime/text/chat/markup.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/python_format.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr std::array<std::string_view, 7> kArithmeticSigns = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr std::array<std::string_view, 6> kComparisonSigns = {"==", "!=", "<", "<=", ">", ">="};

Value add_sequences(Runtime& runtime, const Value& a, const Value& b) {
    std::vector<Value> items;
    items.reserve(a.items().size() + b.items().size());
    items.insert(items.end(), a.items().begin(), a.items().end());
    items.insert(items.end(), b.items().begin(), b.items().end());
    runtime.spend(static_cast<std::int64_t>(items.size()));
    return a.is(Kind::List) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
    if (a.is_text() && b.is_text()) return add_texts(runtime, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) return add_sequences(runtime, a, b);
    if (a.is_text()) fail("can only concatenate str (not \"{}\") to str", type_name(b));
    if (a.is_sequence())
        fail("can only concatenate {0} (not \"{1}\") to {0}", a.is(Kind::List) ? "list" : "tuple", type_name(b));
    fail("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

Value repeat(Runtime& runtime, const Value& value, const Value& times) {
    if (!times.is_integral()) fail("can't multiply sequence by non-int of type '{}'", type_name(times));
    const std::int64_t count = std::max<std::int64_t>(times.integer(), 0);
    if (value.is_text()) {
        TextBuilder out = runtime.builder();
        out.repeat(count, value.view());
        return runtime.text(out.take(), value.text());
    }
    const auto size = static_cast<std::int64_t>(value.items().size());
    std::int64_t total = 0;
    if (__builtin_mul_overflow(count, size, &total)) fail("a list of {} times {} items", count, size);
    runtime.spend(total);
    std::vector<Value> items;
    for (std::int64_t i = 0; i < count && size > 0; ++i)
        items.insert(items.end(), value.items().begin(), value.items().end());
    return value.is(Kind::List) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

// The first difference decides; a sequence that ends first is less.
bool compare_sequences(Runtime& runtime, Comparison comparison, const std::vector<Value>& a,
                       const std::vector<Value>& b) {
    const Runtime::Level level(runtime);
    const std::size_t n = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < n; ++i) {
        const bool same = a[i].identity() != nullptr && a[i].identity() == b[i].identity();
        if (!same && !compare(runtime, Comparison::Equal, a[i], b[i])) return compare(runtime, comparison, a[i], b[i]);
    }
    return compare(runtime, comparison, Value(a.size()), Value(b.size()));
}

template <typename Ordering>
bool holds(Comparison comparison, Ordering order) {
    switch (comparison) {
        case Comparison::Less:
            return order < 0;
        case Comparison::LessOrEqual:
            return order <= 0;
        case Comparison::Greater:
            return order > 0;
        default:
            return order >= 0;
    }
}

bool contains_text(Runtime& runtime, const Value& container, const Value& item) {
    if (!item.is_text()) fail("'in <string>' requires string as left operand, not {}", type_name(item));
    runtime.spend(container.weight() + item.weight());
    return find_text(container.view(), item.view()) != std::string_view::npos;
}

bool contains_key(Runtime& runtime, const Dict& dict, const Value& key) {
    if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
    runtime.spend_for(key);
    return dict.find(key) != nullptr;
}

bool contains_item(Runtime& runtime, const Value& container, const Value& item) {
    const auto iterator = iterate(runtime, container);
    while (const auto other = iterator->next(runtime)) {
        if (item.identity() != nullptr && item.identity() == other->identity()) return true;
        if (compare(runtime, Comparison::Equal, *other, item)) return true;
    }
    return false;
}

}  // namespace

void refuse_undefined(const Value& value) {
    if (value.is_undefined()) throw TemplateError(value.undefined_info().message());
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
    if (from > text.size()) return std::string_view::npos;
    if (part.empty()) return from;
    // memmem is linear (two-way); std::string_view::find is quadratic on texts made for it.
    const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
    return found == nullptr ? std::string_view::npos
                            : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return calculate(operation, a, b);
    if (operation == Arithmetic::Modulo && a.is_text()) return format_percent(runtime, a, b);
    refuse_undefined(a);
    refuse_undefined(b);
    if (operation == Arithmetic::Add) return add(runtime, a, b);
    if (operation == Arithmetic::Multiply) {
        if (a.is_text() || a.is_sequence()) return repeat(runtime, a, b);
        if (b.is_text() || b.is_sequence()) return repeat(runtime, b, a);
    }
    fail("unsupported operand type(s) for {}: '{}' and '{}'", kArithmeticSigns[static_cast<std::size_t>(operation)],
         type_name(a), type_name(b));
}

Value unary_plus(const Value& a) {
    refuse_undefined(a);
    if (a.is(Kind::Float)) return a;
    if (!a.is_integral()) fail("bad operand type for unary +: '{}'", type_name(a));
    return Value(a.integer());
}

Value unary_minus(const Value& a) {
    refuse_undefined(a);
    if (!a.is_number()) fail("bad operand type for unary -: '{}'", type_name(a));
    return negate(a);
}

bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b) {
    if (comparison == Comparison::Equal || comparison == Comparison::NotEqual) {
        runtime.spend(std::min(a.weight(), b.weight()));
        return equal(a, b) == (comparison == Comparison::Equal);
    }
    runtime.spend(1);
    if (a.is_number() && b.is_number()) return holds(comparison, compare_numbers(a, b));
    if (a.is_text() && b.is_text()) {
        runtime.spend(std::min(a.weight(), b.weight()));
        return holds(comparison, a.view() <=> b.view());  // the order of UTF-8 is that of code points
    }
    if (a.is_sequence() && a.kind() == b.kind()) return compare_sequences(runtime, comparison, a.items(), b.items());
    refuse_undefined(a);
    refuse_undefined(b);
    fail("'{}' not supported between instances of '{}' and '{}'",
         kComparisonSigns[static_cast<std::size_t>(comparison)], type_name(a), type_name(b));
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
    return compare(runtime, Comparison::Less, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
    if (container.is_text()) return contains_text(runtime, container, item);
    if (container.is(Kind::Dict)) return contains_key(runtime, container.dict(), item);
    if (container.is(Kind::Object)) {
        if (const auto* range = dynamic_cast<const Range*>(&container.object()); range != nullptr && item.is_number()) {
            const auto number = item.is(Kind::Float) ? exact_integer(item.real()) : std::optional(item.integer());
            return number && range->contains(*number);
        }
        if (const auto* view = dynamic_cast<const DictView*>(&container.object());
            view != nullptr && view->part() == DictView::Part::Keys)
            return contains_key(runtime, view->dict().dict(), item);
    }
    if (!is_iterable(container)) fail("argument of type '{}' is not iterable", type_name(container));
    return contains_item(runtime, container, item);
}

}  // namespace slipstream::jinja
