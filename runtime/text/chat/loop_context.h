// A loop while it runs: its items, filtered one at a time as the body comes to them, and the object `loop`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/operators.h"

namespace slipstream::jinja {

class LoopContext final : public Object {
public:
    /// `around` is the scope around the loop; the filter is evaluated in it.
    LoopContext(Evaluator& evaluator, const Statement& loop, Ref<Scope> around, Value iterable)
        : evaluator_(&evaluator),
          loop_(loop),
          around_(std::move(around)),
          iterable_(iterable),
          items_(std::move(iterable)),
          is_filtered_(!loop.test) {}

    /// On to the next item, or false at the end.
    [[nodiscard]] bool advance(Runtime& runtime);
    [[nodiscard]] const Value& current() const { return current_; }

    [[nodiscard]] std::string_view type_name() const override { return "LoopContext"; }
    [[nodiscard]] std::string shown() const override { return "<LoopContext>"; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    void release() override;

private:
    [[nodiscard]] bool next(Runtime& runtime, Value& item);
    /// Whether there is another item, which is `after_` then.
    [[nodiscard]] bool peek(Runtime& runtime);
    [[nodiscard]] std::int64_t length(Runtime& runtime);

    Evaluator* evaluator_;  // null once the rendering has ended
    const Statement& loop_;
    Ref<Scope> around_;
    Value iterable_;
    Iterator items_;
    Value before_, current_, after_;
    bool has_after_ = false;
    bool is_filtered_;  // or has no filter
    std::int64_t index0_ = -1;
    std::int64_t length_ = -1;
};

}  // namespace slipstream::jinja
