#include "runtime/text/chat/runtime.h"

#include <algorithm>

#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

Runtime::~Runtime() {
    for (const auto& object : kept_) object->release();
}

Value Runtime::text(Text content) {
    const MarkedText& text = content.marked;
    spend_bytes(text.bytes.size());
    const std::size_t bytes = sizeof(Box<Text>) + text.bytes.capacity() + text.said.capacity() * sizeof(TextSpan);
    return charged(Value(std::move(content)), bytes);
}

Value Runtime::part(const Text& text, TextSpan span) {
    if (text.marked.said.empty()) return this->text(text.marked.bytes.substr(span.begin, span.end - span.begin));
    TextBuilder out = builder();
    out.append(text.marked, span);
    return this->text(out);
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
    spend(static_cast<std::int64_t>(items.size() / kCharsPerStep) + 1);
    const std::size_t bytes = sizeof(Box<Sequence>) + items.capacity() * sizeof(Value);
    return charged(Value::sequence(kind, std::move(items)), bytes);
}

Value Runtime::dict(Dict dict) {
    const std::size_t index_bytes = dict.size() * kCellBytes;
    const std::size_t bytes = sizeof(Box<Dict>) + dict.items().capacity() * sizeof(Dict::Item) + index_bytes;
    return charged(Value::dict(std::move(dict)), bytes);
}

Value Runtime::undefined(Undefined why) {
    spend_bytes(why.what.size());
    const std::size_t bytes = sizeof(Box<Undefined>) + why.what.capacity();
    return charged(Value::undefined(std::move(why)), bytes);
}

void Runtime::check_items(std::size_t n_items) const {
    account_.check(std::min(n_items, limits_.max_live_bytes + 1) * sizeof(Value));
}

void Runtime::out_of_steps() const {
    fail("the template does not end within {} steps (does it loop for ever?)", limits_.max_steps);
}

void Runtime::look_at_cancel() {
    if (limits_.cancel != nullptr && limits_.cancel->load(std::memory_order_relaxed)) fail("the rendering was stopped");
    look_at_ = steps_left_ - kStepsBetween;
}

void Runtime::too_deep() {
    fail("the template calls itself too deeply: {} levels", kMaxDepth);
}

std::string Object::shown() const {
    return fmt::format("<{}>", type_name());
}

std::optional<Value> Object::attribute(Runtime& /*runtime*/, std::string_view /*name*/) {
    return std::nullopt;
}

Value Object::call(Runtime& /*runtime*/, Arguments& /*arguments*/) {
    fail("'{}' object is not callable", type_name());
}

std::optional<Value> Namespace::attribute(Runtime& /*runtime*/, std::string_view name) {
    for (const auto& [key, value] : attributes_)
        if (key == name) return value;
    return std::nullopt;
}

void Namespace::set(Runtime& runtime, std::string_view name, Value value) {
    if (name.starts_with('_')) fail("a namespace has no attributes that begin with an underscore");
    runtime.spend(static_cast<std::int64_t>(attributes_.size() / 8) + 1);
    for (auto& [key, old] : attributes_)
        if (key == name) {
            old = std::move(value);
            return;
        }
    charge(runtime.account(), sizeof(attributes_[0]) * 2 + name.size());
    attributes_.emplace_back(name, std::move(value));
}

}  // namespace slipstream::jinja
