// The variable `loop`: where a loop is, what comes before and after, and, in a recursive loop, the loop itself as a
// function. Looks one item ahead only when asked to (jinja2/runtime.py, LoopContext).
#pragma once

#include <memory>

#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/objects.h"

namespace slipstream::jinja {

class LoopContext final : public Object, public std::enable_shared_from_this<LoopContext> {
public:
    /// What loop(...) runs; the closure is kept by the evaluator.
    struct Recursion {
        Evaluator* evaluator = nullptr;
        const ForStatement* loop = nullptr;
        Activation* closure = nullptr;
    };

    LoopContext(Value iterable, std::shared_ptr<Iterator> iterator, Recursion recursion, int depth)
        : iterable_(std::move(iterable)), iterator_(std::move(iterator)), recursion_(recursion), loop_depth_(depth) {}

    /// The next item of the loop, or nothing at its end.
    [[nodiscard]] std::optional<Value> advance(Runtime& runtime);

    [[nodiscard]] std::string_view type_name() const override { return "jinja2.runtime.LoopContext"; }
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    [[nodiscard]] Value call(Runtime& runtime, Arguments& arguments) override;
    [[nodiscard]] std::optional<std::int64_t> length(Runtime& runtime) override;
    void release() override;

private:
    [[nodiscard]] const std::optional<Value>& peek(Runtime& runtime);
    static Value cycle(Runtime& runtime, const Value& self, Arguments& arguments);
    static Value changed(Runtime& runtime, const Value& self, Arguments& arguments);

    Value iterable_;
    std::shared_ptr<Iterator> iterator_;
    Recursion recursion_;
    int loop_depth_;
    std::int64_t index0_ = -1;
    std::int64_t length_ = -1;  // not known yet
    std::optional<Value> after_;
    Value current_, before_;
    Value last_changed_;
};

}  // namespace slipstream::jinja
