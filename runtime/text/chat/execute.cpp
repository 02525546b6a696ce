// The evaluator's statements, loops and macros.
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/loop_context.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

class Evaluator::Inside {
public:
    Inside(Evaluator& evaluator, Ref<Scope> scope)
        : evaluator_(evaluator), before_(std::exchange(evaluator.scope_, std::move(scope))) {}
    /// A new scope in the current one.
    explicit Inside(Evaluator& evaluator) : Inside(evaluator, evaluator.runtime_.make<Scope>(evaluator.scope_)) {}
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { evaluator_.scope_ = std::move(before_); }

private:
    Evaluator& evaluator_;
    Ref<Scope> before_;
};

class Evaluator::Capture {
public:
    explicit Capture(Evaluator& evaluator)
        : evaluator_(evaluator),
          buffer_(evaluator.runtime_.builder()),
          before_(std::exchange(evaluator.out_, &buffer_)) {}
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() { evaluator_.out_ = before_; }
    [[nodiscard]] Value take() { return evaluator_.runtime_.text(buffer_); }

private:
    Evaluator& evaluator_;
    TextBuilder buffer_;
    TextBuilder* before_;
};

namespace {

class Macro final : public Object {
public:
    Macro(Evaluator& evaluator, const MacroBody& body, Ref<Scope> closure)
        : evaluator_(evaluator), body_(body), closure_(std::move(closure)) {}
    [[nodiscard]] std::string_view type_name() const override { return "Macro"; }
    [[nodiscard]] std::string shown() const override {
        return body_.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", quoted(body_.name));
    }
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& /*runtime*/, std::string_view name) override {
        if (name == "name") return body_.name.empty() ? Value::none() : Value(body_.name);
        return std::nullopt;
    }
    [[nodiscard]] Value call(Runtime& /*runtime*/, Arguments& arguments) override {
        return evaluator_.call_macro(body_, closure_, arguments);
    }

private:
    Evaluator& evaluator_;
    const MacroBody& body_;
    Ref<Scope> closure_;
};

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

}  // namespace

Evaluator::Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs)
    : runtime_(runtime),
      tree_(tree),
      context_(tree.names.size()),
      globals_(tree.names.size()),
      output_(runtime.account(), runtime.max_text_bytes()),
      out_(&output_) {
    for (std::size_t i = 0; i < tree.names.size(); ++i) {
        if (const Value* value = inputs.find(tree.names[i])) {
            context_[i] = *value;
        } else if (const Builtin* function = find_global(tree.names[i])) {
            context_[i] = bound_method(runtime, *function, {});
        }
    }
}

Evaluator::~Evaluator() {
    for (const auto& scope : kept_) scope->clear();
}

MarkedText Evaluator::render() {
    execute(tree_.body);
    return output_.take();
}

Evaluator::Flow Evaluator::execute(const Block& block) {
    const Runtime::Level level(runtime_);
    for (const Statement& statement : block) {
        runtime_.spend(1);
        runtime_.line = statement.line;
        const Flow flow = execute(statement);
        if (flow != Flow::Normal) return flow;
    }
    return Flow::Normal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
    switch (statement.kind) {
        case StatementKind::Text:
            runtime_.spend_bytes(statement.text.size());
            out_->append(statement.text);
            return Flow::Normal;
        case StatementKind::Print:
            write_str(runtime_, *out_, evaluate(*statement.expr));
            return Flow::Normal;
        case StatementKind::Set:
            set(statement);
            return Flow::Normal;
        case StatementKind::SetBlock:
            return set_block(statement);
        case StatementKind::If:
            return choose(statement);
        case StatementKind::For:
            return loop(statement);
        case StatementKind::Macro:
            assign(statement.target, make_macro(*statement.macro));
            return Flow::Normal;
        case StatementKind::Call:
            write_str(runtime_, *out_, call(*statement.expr, make_macro(*statement.macro)));
            return Flow::Normal;
        case StatementKind::Filter:
            return filter_block(statement);
        case StatementKind::With:
            return with(statement);
        case StatementKind::Generation: {
            const Inside inside(*this);
            return execute(statement.body);
        }
        case StatementKind::Break:
            return Flow::Break;
        case StatementKind::Continue:
            return Flow::Continue;
        case StatementKind::Unserved:
            break;
    }
    fail("the tag {{% {} %}} is not served in chat templates", statement.text);
}

