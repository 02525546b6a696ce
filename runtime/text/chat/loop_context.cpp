#include "runtime/text/chat/loop_context.h"

#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

std::optional<Value> LoopContext::advance(Runtime& runtime) {
    std::optional<Value> item = after_ ? std::exchange(after_, std::nullopt) : iterator_->next(runtime);
    if (!item) return std::nullopt;
    ++index0_;
    before_ = std::exchange(current_, *item);
    return item;
}

const std::optional<Value>& LoopContext::peek(Runtime& runtime) {
    if (!after_) after_ = iterator_->next(runtime);
    return after_;
}

std::optional<std::int64_t> LoopContext::length(Runtime& runtime) {
    if (length_ >= 0) return length_;
    if (const auto known = length_of(runtime, iterable_)) {
        length_ = *known;
    } else {
        std::vector<Value> rest = to_items(runtime, Value(std::static_pointer_cast<Object>(iterator_)));
        length_ = static_cast<std::int64_t>(rest.size()) + index0_ + 1 + (after_ ? 1 : 0);
        iterator_ = iterate(runtime, runtime.list(std::move(rest)));
    }
    return length_;
}

void LoopContext::write_repr(TextBuilder& out, int /*level*/) const {
    out.append(length_ >= 0 ? fmt::format("<LoopContext {}/{}>", index0_ + 1, length_) : "<LoopContext>");
}

std::optional<Value> LoopContext::attribute(Runtime& runtime, std::string_view name) {
    if (name == "index") return Value(index0_ + 1);
    if (name == "index0") return Value(index0_);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(!peek(runtime).has_value());
    if (name == "length") return Value(*length(runtime));
    if (name == "revindex") return Value(*length(runtime) - index0_);
    if (name == "revindex0") return Value(*length(runtime) - index0_ - 1);
    if (name == "depth") return Value(loop_depth_ + 1);
    if (name == "depth0") return Value(loop_depth_);
    if (name == "previtem") return index0_ == 0 ? Value::undefined({.hint = "there is no previous item"}) : before_;
    if (name == "nextitem") {
        const auto& next = peek(runtime);
        return next ? *next : Value::undefined({.hint = "there is no next item"});
    }
    const Value self(std::static_pointer_cast<Object>(shared_from_this()));
    if (name == "cycle") return Value(runtime.make<Function>("cycle", cycle, self));
    if (name == "changed") return Value(runtime.make<Function>("changed", changed, self));
    return std::nullopt;
}

Value LoopContext::cycle(Runtime& /*runtime*/, const Value& self, Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty()) fail("no items for cycling given");
    const auto& loop = static_cast<const LoopContext&>(self.object());
    return arguments.positional[static_cast<std::size_t>(loop.index0_) % arguments.positional.size()];
}

Value LoopContext::changed(Runtime& runtime, const Value& self, Arguments& arguments) {
    if (!arguments.named.empty()) fail("changed() takes no keyword arguments");
    auto& loop = static_cast<LoopContext&>(self.object());
    Value now = runtime.tuple(arguments.positional);
    if (!loop.last_changed_.is_missing() && compare(runtime, Comparison::Equal, loop.last_changed_, now))
        return Value(false);
    loop.last_changed_ = std::move(now);
    return Value(true);
}

Value LoopContext::call(Runtime& /*runtime*/, Arguments& arguments) {
    if (recursion_.loop == nullptr) fail("The loop must have the 'recursive' marker to be called recursively.");
    if (arguments.positional.size() != 1 || !arguments.named.empty()) fail("loop() takes one iterable");
    return recursion_.evaluator->call_loop(*recursion_.loop, *recursion_.closure, arguments.positional[0],
                                           loop_depth_ + 1);
}

void LoopContext::release() {
    iterable_ = Value();
    iterator_ = nullptr;
    after_ = std::nullopt;
    current_ = before_ = last_changed_ = Value();
}

}  // namespace slipstream::jinja
