// The evaluator's expressions.
#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

Value Evaluator::evaluate(const Expr& expr) {
    const Runtime::Level level(runtime_);
    runtime_.spend(1);
    switch (expr.kind) {
        case ExprKind::Literal:
            return expr.value;
        case ExprKind::Name:
            return variable(expr);
        case ExprKind::List:
            return runtime_.list(parts(expr));
        case ExprKind::Tuple:
            return runtime_.sequence(Kind::Tuple, parts(expr));
        case ExprKind::Dict:
            return dict(expr);
        case ExprKind::Not:
            return Value(!is_true(part(expr, 0)));
        case ExprKind::Minus:
            return unary_minus(part(expr, 0));
        case ExprKind::Plus:
            return unary_plus(part(expr, 0));
        case ExprKind::Arithmetic: {
            const Value left = part(expr, 0);
            return arithmetic(runtime_, expr.operation, left, part(expr, 1));
        }
        case ExprKind::And: {
            Value left = part(expr, 0);
            return is_true(left) ? part(expr, 1) : left;
        }
        case ExprKind::Or: {
            Value left = part(expr, 0);
            return is_true(left) ? left : part(expr, 1);
        }
        case ExprKind::Compare:
            return comparison(expr);
        case ExprKind::Concat:
            return concat(expr);
        case ExprKind::Conditional:
            return conditional(expr);
        case ExprKind::Attribute:
            return get_attribute(runtime_, part(expr, 0), expr.value);
        case ExprKind::Item: {
            const Value object = part(expr, 0);
            return get_item(runtime_, object, part(expr, 1));
        }
        case ExprKind::Slice: {
            const Value object = part(expr, 0);
            const Value start = part_or_none(expr, 1);
            const Value stop = part_or_none(expr, 2);
            return get_slice(runtime_, object, start, stop, part_or_none(expr, 3));
        }
        case ExprKind::Call:
            return call(expr, {});
        case ExprKind::Filter:
            return filter(expr);
        case ExprKind::Test:
            return test(expr);
        case ExprKind::Spread:
            break;
    }
    fail("* stands among the arguments of a call");
}

Value Evaluator::variable(const Expr& expr) {
    const auto name = static_cast<std::size_t>(expr.name);
    if (scope_.get() != nullptr)
        if (const Value* value = scope_->find(expr.name)) return *value;
    if (!globals_[name].is_missing()) return globals_[name];
    if (!context_[name].is_missing()) return context_[name];
    return runtime_.undefined({.name = tree_.names[name]});
}

std::vector<Value> Evaluator::parts(const Expr& expr) {
    std::vector<Value> items;
    items.reserve(expr.parts.size());
    for (const ExprPtr& item : expr.parts) items.push_back(evaluate(*item));
    return items;
}

Value Evaluator::dict(const Expr& expr) {
    Dict dict;
    for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
        Value key = part(expr, i);
        Value value = part(expr, i + 1);
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        dict.set(std::move(key), std::move(value));
    }
    return runtime_.dict(std::move(dict));
}

Value Evaluator::comparison(const Expr& expr) {
    Value left = part(expr, 0);
    for (std::size_t i = 0; i < expr.comparisons.size(); ++i) {
        Value right = part(expr, i + 1);
        if (!compare(runtime_, expr.comparisons[i], left, right)) return Value(false);
        left = std::move(right);
    }
    return Value(true);
}

Value Evaluator::concat(const Expr& expr) {
    const std::vector<Value> values = parts(expr);
    TextBuilder out = runtime_.builder();
    for (const Value& value : values) write_str(runtime_, out, value);
    return runtime_.text(out);
}

Value Evaluator::conditional(const Expr& expr) {
    if (is_true(part(expr, 0))) return part(expr, 1);
    if (expr.parts[2]) return part(expr, 2);
    return runtime_.undefined({.hint = "the inline if-expression evaluated to false and no else section was defined."});
}

Arguments Evaluator::arguments(const Expr& expr) {
    Arguments made;
    made.positional.reserve(expr.parts.size() - 1);
    for (std::size_t i = 1; i < expr.parts.size(); ++i) {
        if (expr.parts[i]->kind != ExprKind::Spread) {
            made.positional.push_back(part(expr, i));
            continue;
        }
        for (Value& value : to_items(runtime_, part(*expr.parts[i], 0))) made.positional.push_back(std::move(value));
    }
    for (const auto& [name, value] : expr.named) {
        if (!name.empty()) {
            made.named.emplace_back(name, evaluate(*value));
            continue;
        }
        made.spread = evaluate(*value);  // keeps its keys alive
        if (!made.spread.is(Kind::Dict)) fail("argument after ** must be a mapping, not {}", type_name(made.spread));
        for (const auto& [key, item] : made.spread.dict().items()) {
            if (!key.is_text()) fail("keywords must be strings");
            made.named.emplace_back(key.view(), item);
        }
    }
    return made;
}

Value Evaluator::call(const Expr& expr, const Value& caller) {
    const Expr& callee = *expr.parts[0];
    if (callee.kind == ExprKind::Attribute) {  // a method, without a value for it in between
        const Value object = part(callee, 0);
        refuse_undefined(object);
        const Builtin* method = find_method(object, callee.value.view());
        if (method != nullptr) return call_builtin(runtime_, *method, object, arguments(expr));
        const Value function = get_attribute(runtime_, object, callee.value);
        return call_value(expr, function, caller);
    }
    return call_value(expr, evaluate(callee), caller);
}

Value Evaluator::call_value(const Expr& expr, const Value& function, const Value& caller) {
    refuse_undefined(function);
    Arguments made = arguments(expr);
    if (!caller.is_missing()) made.named.emplace_back("caller", caller);
    if (!function.is(Kind::Object)) fail("'{}' object is not callable", type_name(function));
    const int line = runtime_.line;
    Value result = function.object().call(runtime_, made);
    runtime_.line = line;
    return result;
}

Value Evaluator::filter(const Expr& expr) {
    const Value input = expr.parts[0] ? part(expr, 0) : std::exchange(captured_, Value());
    if (expr.builtin == nullptr) fail("No filter named {}.", quoted(expr.value.view()));
    return call_builtin(runtime_, *expr.builtin, input, arguments(expr));
}

Value Evaluator::test(const Expr& expr) {
    const Value input = part(expr, 0);
    if (expr.builtin == nullptr) fail("No test named {}.", quoted(expr.value.view()));
    return call_builtin(runtime_, *expr.builtin, input, arguments(expr));
}

}  // namespace slipstream::jinja
