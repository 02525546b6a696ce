// The objects that run parts of a template: macros (and the callers of call blocks), the filter of a loop.
#pragma once

#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/objects.h"

namespace slipstream::jinja {

class Macro final : public Object {
public:
    /// `closure` is kept by the evaluator.
    Macro(Evaluator& evaluator, const MacroBody& body, Activation& closure)
        : evaluator_(evaluator), body_(body), closure_(closure) {}

    [[nodiscard]] std::string_view type_name() const override { return "Macro"; }
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    [[nodiscard]] Value call(Runtime& runtime, Arguments& arguments) override;

private:
    Evaluator& evaluator_;
    const MacroBody& body_;
    Activation& closure_;
};

/// The items of `source` that pass the loop's filter.
class LoopFilter final : public Iterator {
public:
    LoopFilter(Evaluator& evaluator, const ForStatement& loop, Activation& closure, std::shared_ptr<Iterator> source)
        : evaluator_(evaluator), loop_(loop), own_(&closure, loop.test_function), source_(std::move(source)) {}

    [[nodiscard]] std::optional<Value> next(Runtime& runtime) override;
    [[nodiscard]] int depth() const override { return source_->depth() + 1; }

private:
    Evaluator& evaluator_;
    const ForStatement& loop_;
    Activation own_;
    std::shared_ptr<Iterator> source_;
    bool has_begun_ = false;
};

}  // namespace slipstream::jinja
