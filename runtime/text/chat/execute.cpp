// Execution of statements, loops and macros.
#include "runtime/text/chat/evaluator.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

class Macro final : public Object {
public:
    Macro(Evaluator& evaluator, const MacroBody& body, std::shared_ptr<Scope> closure)
        : evaluator_(evaluator), body_(body), closure_(std::move(closure)) {}
    [[nodiscard]] std::string_view type_name() const override { return "Macro"; }
    [[nodiscard]] std::string shown() const override {
        return body_.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", repr_of(body_.name));
    }
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& /*runtime*/, std::string_view name) override {
        if (name != "name") return std::nullopt;
        return body_.name.empty() ? Value::none() : Value(body_.name);  // the body of a {% call %} has none
    }
    [[nodiscard]] Value call(Runtime& /*runtime*/, Arguments& arguments) override {
        return evaluator_.call_macro(body_, closure_, arguments);
    }

private:
    Evaluator& evaluator_;
    const MacroBody& body_;
    std::shared_ptr<Scope> closure_;
};

// The object `loop`, which represents a running loop.
class LoopContext final : public Object {
public:
    explicit LoopContext(Value all) : all_(std::move(all)) {}
    [[nodiscard]] const std::vector<Value>& items() const { return all_.items(); }
    [[nodiscard]] std::string_view type_name() const override { return "LoopContext"; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override {
        const std::size_t after = at + 1;
        if (name == "index") return Value(after);
        if (name == "index0") return Value(at);
        if (name == "first") return Value(at == 0);
        if (name == "last") return Value(after == items().size());
        if (name == "length") return Value(items().size());
        if (name == "revindex") return Value(items().size() - at);
        if (name == "revindex0") return Value(items().size() - after);
        if (name == "previtem") return at == 0 ? runtime.undefined("there is no previous item") : items()[at - 1];
        if (name == "nextitem")
            return after < items().size() ? items()[after] : runtime.undefined("there is no next item");
        for (const char* unserved : {"cycle", "changed", "depth", "depth0"})
            if (name == unserved) fail("loop.{} is not served in chat templates", name);
        return std::nullopt;
    }
    void release() override { all_ = Value::list({}); }

    std::size_t at = 0;

private:
    Value all_;  // a sequence
};

// Removes the keyword argument `name` and returns its value; returns Missing if it was not given.
Value take_named(Arguments& arguments, std::string_view name) {
    const auto found = std::ranges::find(arguments.named, name, &std::pair<std::string_view, Value>::first);
    if (found == arguments.named.end()) return {};
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
}

}  // namespace