// The value of a variable that is assigned through: a namespace, or nothing that can be.
Namespace& Evaluator::namespace_of(const Target& target) {
    const Value* owner = scope_.get() != nullptr ? scope_->find(target.name) : nullptr;
    if (owner == nullptr) owner = &globals_[static_cast<std::size_t>(target.name)];
    if (owner->is_missing()) owner = &context_[static_cast<std::size_t>(target.name)];
    auto* space = owner->is(Kind::Object) ? dynamic_cast<Namespace*>(&owner->object()) : nullptr;
    if (space == nullptr) fail("cannot assign attribute on non-namespace object");
    return *space;
}

void Evaluator::assign(const Target& target, Value value) {
    if (target.is_tuple) {
        if (!is_iterable(value)) fail("cannot unpack non-iterable {} object", type_name(value));
        const std::vector<Value> items = to_items(runtime_, value);
        const std::size_t wanted = target.parts.size();
        if (items.size() > wanted) fail("too many values to unpack (expected {})", wanted);
        if (items.size() < wanted) fail("not enough values to unpack (expected {}, got {})", wanted, items.size());
        for (std::size_t i = 0; i < wanted; ++i) assign(target.parts[i], items[i]);
    } else if (!target.attribute.empty()) {
        namespace_of(target).set(runtime_, target.attribute, std::move(value));
    } else if (scope_.get() != nullptr) {
        scope_->set(runtime_, target.name, std::move(value));
    } else {
        globals_[static_cast<std::size_t>(target.name)] = std::move(value);
    }
}

void Evaluator::set(const Statement& statement) {
    if (!statement.target.attribute.empty()) static_cast<void>(namespace_of(statement.target));
    assign(statement.target, evaluate(*statement.expr));
}

Evaluator::Flow Evaluator::set_block(const Statement& statement) {
    Value text;
    {
        const Inside inside(*this);
        Capture capture(*this);
        const Flow flow = execute(statement.body);
        if (flow != Flow::Normal) return flow;  // the text is lost with the round it belongs to
        text = capture.take();
        runtime_.line = statement.line;
        if (statement.expr) {
            captured_ = std::move(text);
            text = evaluate(*statement.expr);
        }
    }
    assign(statement.target, std::move(text));
    return Flow::Normal;
}

Evaluator::Flow Evaluator::filter_block(const Statement& statement) {
    const Inside inside(*this);
    Value text;
    {
        Capture capture(*this);
        const Flow flow = execute(statement.body);
        if (flow != Flow::Normal) return flow;
        text = capture.take();
    }
    runtime_.line = statement.line;
    captured_ = std::move(text);
    write_str(runtime_, *out_, evaluate(*statement.expr));
    return Flow::Normal;
}

Evaluator::Flow Evaluator::choose(const Statement& statement) {
    for (const Branch& branch : statement.branches) {
        runtime_.line = branch.line;
        if (is_true(evaluate(*branch.test))) return execute(branch.body);
    }
    return execute(statement.otherwise);
}

Evaluator::Flow Evaluator::with(const Statement& statement) {
    const Ref<Scope> scope = runtime_.make<Scope>(scope_);
    std::vector<Value> values;  // in the scope around: Jinja lets none see another
    for (const auto& [target, value] : statement.assignments) values.push_back(evaluate(*value));
    const Inside inside(*this, scope);
    for (std::size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, std::move(values[i]));
    return execute(statement.body);
}

