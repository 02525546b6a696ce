// The evaluator's expressions. Each sets the line again once its parts are evaluated: a macro among them has moved it.
#include "kernels/base/check.h"
#include "runtime/text/chat/attributes.h"
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/filters.h"
#include "runtime/text/chat/globals.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/value_tests.h"

namespace slipstream::jinja {

Value Evaluator::evaluate(const Expr& expr) {
    const Runtime::Level level(runtime_);
    runtime_.spend(1);
    runtime_.line = expr.line;
    return std::visit([&](const auto& form) { return value_of(form, expr.line); }, expr.form);
}

Value& Evaluator::variable(SlotRef ref, Activation& activation) const {
    Activation* owner = &activation;
    for (int i = 0; i < ref.up; ++i) owner = owner->outer;
    return owner->slots[static_cast<std::size_t>(ref.slot)];
}

Value Evaluator::from_context(std::string_view name) {
    if (const Value* value = inputs_.find(name)) return *value;
    return find_global(runtime_, name);
}

Value Evaluator::value_of(const LiteralExpr& expr, int /*line*/) {
    return expr.value;
}

Value Evaluator::value_of(const NameExpr& expr, int /*line*/) {
    const Value& value = variable(expr.slot, *current_);
    return value.is_missing() ? Value::undefined({.name = expr.name}) : value;
}

Value Evaluator::value_of(const SequenceExpr& expr, int /*line*/) {
    std::vector<Value> items;
    items.reserve(expr.items.size());
    for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item));
    return expr.kind == Kind::List ? runtime_.list(std::move(items)) : runtime_.tuple(std::move(items));
}

Value Evaluator::value_of(const DictExpr& expr, int line) {
    Dict dict;
    for (const auto& [key_expr, value_expr] : expr.items) {
        Value key = evaluate(*key_expr);
        Value value = evaluate(*value_expr);
        runtime_.line = line;
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        runtime_.spend_for(key);
        dict.set(std::move(key), std::move(value));
    }
    return runtime_.dict(std::move(dict));
}

Value Evaluator::value_of(const UnaryExpr& expr, int line) {
    const Value operand = evaluate(*expr.operand);
    runtime_.line = line;
    if (expr.op == UnaryOp::Not) return Value(!is_true(operand));
    return expr.op == UnaryOp::Minus ? unary_minus(operand) : unary_plus(operand);
}

Value Evaluator::value_of(const ArithmeticExpr& expr, int line) {
    const Value left = evaluate(*expr.left);
    const Value right = evaluate(*expr.right);
    runtime_.line = line;
    return arithmetic(runtime_, expr.op, left, right);
}

Value Evaluator::value_of(const LogicExpr& expr, int /*line*/) {
    Value left = evaluate(*expr.left);
    const bool decided = is_true(left) == (expr.op == LogicOp::Or);
    return decided ? left : evaluate(*expr.right);
}

Value Evaluator::value_of(const CompareExpr& expr, int line) {
    Value left = evaluate(*expr.first);
    for (const auto& [op, operand] : expr.rest) {
        Value right = evaluate(*operand);
        runtime_.line = line;
        bool holds = false;
        if (op == CompareOp::In || op == CompareOp::NotIn) {
            holds = contains(runtime_, right, left) == (op == CompareOp::In);
        } else {
            holds = compare(runtime_, static_cast<Comparison>(op), left, right);
        }
        if (!holds) return Value(false);
        left = std::move(right);
    }
    return Value(true);
}

Value Evaluator::value_of(const ConcatExpr& expr, int line) {
    std::vector<Value> parts;
    for (const ExprPtr& part : expr.parts) parts.push_back(evaluate(*part));
    runtime_.line = line;
    TextBuilder out = runtime_.builder();
    for (const Value& part : parts) {
        runtime_.spend_for(part);
        write_str(out, part);
    }
    return runtime_.text(out.take());
}

