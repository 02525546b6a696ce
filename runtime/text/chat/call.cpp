// The evaluator's loops and functions.
#include "kernels/base/check.h"
#include "runtime/text/chat/capture.h"
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/functions.h"
#include "runtime/text/chat/loop_context.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

// Takes the named argument out, if it is there.
Value take_named(Arguments& arguments, std::string_view name) {
    for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
        if (it->first != name) continue;
        Value value = std::move(it->second);
        arguments.named.erase(it);
        return value;
    }
    return {};
}

// Puts arguments into the slots of a macro's parameters (jinja2/runtime.py, Macro.__call__).
void bind_macro(Runtime& runtime, const MacroBody& macro, Arguments& arguments, Activation& activation) {
    const auto slot = [&activation](int index) -> Value& { return activation.slots[static_cast<std::size_t>(index)]; };
    const std::size_t n_parameters = macro.parameters.size();
    // Each parameter is looked for among the named arguments.
    runtime.spend(static_cast<std::int64_t>(n_parameters * arguments.named.size()));
    for (std::size_t i = 0; i < n_parameters; ++i) {
        const bool is_positional = i < arguments.positional.size();
        slot(macro.parameters[i].slot) =
            is_positional ? arguments.positional[i] : take_named(arguments, macro.parameters[i].name);
    }
    if (macro.caller_slot >= 0) {
        Value caller = take_named(arguments, "caller");
        if (caller.is_missing() || caller.is_none()) caller = Value::undefined({.hint = "No caller defined"});
        slot(macro.caller_slot) = std::move(caller);
    }
    if (macro.kwargs_slot >= 0) {
        Dict rest;
        for (auto& [name, value] : arguments.named) rest.set(name, std::move(value));
        slot(macro.kwargs_slot) = runtime.dict(std::move(rest));
    } else if (!arguments.named.empty()) {
        const std::string& name = arguments.named.front().first;
        if (name == "caller")
            fail("macro {} was invoked with two values for the special caller argument. This is most likely a bug.",
                 quoted(macro.name));
        fail("macro {} takes no keyword argument {}", quoted(macro.name), quoted(name));
    }
    if (macro.varargs_slot >= 0) {
        const auto first = std::min(n_parameters, arguments.positional.size());
        slot(macro.varargs_slot) = runtime.tuple(
            {arguments.positional.begin() + static_cast<std::ptrdiff_t>(first), arguments.positional.end()});
    } else if (arguments.positional.size() > n_parameters) {
        fail("macro {} takes not more than {} argument(s)", quoted(macro.name), n_parameters);
    }
}

}  // namespace

Activation& Evaluator::captured() {
    current_->is_captured = true;
    return *current_;
}

Value Evaluator::make_macro(const MacroBody& macro) {
    return Value(runtime_.make<Macro>(*this, macro, captured()));
}

Evaluator::Flow Evaluator::run(const MacroStatement& statement) {
    variable(statement.slot, *current_) = make_macro(statement.macro);
    return Flow::Normal;
}

Evaluator::Flow Evaluator::run(const CallStatement& statement) {
    const auto& expr = std::get<CallExpr>(statement.call->form);
    print(call(*expr.callee, expr.arguments, make_macro(statement.caller), statement.call->line));
    return Flow::Normal;
}

Evaluator::Flow Evaluator::run(const GenerationStatement& statement) {
    Arguments none;
    print(call_macro(statement.body, captured(), none));
    return Flow::Normal;
}

Value Evaluator::call_macro(const MacroBody& macro, Activation& closure, Arguments& arguments) {
    const Runtime::Level level(runtime_);
    runtime_.spend(1 + macro.function.n_slots);
    auto activation = std::make_unique<Activation>(&closure, macro.function);
    bind_macro(runtime_, macro, arguments, *activation);
    const Call call(*this, *activation);
    enter(macro.scope, *activation);
    for (const Parameter& parameter : macro.parameters) {
        Value& slot = activation->slots[static_cast<std::size_t>(parameter.slot)];
        if (!slot.is_missing()) continue;
        Value value =
            parameter.otherwise
                ? evaluate(*parameter.otherwise)
                : Value::undefined({.hint = fmt::format("parameter {} was not provided", quoted(parameter.name)),
                                    .name = parameter.name});
        activation->slots[static_cast<std::size_t>(parameter.slot)] = std::move(value);
    }
    Capture capture(*this);
    execute(macro.body);
    Value text = capture.take();
    if (activation->is_captured) kept_.push_back(std::move(activation));
    return text;
}

Evaluator::Flow Evaluator::run(const ForStatement& loop) {
    const Value iterable = evaluate(*loop.iterable);
    runtime_.line = loop.iterable->line;
    if (!loop.is_recursive) return run_loop(loop, iterable, 0);
    print(call_loop(loop, captured(), iterable, 0));
    return Flow::Normal;
}

