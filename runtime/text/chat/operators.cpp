#include "runtime/text/chat/operators.h"

#include <string.h>

#include <algorithm>
#include <array>

#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::array<std::string_view, 7> kArithmeticSigns = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr std::array<std::string_view, 6> kComparisonSigns = {"==", "!=", "<", "<=", ">", ">="};

bool is_list_or_tuple(const Value& value) {
    return value.is(Kind::List) || value.is(Kind::Tuple);
}

void append_escaped(TextBuilder& out, const MarkedText& text) {
    for (std::size_t i = 0; i < text.bytes.size(); ++i) {
        const char c = text.bytes[i];
        const std::string_view escape = c == '&'    ? "&amp;"
                                        : c == '<'  ? "&lt;"
                                        : c == '>'  ? "&gt;"
                                        : c == '"'  ? "&#34;"
                                        : c == '\'' ? "&#39;"
                                                    : "";
        if (escape.empty())
            out.append(text, {i, i + 1});
        else
            out.append(escape, text.is_said_at(i) ? Origin::Said : Origin::Template);
    }
}

Value add_texts(Runtime& runtime, const Text& a, const Text& b) {
    TextBuilder out = runtime.builder();
    const bool is_safe = a.is_safe || b.is_safe;
    for (const Text* text : {&a, &b})
        if (is_safe && !text->is_safe) {
            runtime.spend_chars(2 * text->bytes().size());
            append_escaped(out, text->marked);
        } else {
            out.append(text->marked);
        }
    Value made = runtime.text(out);
    static_cast<Text*>(made.cell())->is_safe = is_safe;
    return made;
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
    if (a.is_text() && b.is_text()) return add_texts(runtime, a.text(), b.text());
    if (is_list_or_tuple(a) && a.kind() == b.kind()) {
        runtime.check_items(a.items().size() + b.items().size());
        std::vector<Value> items;
        items.reserve(a.items().size() + b.items().size());
        items.insert(items.end(), a.items().begin(), a.items().end());
        items.insert(items.end(), b.items().begin(), b.items().end());
        return runtime.sequence(a.kind(), std::move(items));
    }
    if (a.is_text() || is_list_or_tuple(a))
        fail("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b));
    fail("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

Value repeat(Runtime& runtime, const Value& value, const Value& times) {
    if (!times.is_integral()) fail("can't multiply sequence by non-int of type '{}'", type_name(times));
    const std::int64_t count = std::max<std::int64_t>(times.integer(), 0);
    if (value.is_text()) {
        TextBuilder out = runtime.builder();
        out.repeat(count, value.text().marked);
        return runtime.text(out);
    }
    std::size_t total = 0;
    if (__builtin_mul_overflow(static_cast<std::size_t>(count), value.items().size(), &total)) total = SIZE_MAX;
    runtime.check_items(total);
    std::vector<Value> items;
    items.reserve(total);
    while (items.size() < total) items.insert(items.end(), value.items().begin(), value.items().end());
    return runtime.sequence(value.kind(), std::move(items));
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

bool same_cell(const Value& a, const Value& b) {
    return a.cell() != nullptr && a.cell() == b.cell();
}

// The first difference decides; a sequence that ends first is less.
bool compare_items(Runtime& runtime, Comparison comparison, const std::vector<Value>& a, const std::vector<Value>& b) {
    const std::size_t n = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < n; ++i)
        if (!same_cell(a[i], b[i]) && !equal(runtime, a[i], b[i])) return compare(runtime, comparison, a[i], b[i]);
    return holds(comparison, a.size() <=> b.size());
}

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      // As Python's containers do: what is the same is equal, even a NaN.
                      [&](const Value& x, const Value& y) { return same_cell(x, y) || equal(runtime, x, y); });
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
    return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&](const Dict::Item& item) {
               const Value* other = b.find(item.first);
               return other != nullptr && equal(runtime, item.second, *other);
           });
}

}  // namespace

Value arithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return calculate(operation, a, b);
    refuse_undefined(a);
    refuse_undefined(b);
    if (operation == Arithmetic::Add) return add(runtime, a, b);
    if (operation == Arithmetic::Multiply) {
        if (a.is_text() || is_list_or_tuple(a)) return repeat(runtime, a, b);
        if (b.is_text() || is_list_or_tuple(b)) return repeat(runtime, b, a);
    }
    if (operation == Arithmetic::Modulo && a.is_text()) fail("formatting text by % is not served in chat templates");
    fail("unsupported operand type(s) for {}: '{}' and '{}'", kArithmeticSigns[static_cast<std::size_t>(operation)],
         type_name(a), type_name(b));
}

Value unary_plus(const Value& a) {
    refuse_undefined(a);
    if (!a.is_number()) fail("bad operand type for unary +: '{}'", type_name(a));
    return a.is(Kind::Float) ? a : Value(a.integer());
}