Value Evaluator::value_of(const ConditionalExpr& expr, int line) {
    if (is_true(evaluate(*expr.test))) return evaluate(*expr.yes);
    if (expr.no) return evaluate(*expr.no);
    return Value::undefined({.hint = fmt::format("the inline if-expression on line {} evaluated to false and no else "
                                                 "section was defined.",
                                                 line)});
}

Value Evaluator::value_of(const AttributeExpr& expr, int line) {
    const Value object = evaluate(*expr.object);
    runtime_.line = line;
    return get_attribute(runtime_, object, expr.name);
}

Value Evaluator::value_of(const ItemExpr& expr, int line) {
    const Value object = evaluate(*expr.object);
    const Value key = evaluate(*expr.key);
    runtime_.line = line;
    return get_item(runtime_, object, key);
}

Value Evaluator::value_of(const SliceExpr& expr, int line) {
    const auto bound = [this](const ExprPtr& part) { return part ? evaluate(*part) : Value::none(); };
    const Value object = evaluate(*expr.object);
    const Value start = bound(expr.start);
    const Value stop = bound(expr.stop);
    const Value step = bound(expr.step);
    runtime_.line = line;
    return get_slice(runtime_, object, start, stop, step);
}

Value Evaluator::value_of(const CallExpr& expr, int line) {
    return call(*expr.callee, expr.arguments, Value(), line);
}

Value Evaluator::value_of(const FilterExpr& expr, int line) {
    const Value input = expr.input ? evaluate(*expr.input) : captured_text_;
    const Arguments arguments = evaluate_arguments(expr.arguments);
    runtime_.line = line;
    const Filter* filter = find_filter(expr.name);
    if (filter == nullptr) fail("No filter named '{}' found.", expr.name);
    return filter->body(runtime_, input, arguments);
}

Value Evaluator::value_of(const TestExpr& expr, int line) {
    const Value input = evaluate(*expr.input);
    const Arguments arguments = evaluate_arguments(expr.arguments);
    runtime_.line = line;
    const ValueTest* test = find_test(expr.name);
    if (test == nullptr) fail("No test named '{}' found.", expr.name);
    return Value(test->body(runtime_, input, arguments));
}

Value Evaluator::call(const Expr& callee, const CallArguments& arguments, const Value& caller, int line) {
    const Value function = evaluate(callee);
    Arguments given = evaluate_arguments(arguments);
    runtime_.line = line;
    if (!caller.is_missing()) {
        for (const auto& [name, value] : given.named)
            if (name == "caller") fail("a call block hands over its caller; the call must not");
        given.named.emplace_back("caller", caller);
    }
    refuse_undefined(function);
    if (!function.is(Kind::Object) || !function.object().is_callable())
        fail("'{}' object is not callable", type_name(function));
    Value result = function.object().call(runtime_, given);
    runtime_.line = line;
    return result;
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments) {
    Arguments result;
    for (const ExprPtr& value : arguments.positional) result.positional.push_back(evaluate(*value));
    for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, evaluate(*value));
    if (arguments.spread) {
        for (Value& value : to_items(runtime_, evaluate(*arguments.spread)))
            result.positional.push_back(std::move(value));
    }
    if (arguments.spread_named) {
        const Value mapping = evaluate(*arguments.spread_named);
        if (!mapping.is(Kind::Dict)) fail("argument after ** must be a mapping, not {}", type_name(mapping));
        const std::size_t n_explicit = result.named.size();
        runtime_.spend(static_cast<std::int64_t>((n_explicit + 1) * mapping.dict().size()));
        for (const auto& [key, value] : mapping.dict().items()) {
            if (!key.is_text()) fail("keywords must be strings");
            for (std::size_t i = 0; i < n_explicit; ++i)
                if (result.named[i].first == key.view())
                    fail("got multiple values for keyword argument {}", quoted(key.view()));
            result.named.emplace_back(key.view(), value);
        }
    }
    return result;
}

}  // namespace slipstream::jinja