Value Evaluator::call_loop(const ForStatement& loop, Activation& closure, const Value& iterable, int depth) {
    const Runtime::Level level(runtime_);
    runtime_.spend(1 + loop.function.n_slots);
    auto activation = std::make_unique<Activation>(&closure, loop.function);
    const Call call(*this, *activation);
    Capture capture(*this);
    run_loop(loop, iterable, depth);
    Value text = capture.take();
    if (activation->is_captured) kept_.push_back(std::move(activation));
    return text;
}

Evaluator::Flow Evaluator::run_loop(const ForStatement& loop, const Value& iterable, int depth) {
    // A round that `break` or `continue` cut short does not count: so Jinja has it.
    bool any_round_ended = false;
    const Flow flow = run_body(loop, iterable, depth, any_round_ended);
    leave(loop.scope);
    CHECK(flow == Flow::Normal, "a loop ends its own breaks");
    if (!loop.has_else || any_round_ended) return Flow::Normal;
    enter(loop.else_scope, *current_);
    const Flow else_flow = execute(loop.otherwise);
    if (else_flow == Flow::Normal) leave(loop.else_scope);
    return else_flow;
}

Evaluator::Flow Evaluator::run_body(const ForStatement& loop, const Value& iterable, int depth, bool& any_round_ended) {
    std::shared_ptr<Iterator> iterator = iterate(runtime_, iterable);
    Value looped = iterable;
    if (loop.test) {
        // The filter sees the variables around the loop; in a recursive one those around its function.
        Activation& closure = loop.is_recursive ? *current_->outer : captured();
        iterator = runtime_.make<LoopFilter>(*this, loop, closure, std::move(iterator));
        looped = Value(std::static_pointer_cast<Object>(iterator));
    }
    std::shared_ptr<LoopContext> context;
    if (loop.loop_slot >= 0) {
        LoopContext::Recursion recursion;
        if (loop.is_recursive) recursion = {this, &loop, current_->outer};
        context = runtime_.make_mutable<LoopContext>(looped, iterator, recursion, depth);
    }
    const int line = runtime_.line;
    while (true) {
        runtime_.spend(1);
        std::optional<Value> item = context ? context->advance(runtime_) : iterator->next(runtime_);
        if (!item) break;
        runtime_.line = line;
        assign(loop.target, std::move(*item), *current_);
        if (context)
            current_->slots[static_cast<std::size_t>(loop.loop_slot)] =
                Value(std::static_pointer_cast<Object>(context));
        enter(loop.scope, *current_);
        const Flow flow = execute(loop.body);
        if (flow == Flow::Break) break;
        any_round_ended = any_round_ended || flow == Flow::Normal;
    }
    if (context) {
        current_->slots[static_cast<std::size_t>(loop.loop_slot)] = Value();
        runtime_.forget(context);
    }
    return Flow::Normal;
}

bool Evaluator::passes(const ForStatement& loop, Activation& own, Value& item) {
    const Call call(*this, own);
    assign(loop.test_target, item, own);
    const bool result = is_true(evaluate(*loop.test));
    if (loop.test_target.form == Target::Form::Tuple && result) item = rebuilt(loop.test_target, own);
    return result;
}

Value Evaluator::rebuilt(const Target& target, Activation& activation) {
    if (target.form == Target::Form::Name) return activation.slots[static_cast<std::size_t>(target.slot.slot)];
    std::vector<Value> items;
    for (const Target& part : target.parts) items.push_back(rebuilt(part, activation));
    return runtime_.tuple(std::move(items));
}

// ---- the objects

void Macro::write_repr(TextBuilder& out, int /*level*/) const {
    out.append(body_.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", quoted(body_.name)));
}

std::optional<Value> Macro::attribute(Runtime& runtime, std::string_view name) {
    if (name == "name") return body_.name.empty() ? Value::none() : Value(body_.name);
    if (name == "caller") return Value(body_.caller_slot >= 0);
    if (name == "catch_kwargs") return Value(body_.kwargs_slot >= 0);
    if (name == "catch_varargs") return Value(body_.varargs_slot >= 0);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const Parameter& parameter : body_.parameters) names.emplace_back(parameter.name);
    return runtime.tuple(std::move(names));
}

Value Macro::call(Runtime& /*runtime*/, Arguments& arguments) {
    return evaluator_.call_macro(body_, closure_, arguments);
}

std::optional<Value> LoopFilter::next(Runtime& runtime) {
    const Runtime::Level level(runtime);
    if (!has_begun_) evaluator_.enter(loop_.test_scope, own_);
    has_begun_ = true;
    while (auto item = source_->next(runtime))
        if (evaluator_.passes(loop_, own_, *item)) return item;
    return std::nullopt;
}

}  // namespace slipstream::jinja