Value unary_minus(const Value& a) {
    refuse_undefined(a);
    if (!a.is_number()) fail("bad operand type for unary -: '{}'", type_name(a));
    return a.is(Kind::Float) ? Value(-a.real()) : calculate(Arithmetic::Subtract, Value(0), a);
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
    runtime.spend(1);
    if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    if (a.is_none() || a.is_undefined() || same_cell(a, b)) return true;
    if (a.is_text() || a.is(Kind::LongInt)) {
        if (a.view().size() != b.view().size()) return false;
        runtime.spend_bytes(a.view().size());
        return a.view() == b.view();
    }
    if (a.is(Kind::Dict)) return equal_dicts(runtime, a.dict(), b.dict());
    return a.is_sequence() && !a.is(Kind::Generator) && equal_items(runtime, a.items(), b.items());
}

bool compare(Runtime& runtime, Comparison comparison, const Value& a, const Value& b) {
    switch (comparison) {
        case Comparison::Equal:
            return equal(runtime, a, b);
        case Comparison::NotEqual:
            return !equal(runtime, a, b);
        case Comparison::In:
            return contains(runtime, b, a);
        case Comparison::NotIn:
            return !contains(runtime, b, a);
        default:
            break;
    }
    runtime.spend(1);
    if (a.is_number() && b.is_number()) return holds(comparison, compare_numbers(a, b));
    if (a.is_text() && b.is_text()) {
        runtime.spend_bytes(std::min(a.view().size(), b.view().size()));
        return holds(comparison, a.view() <=> b.view());  // the order of UTF-8 is that of code points
    }
    if (is_list_or_tuple(a) && a.kind() == b.kind()) return compare_items(runtime, comparison, a.items(), b.items());
    refuse_undefined(a);
    refuse_undefined(b);
    fail("'{}' not supported between instances of '{}' and '{}'",
         kComparisonSigns[static_cast<std::size_t>(comparison)], type_name(a), type_name(b));
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
    return compare(runtime, Comparison::Less, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
    if (container.is_text()) {
        if (!item.is_text()) fail("'in <string>' requires string as left operand, not {}", type_name(item));
        runtime.spend_bytes(container.view().size() + item.view().size());
        return find_text(container.view(), item.view()) != std::string_view::npos;
    }
    if (container.is(Kind::Dict)) {
        if (!is_hashable(item)) fail("unhashable type: '{}'", type_name(item));
        if (item.is_text()) runtime.spend_bytes(item.view().size());
        return container.dict().find(item) != nullptr;
    }
    if (!is_iterable(container)) fail("argument of type '{}' is not iterable", type_name(container));
    Value other;
    for (Iterator items(container); items.next(runtime, other);)
        if (same_cell(item, other) || equal(runtime, other, item)) return true;
    return false;
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
    if (from > text.size()) return std::string_view::npos;
    if (part.empty()) return from;
    // memmem is linear (two-way); std::string_view::find is quadratic on texts made for it.
    const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
    return found == nullptr ? std::string_view::npos
                            : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

Iterator::Iterator(Value container) : container_(std::move(container)) {
    if (!is_iterable(container_)) fail("'{}' object is not iterable", type_name(container_));
}

bool Iterator::next(Runtime& runtime, Value& item) {
    if (container_.is_sequence()) {
        Sequence& sequence = container_.sequence();
        std::size_t& at = container_.is(Kind::Generator) ? sequence.n_read : at_;
        if (at >= sequence.items.size()) return false;
        runtime.spend(1);
        item = sequence.items[at++];
        return true;
    }
    if (container_.is(Kind::Dict)) {
        const auto& items = container_.dict().items();
        if (at_ >= items.size()) return false;
        runtime.spend(1);
        item = items[at_++].first;
        return true;
    }
    if (!container_.is_text() || at_ >= container_.view().size()) return false;
    const std::size_t end = at_ + first_char(container_.view().substr(at_)).bytes.size();
    item = runtime.part(container_.text(), {std::exchange(at_, end), end});
    return true;
}

bool is_iterable(const Value& value) {
    return value.is_sequence() || value.is_text() || value.is(Kind::Dict) || value.is_undefined();
}

std::vector<Value> to_items(Runtime& runtime, const Value& value) {
    std::vector<Value> items;
    Value item;
    for (Iterator iterator(value); iterator.next(runtime, item);) items.push_back(std::move(item));
    return items;
}

std::optional<std::int64_t> length_of(const Value& value) {
    if (value.is_text()) return value.text().n_chars();
    if (value.is(Kind::Dict)) return static_cast<std::int64_t>(value.dict().size());
    if (value.is_undefined()) return 0;
    if (!value.is_sequence() || value.is(Kind::Generator)) return std::nullopt;
    return static_cast<std::int64_t>(value.items().size());
}

}  // namespace slipstream::jinja