Evaluator::Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs)
    : runtime_(runtime),
      tree_(tree),
      context_(tree.names.size()),
      globals_(tree.names.size()),
      output_(runtime.builder()),
      out_(&output_) {
    for (std::size_t i = 0; i < tree.names.size(); ++i) {
        if (const Value* value = inputs.find(tree.names[i])) {
            context_[i] = *value;
        } else if (const Builtin* function = find_global(tree.names[i])) {
            context_[i] = function_value(runtime, *function, {});
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
            write_str(runtime_, *out_, evaluate_printed(*statement.expr));
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
        case StatementKind::CallBlock: {
            const Value caller = make_macro(*statement.macro);
            write_str(runtime_, *out_, call(*statement.expr, caller));
            return Flow::Normal;
        }
        case StatementKind::Filter:
            return filter_block(statement);
        case StatementKind::Generation:
            return execute_in_scope(statement.body);
        case StatementKind::Break:
            return Flow::Break;
        case StatementKind::Continue:
            return Flow::Continue;
        case StatementKind::Unserved:
            break;
    }
    fail("the tag {{% {} %}} is not served in chat templates", statement.text);
}

Evaluator::Flow Evaluator::execute_in_scope(const Block& block) {
    std::shared_ptr<Scope> around = open_scope(scope_);
    const Flow flow = execute(block);
    scope_ = std::move(around);
    return flow;
}

Evaluator::Flow Evaluator::capture(const Block& block, Value& text) {
    TextBuilder buffer = runtime_.builder();
    TextBuilder* const around = std::exchange(out_, &buffer);
    const Flow flow = execute(block);
    out_ = around;
    text = runtime_.text(buffer);
    return flow;
}

// Returns the namespace to whose attribute `target` assigns. Throws TemplateError if the variable is no namespace.
Namespace& Evaluator::namespace_of(const Target& target) {
    const Value& owner = variable(target.name);
    auto* space = owner.is(Kind::Object) ? dynamic_cast<Namespace*>(&owner.object()) : nullptr;
    if (space == nullptr) fail("cannot assign attribute on non-namespace object");
    return *space;
}

void Evaluator::assign(const Target& target, Value value) {
    if (target.is_tuple) {
        if (!value.is_iterable()) fail("cannot unpack non-iterable {} object", type_name(value));
        const std::vector<Value> items = to_items(runtime_, value);
        const std::size_t wanted = target.parts.size();
        if (items.size() > wanted) fail("too many values to unpack (expected {})", wanted);
        if (items.size() < wanted) fail("not enough values to unpack (expected {}, got {})", wanted, items.size());
        for (std::size_t i = 0; i < wanted; ++i) assign(target.parts[i], items[i]);
    } else if (!target.attribute.empty()) {
        namespace_of(target).set(runtime_, target.attribute, std::move(value));
    } else if (scope_ != nullptr) {
        scope_->set(runtime_, target.name, std::move(value));
    } else {
        globals_[target.name] = std::move(value);
    }
}

void Evaluator::set(const Statement& statement) {
    if (!statement.target.attribute.empty()) static_cast<void>(namespace_of(statement.target));
    assign(statement.target, evaluate(*statement.expr));
}

Evaluator::Flow Evaluator::set_block(const Statement& statement) {
    Value text;
    std::shared_ptr<Scope> around = open_scope(scope_);
    const Flow flow = capture(statement.body, text);
    runtime_.line = statement.line;
    if (flow == Flow::Normal && statement.expr) {
        captured_ = std::move(text);
        text = evaluate(*statement.expr);
    }
    scope_ = std::move(around);
    // After break or continue, the text is dropped: its variable would belong to the iteration that ends.
    if (flow == Flow::Normal) assign(statement.target, std::move(text));
    return flow;
}

Evaluator::Flow Evaluator::filter_block(const Statement& statement) {
    std::shared_ptr<Scope> around = open_scope(scope_);
    const Flow flow = capture(statement.body, captured_);
    runtime_.line = statement.line;
    if (flow == Flow::Normal) write_str(runtime_, *out_, evaluate(*statement.expr));
    scope_ = std::move(around);
    return flow;
}

Evaluator::Flow Evaluator::choose(const Statement& statement) {
    for (const Branch& branch : statement.branches) {
        runtime_.line = branch.line;
        if (!branch.test || is_true(evaluate(*branch.test))) return execute(branch.body);
    }
    return Flow::Normal;
}

Evaluator::Flow Evaluator::loop(const Statement& statement) {
    Value items = evaluate(*statement.expr);
    if (!items.is_indexable() || statement.test) items = runtime_.list(filtered(statement, to_items(runtime_, items)));
    const auto context = runtime_.make<LoopContext>(std::move(items));
    const std::shared_ptr<Scope> around = scope_;
    std::shared_ptr<Scope> scope;
    bool ran = false;  // an iteration ran to its end, without break or continue
    for (; context->at < context->items().size(); ++context->at) {
        runtime_.spend(1);
        // Each iteration has its own scope. The scope of the last iteration is used again unless a macro keeps it.
        if (scope == nullptr || scope->is_kept)
            scope = runtime_.make<Scope>(around);
        else
            scope->clear();
        scope_ = scope;
        runtime_.line = statement.line;
        assign(statement.target, context->items()[context->at]);
        if (statement.uses_loop) scope->set(runtime_, kLoop, Value(Kind::Object, context));
        const Flow flow = execute(statement.body);
        if (flow == Flow::Break) break;
        ran = ran || flow == Flow::Normal;
    }
    scope_ = around;
    runtime_.line = statement.line;
    if (scope != nullptr && !scope->is_kept) scope->clear();
    if (context.use_count() > 1) runtime_.keep(context);  // a value refers to `loop`, which may then refer to itself
    return ran || statement.otherwise.empty() ? Flow::Normal : execute_in_scope(statement.otherwise);
}

std::vector<Value> Evaluator::filtered(const Statement& loop, std::vector<Value> items) {
    if (!loop.test) return items;
    const Cell held = runtime_.scratch(items.capacity());
    std::shared_ptr<Scope> around = open_scope(scope_);
    std::erase_if(items, [&](const Value& item) {
        scope_->clear();
        assign(loop.target, item);
        return !is_true(evaluate(*loop.test));
    });
    scope_ = std::move(around);
    return items;
}

Value Evaluator::make_macro(const MacroBody& macro) {
    for (std::shared_ptr<Scope> scope = scope_; scope != nullptr && !scope->is_kept; scope = scope->outer()) {
        scope->is_kept = true;
        kept_.push_back(scope);
    }
    return {Kind::Object, runtime_.make<Macro>(*this, macro, scope_)};
}

void Evaluator::bind(const MacroBody& macro, Arguments& arguments) {
    const std::size_t n_parameters = macro.parameters.size();
    const auto name_of = [&](std::size_t i) -> const std::string& { return tree_.names[macro.parameters[i].name]; };
    runtime_.spend(static_cast<std::int64_t>(n_parameters * (arguments.named.size() + 1)));
    std::vector<Value> given(n_parameters);
    for (std::size_t i = 0; i < n_parameters; ++i)
        given[i] = i < arguments.positional.size() ? arguments.positional[i] : take_named(arguments, name_of(i));
    if (macro.takes_caller) {
        Value caller = take_named(arguments, "caller");
        if (caller.is_missing() || caller.is_none()) caller = runtime_.undefined("No caller defined");
        scope_->set(runtime_, kCaller, std::move(caller));
    }
    if (macro.takes_kwargs) {
        Dict rest;
        for (const auto& [name, value] : std::exchange(arguments.named, {})) rest.set(Value(name), value, &runtime_);
        scope_->set(runtime_, kKwargs, runtime_.dict(std::move(rest)));
    }
    if (!arguments.named.empty())
        fail("macro {} takes no keyword argument {}", repr_of(macro.name), repr_of(arguments.named.front().first));
    const auto n_used = static_cast<std::ptrdiff_t>(std::min(n_parameters, arguments.positional.size()));
    if (macro.takes_varargs)
        scope_->set(
            runtime_, kVarargs,
            runtime_.sequence(Kind::Tuple, {arguments.positional.begin() + n_used, arguments.positional.end()}));
    else if (arguments.positional.size() > n_parameters)
        fail("macro {} takes not more than {} argument(s)", repr_of(macro.name), n_parameters);
    for (std::size_t i = 0; i < n_parameters; ++i) {
        const Parameter& parameter = macro.parameters[i];
        if (given[i].is_missing())
            given[i] = parameter.otherwise
                           ? evaluate(*parameter.otherwise)
                           : runtime_.undefined(fmt::format("parameter {} was not provided", repr_of(name_of(i))));
        scope_->set(runtime_, parameter.name, std::move(given[i]));
    }
}

Value Evaluator::call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& closure, Arguments& arguments) {
    const Runtime::Level level(runtime_);
    std::shared_ptr<Scope> around = open_scope(closure);
    bind(macro, arguments);
    Value text;
    static_cast<void>(capture(macro.body, text));
    scope_ = std::move(around);
    return text;
}

}  // namespace slipstream::jinja
