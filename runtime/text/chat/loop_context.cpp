#include "runtime/text/chat/loop_context.h"

#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

bool LoopContext::next(Runtime& runtime, Value& item) {
    while (items_.next(runtime, item))
        if (is_filtered_ || evaluator_->passes(loop_, around_, item)) return true;
    return false;
}

bool LoopContext::peek(Runtime& runtime) {
    if (!has_after_) has_after_ = next(runtime, after_);
    return has_after_;
}

bool LoopContext::advance(Runtime& runtime) {
    if (!peek(runtime)) return false;
    before_ = std::move(current_);
    current_ = std::move(after_);
    has_after_ = false;
    ++index0_;
    return true;
}

std::int64_t LoopContext::length(Runtime& runtime) {
    if (length_ >= 0) return length_;
    if (const auto known = length_of(iterable_); known && !loop_.test) return length_ = *known;
    // Jinja reads on to the end then.
    std::vector<Value> rest;
    if (has_after_) rest.push_back(after_);
    for (Value item; next(runtime, item);) rest.push_back(std::move(item));
    length_ = index0_ + 1 + static_cast<std::int64_t>(rest.size());
    has_after_ = false;
    items_ = Iterator(runtime.sequence(Kind::Generator, std::move(rest)));
    is_filtered_ = true;
    return length_;
}

std::optional<Value> LoopContext::attribute(Runtime& runtime, std::string_view name) {
    if (name == "index") return Value(index0_ + 1);
    if (name == "index0") return Value(index0_);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(!peek(runtime));
    if (name == "length") return Value(length(runtime));
    if (name == "revindex") return Value(length(runtime) - index0_);
    if (name == "revindex0") return Value(length(runtime) - index0_ - 1);
    if (name == "previtem") return index0_ == 0 ? runtime.undefined({.hint = "there is no previous item"}) : before_;
    if (name == "nextitem") return peek(runtime) ? after_ : runtime.undefined({.hint = "there is no next item"});
    for (const char* unserved : {"cycle", "changed", "depth", "depth0"})
        if (name == unserved) fail("loop.{} is not served in chat templates", name);
    return std::nullopt;
}

void LoopContext::release() {
    evaluator_ = nullptr;
    around_ = {};
    iterable_ = before_ = current_ = after_ = Value();
    items_ = Iterator(Value::list({}));
}

}  // namespace slipstream::jinja
