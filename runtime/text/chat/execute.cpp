// The evaluator's statements.
#include "runtime/text/chat/capture.h"
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

Evaluator::Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs)
    : runtime_(runtime),
      tree_(tree),
      inputs_(inputs),
      root_(nullptr, tree.function),
      current_(&root_),
      output_(runtime.limits().max_output_bytes),
      out_(&output_) {}

std::string Evaluator::render() {
    enter(tree_.scope, root_);
    execute(tree_.body);
    return output_.take();
}

Evaluator::Flow Evaluator::execute(const Block& block) {
    const Runtime::Level level(runtime_);
    for (const Statement& statement : block) {
        runtime_.spend(1);
        runtime_.line = statement.line;
        const Flow flow = std::visit([this](const auto& form) { return run(form); }, statement.form);
        if (flow != Flow::Normal) return flow;
    }
    return Flow::Normal;
}

void Evaluator::enter(const Scope& scope, Activation& activation) {
    for (const SlotLoad& load : scope.loads) {
        Value& slot = activation.slots[static_cast<std::size_t>(load.slot)];
        if (load.from == SlotLoad::From::Unset) slot = Value();
        if (load.from == SlotLoad::From::Alias) slot = Value(variable(load.source, activation));
        if (load.from == SlotLoad::From::Context) slot = from_context(load.name);
    }
}

void Evaluator::leave(const Scope& scope) {
    for (const SlotLoad& load : scope.loads) current_->slots[static_cast<std::size_t>(load.slot)] = Value();
}

void Evaluator::print(const Value& value) {
    runtime_.spend_for(value);
    write_str(*out_, value);
}

Evaluator::Flow Evaluator::run(const OutputStatement& output) {
    for (const auto& [text, expr] : output.pieces) {
        if (!expr) {
            out_->append(text);
            continue;
        }
        const Value value = evaluate(*expr);
        runtime_.line = expr->line;
        print(value);
    }
    return Flow::Normal;
}

void Evaluator::check_namespaces(const Target& target) {
    if (target.form == Target::Form::Attribute) {
        const Value& owner = variable(target.slot, *current_);
        if (!owner.is(Kind::Object) || dynamic_cast<const Namespace*>(&owner.object()) == nullptr)
            fail("cannot assign attribute on non-namespace object");
    }
    for (const Target& part : target.parts) check_namespaces(part);
}

void Evaluator::assign(const Target& target, Value value, Activation& activation) {
    switch (target.form) {
        case Target::Form::Name:
            activation.slots[static_cast<std::size_t>(target.slot.slot)] = std::move(value);
            return;
        case Target::Form::Attribute: {
            // Checked before; another part of the same tuple may have replaced the variable since.
            const Value owner = variable(target.slot, activation);
            auto* space = owner.is(Kind::Object) ? dynamic_cast<Namespace*>(&owner.object()) : nullptr;
            if (space == nullptr) fail("cannot assign attribute on non-namespace object");
            space->set(target.attribute, std::move(value));
            return;
        }
        case Target::Form::Tuple:
            break;
    }
    if (!is_iterable(value)) fail("cannot unpack non-iterable {} object", type_name(value));
    const std::vector<Value> items = to_items(runtime_, value);
    const std::size_t wanted = target.parts.size();
    if (items.size() > wanted) fail("too many values to unpack (expected {})", wanted);
    if (items.size() < wanted) fail("not enough values to unpack (expected {}, got {})", wanted, items.size());
    for (std::size_t i = 0; i < wanted; ++i) assign(target.parts[i], items[i], activation);
}

Evaluator::Flow Evaluator::run(const SetStatement& statement) {
    const int line = runtime_.line;
    check_namespaces(statement.target);
    Value value = evaluate(*statement.value);
    runtime_.line = line;
    assign(statement.target, std::move(value), *current_);
    return Flow::Normal;
}

Evaluator::Flow Evaluator::run(const SetBlockStatement& statement) {
    const int line = runtime_.line;
    enter(statement.scope, *current_);
    Capture capture(*this);
    const Flow flow = execute(statement.body);
    Value text = capture.take();
    if (flow != Flow::Normal) return flow;  // the text is lost with the round it belongs to
    if (statement.filter) {
        captured_text_ = std::move(text);
        text = evaluate(*statement.filter);
    }
    runtime_.line = line;
    assign(statement.target, std::move(text), *current_);
    leave(statement.scope);
    return Flow::Normal;
}

Evaluator::Flow Evaluator::run(const IfStatement& statement) {
    for (const auto& [test, block] : statement.branches)
        if (is_true(evaluate(*test))) return execute(block);
    return execute(statement.otherwise);
}

Evaluator::Flow Evaluator::run(const FilterStatement& statement) {
    enter(statement.scope, *current_);
    Capture capture(*this);
    const Flow flow = execute(statement.body);
    Value text = capture.take();
    if (flow != Flow::Normal) return flow;
    captured_text_ = std::move(text);
    const Value filtered = evaluate(*statement.filter);
    print(filtered);
    leave(statement.scope);
    return Flow::Normal;
}

Evaluator::Flow Evaluator::run(const WithStatement& statement) {
    enter(statement.scope, *current_);
    for (const auto& [target, value] : statement.assignments) assign(target, evaluate(*value), *current_);
    const Flow flow = execute(statement.body);
    if (flow == Flow::Normal) leave(statement.scope);
    return flow;
}

Evaluator::Flow Evaluator::run(const BreakStatement& /*statement*/) {
    return Flow::Break;
}
Evaluator::Flow Evaluator::run(const ContinueStatement& /*statement*/) {
    return Flow::Continue;
}

Evaluator::Flow Evaluator::run(const UnservedStatement& statement) {
    fail("the tag {{% {} %}} is not served in chat templates", statement.what);
}

}  // namespace slipstream::jinja