Evaluator::Flow Evaluator::loop(const Statement& statement) {
    const Value iterable = evaluate(*statement.expr);
    const Ref<LoopContext> context = runtime_.make<LoopContext>(*this, statement, scope_, iterable);
    bool any_round_ended = false;  // one that `break` or `continue` cut short does not count: so Jinja has it
    Ref<Scope> scope;
    while (context->advance(runtime_)) {
        // A scope for each round; the same one again where no macro keeps it.
        if (scope.get() == nullptr || scope->is_kept)
            scope = runtime_.make<Scope>(scope_);
        else
            scope->clear();
        const Inside inside(*this, scope);
        runtime_.line = statement.line;
        assign(statement.target, context->current());
        if (statement.uses_loop) scope->set(runtime_, 0, Value(Kind::Object, context.get()));
        const Flow flow = execute(statement.body);
        if (flow == Flow::Break) break;
        any_round_ended = any_round_ended || flow == Flow::Normal;
    }
    runtime_.line = statement.line;
    if (scope.get() != nullptr && !scope->is_kept) scope->clear();
    if (context->is_shared()) runtime_.keep(*context);  // somebody has `loop`, which may come to hold itself
    if (any_round_ended || statement.otherwise.empty()) return Flow::Normal;
    const Inside inside(*this);
    return execute(statement.otherwise);
}

bool Evaluator::passes(const Statement& loop, const Ref<Scope>& around, const Value& item) {
    const Inside inside(*this, runtime_.make<Scope>(around));
    assign(loop.target, item);
    return is_true(evaluate(*loop.test));
}

Value Evaluator::make_macro(const MacroBody& macro) {
    for (Scope* scope = scope_.get(); scope != nullptr && !scope->is_kept; scope = scope->outer().get()) {
        scope->is_kept = true;
        kept_.emplace_back(scope);
    }
    return runtime_.make_object<Macro>(*this, macro, scope_);
}

void Evaluator::bind(const MacroBody& macro, Arguments& arguments) {
    const std::size_t n_parameters = macro.parameters.size();
    runtime_.spend(static_cast<std::int64_t>(n_parameters * (arguments.named.size() + 1)));
    std::vector<Value> given(n_parameters);
    for (std::size_t i = 0; i < n_parameters; ++i)
        given[i] = i < arguments.positional.size()
                       ? arguments.positional[i]
                       : take_named(arguments, tree_.names[static_cast<std::size_t>(macro.parameters[i].name)]);
    if (macro.uses_caller) {
        Value caller = take_named(arguments, "caller");
        if (caller.is_missing() || caller.is_none()) caller = runtime_.undefined({.hint = "No caller defined"});
        scope_->set(runtime_, 1, std::move(caller));
    }
    if (macro.uses_kwargs) {
        Dict rest;
        for (auto& [name, value] : arguments.named) rest.set(runtime_.text(std::string(name)), std::move(value));
        scope_->set(runtime_, 2, runtime_.dict(std::move(rest)));
    } else if (!arguments.named.empty()) {
        fail("macro {} takes no keyword argument {}", quoted(macro.name), quoted(arguments.named.front().first));
    }
    if (macro.uses_varargs) {
        const std::size_t first = std::min(n_parameters, arguments.positional.size());
        scope_->set(runtime_, 3,
                    runtime_.sequence(Kind::Tuple, {arguments.positional.begin() + static_cast<std::ptrdiff_t>(first),
                                                    arguments.positional.end()}));
    } else if (arguments.positional.size() > n_parameters) {
        fail("macro {} takes not more than {} argument(s)", quoted(macro.name), n_parameters);
    }
    for (std::size_t i = 0; i < n_parameters; ++i) {
        const Parameter& parameter = macro.parameters[i];
        const std::string& name = tree_.names[static_cast<std::size_t>(parameter.name)];
        if (given[i].is_missing())
            given[i] = parameter.otherwise
                           ? evaluate(*parameter.otherwise)
                           : runtime_.undefined(
                                 {.hint = fmt::format("parameter {} was not provided", quoted(name)), .name = name});
        scope_->set(runtime_, parameter.name, std::move(given[i]));
    }
}

Value Evaluator::call_macro(const MacroBody& macro, const Ref<Scope>& closure, Arguments& arguments) {
    const Runtime::Level level(runtime_);
    const Inside inside(*this, runtime_.make<Scope>(closure));
    bind(macro, arguments);
    Capture capture(*this);
    execute(macro.body);
    return capture.take();
}

}  // namespace slipstream::jinja
