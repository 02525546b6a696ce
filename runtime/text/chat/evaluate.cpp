// Evaluation of expressions.
#include <algorithm>
#include <iterator>

#include "kernels/base/check.h"
#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

// Limits the arguments that one *args or **kwargs of a call may add, so that a template cannot make calls of unbounded
// cost.
constexpr std::size_t kMaxSpreadArguments = 1000;

bool holds_undefined(const Value& value) {
    if (value.is(Kind::Dict))
        return std::ranges::any_of(value.dict().items(), [](const auto& item) { return holds_undefined(item.second); });
    if (value.is_sequence()) return std::ranges::any_of(value.items(), holds_undefined);
    return value.is_undefined();
}

}  // namespace

std::optional<Value> Evaluator::folded(const Expr& expr) {
    if (expr.folding != Folding::ConstantSlice || is_folding_) return std::nullopt;
    is_folding_ = true;
    try {
        Value value = evaluate(expr);
        is_folding_ = false;
        return value;
    } catch (const TemplateError&) {  // the expression is computed at run time instead, by the rules that hold then
        is_folding_ = false;
        return std::nullopt;
    }
}

Value Evaluator::evaluate_printed(const Expr& expr) {
    if (auto value = folded(expr)) return std::move(*value);
    return evaluate(expr);
}

Value Evaluator::evaluate(const Expr& expr) {
    if (auto value = folded(expr); value && !holds_undefined(*value)) return std::move(*value);
    const Runtime::Level level(runtime_);
    runtime_.spend(1);
    switch (expr.kind) {
        case ExprKind::Literal:
            return expr.value;
        case ExprKind::Name: {
            const Value& value = variable(expr.name);
            if (!value.is_missing()) return value;
            return runtime_.undefined({Undefined::Of::Variable, tree_.names[expr.name]});
        }
        case ExprKind::List:
            return runtime_.list(parts(expr));
        case ExprKind::Tuple:
            return runtime_.sequence(Kind::Tuple, parts(expr));
        case ExprKind::Dict:
            return dict(expr);
        case ExprKind::Not:
            return Value(!is_true(part(expr, 0)));
        case ExprKind::Minus:
        case ExprKind::Plus:
            return signed_number(expr);
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
            const Value step = part_or_none(expr, 3);
            if (is_folding_ && !object.is_undefined() && !can_slice(object, start, stop, step))
                return runtime_.undefined({Undefined::Of::Element, "slice", type_name(object)});
            return get_slice(runtime_, object, start, stop, step);
        }
        case ExprKind::Call:
            return call(expr);
        case ExprKind::Filter:
        case ExprKind::Test:
            return filter_or_test(expr);
    }
    CHECK(false, "an expression of kind {}", static_cast<int>(expr.kind));
}

const Value& Evaluator::variable(NameId name) const {
    if (scope_ != nullptr)
        if (const Value* value = scope_->find(name)) return *value;
    const Value& global = globals_[name];
    return global.is_missing() ? context_[name] : global;
}

std::vector<Value> Evaluator::parts(const Expr& expr) {
    const Cell held = runtime_.scratch(expr.parts.size());
    std::vector<Value> items;
    items.reserve(expr.parts.size());
    for (const ExprPtr& item : expr.parts) items.push_back(evaluate(*item));
    return items;
}

Value Evaluator::dict(const Expr& expr) {
    const Cell held = runtime_.scratch<Dict::Item>(expr.parts.size());
    Dict dict;
    for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
        Value key = part(expr, i);
        dict.set(std::move(key), part(expr, i + 1), &runtime_);
    }
    return runtime_.dict(std::move(dict));
}

Value Evaluator::signed_number(const Expr& expr) {
    const Value value = part(expr, 0);
    const bool is_minus = expr.kind == ExprKind::Minus;
    refuse_undefined(value);
    if (!value.is_number()) fail("bad operand type for unary {}: '{}'", is_minus ? '-' : '+', type_name(value));
    if (value.is(Kind::Float)) return is_minus ? Value(-value.real()) : value;
    return calculate(is_minus ? Arithmetic::Subtract : Arithmetic::Add, Value(0), value);
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
    return runtime_.undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Arguments Evaluator::arguments(const Expr& expr, const Value& caller) {
    Arguments made;
    made.positional.reserve(expr.parts.size() - 1);
    for (std::size_t i = 1; i < expr.parts.size(); ++i) made.positional.push_back(part(expr, i));
    for (const auto& [name, value] : expr.named) made.named.emplace_back(name, evaluate(*value));
    if (!caller.is_missing()) made.named.emplace_back("caller", caller);
    if (expr.star) {
        const Value more = evaluate(*expr.star);
        if (!more.is_iterable()) fail("argument after * must be an iterable, not {}", type_name(more));
        std::vector<Value> items = to_items(runtime_, more);
        if (items.size() > kMaxSpreadArguments) fail("* with more than {} arguments", kMaxSpreadArguments);
        std::ranges::move(items, std::back_inserter(made.positional));
    }
    if (expr.star_star) {
        made.star_star = evaluate(*expr.star_star);
        if (!made.star_star.is(Kind::Dict))
            fail("argument after ** must be a mapping, not {}", type_name(made.star_star));
        const std::vector<Dict::Item>& items = made.star_star.dict().items();
        if (items.size() > kMaxSpreadArguments) fail("** with more than {} arguments", kMaxSpreadArguments);
        runtime_.spend(static_cast<std::int64_t>((items.size() + 1) * (made.named.size() + 1)));
        const std::size_t n_named = made.named.size();
        for (const auto& [key, value] : items) {
            if (!key.is_text()) fail("keywords must be strings");
            const std::string_view name = key.view();
            for (std::size_t i = 0; i < n_named; ++i)
                if (made.named[i].first == name) fail("got multiple values for keyword argument {}", repr_of(name));
            made.named.emplace_back(name, value);
        }
    }
    return made;
}

Value Evaluator::call(const Expr& expr, const Value& caller) {
    const Cell held = runtime_.scratch(2 * (expr.parts.size() + expr.named.size()));  // for the arguments
    const Expr& callee = *expr.parts[0];
    Value function;
    if (callee.kind == ExprKind::Attribute) {  // a method call, without making a value for the method
        const Value object = part(callee, 0);
        refuse_undefined(object);
        const Builtin* method = find_method(object, callee.value.view());
        if (method != nullptr) return call_builtin(runtime_, *method, object, arguments(expr, caller));
        function = get_attribute(runtime_, object, callee.value);
    } else {
        function = evaluate(callee);
    }
    refuse_undefined(function);
    Arguments made = arguments(expr, caller);
    if (!function.is(Kind::Object)) fail("'{}' object is not callable", type_name(function));
    const int line = runtime_.line;
    Value result = function.object().call(runtime_, made);
    runtime_.line = line;
    return result;
}

Value Evaluator::filter_or_test(const Expr& expr) {
    const Value input = expr.parts[0] ? part(expr, 0) : std::exchange(captured_, Value());
    if (expr.builtin == nullptr)
        fail("No {} named {}.", expr.kind == ExprKind::Filter ? "filter" : "test", repr_of(expr.value.view()));
    return call_builtin(runtime_, *expr.builtin, input, arguments(expr));
}

}  // namespace slipstream::jinja
