#include "runtime/text/chat/scope.h"

#include <algorithm>
#include <set>

#include "runtime/text/chat/filters.h"
#include "runtime/text/chat/name_search.h"
#include "runtime/text/chat/symbols.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/tree_walk.h"
#include "runtime/text/chat/value_tests.h"

namespace slipstream::jinja {

namespace {

// First pass over a scope: which names it loads and stores, nested scopes left out but for what they take from it.
class Collector {
public:
    explicit Collector(Symbols& symbols) : symbols_(&symbols) {}

    void collect(const Block& block) {
        for (const Statement& statement : block) std::visit([this](const auto& form) { visit(form); }, statement.form);
    }
    void collect(const Expr& expr) {
        if (const auto* name = std::get_if<NameExpr>(&expr.form)) symbols_->load(name->name);
        for_each_part(expr, [this](const Expr& part) { collect(part); });
    }
    void store(const Target& target) {
        if (target.form == Target::Form::Name) symbols_->store(target.name);
        if (target.form == Target::Form::Attribute) symbols_->load(target.name);
        for (const Target& part : target.parts) store(part);
    }
    void declare(const Target& target) {
        if (target.form == Target::Form::Name) symbols_->declare_parameter(target.name);
        for (const Target& part : target.parts) declare(part);
    }

private:
    void visit(const OutputStatement& output) {
        for (const auto& [text, expr] : output.pieces)
            if (expr) collect(*expr);
    }
    void visit(const SetStatement& statement) {
        collect(*statement.value);
        store(statement.target);
    }
    void visit(const SetBlockStatement& statement) { store(statement.target); }
    void visit(const IfStatement& statement) { branch(statement, 0); }
    void visit(const ForStatement& loop) { collect(*loop.iterable); }
    void visit(const MacroStatement& statement) { symbols_->store(statement.macro.name); }
    void visit(const CallStatement& statement) { collect(*statement.call); }
    void visit(const FilterStatement& statement) { collect(*statement.filter); }
    void visit(const WithStatement& statement) {
        for (const auto& [target, value] : statement.assignments) collect(*value);
    }
    void visit(const GenerationStatement& /*statement*/) {}
    void visit(const BreakStatement& /*statement*/) {}
    void visit(const ContinueStatement& /*statement*/) {}
    void visit(const UnservedStatement& /*statement*/) {}

    // The first branch; then, as one part, the ones after it; then the rest. Each `elif` is an `if` within that part.
    void branch(const IfStatement& statement, std::size_t first) {
        Symbols& before = *symbols_;
        collect(*statement.branches[first].first);
        std::vector<Symbols> parts;
        parts.push_back(before.branch());
        Collector(parts.back()).collect(statement.branches[first].second);
        if (first == 0) {
            parts.push_back(before.branch());
            Collector elifs(parts.back());
            for (std::size_t i = 1; i < statement.branches.size(); ++i) elifs.branch(statement, i);
            parts.push_back(before.branch());
            Collector(parts.back()).collect(statement.otherwise);
        }
        before.join(parts);
    }

    Symbols* symbols_;
};

// Second pass: slots into the tree, scope by scope.
class Resolver {
public:
    Resolver(int& line, std::set<std::string>& reads) : line_(line), reads_(reads) {}

    void run(Template& tree) {
        FunctionSlots function;
        Symbols symbols(nullptr, function);
        Collector(symbols).collect(tree.body);
        resolve(tree.body, symbols, Conditions::Unconditional);
        tree.scope = close(symbols);
        tree.function.n_slots = static_cast<int>(function.slots.size());
    }

private:
    enum class Conditions : std::uint8_t { Unconditional, Conditional };

    Scope close(const Symbols& symbols) {
        Scope scope = symbols.scope();
        for (const SlotLoad& load : scope.loads)
            if (load.from == SlotLoad::From::Context) reads_.insert(load.name);
        return scope;
    }

    // ---- expressions

    void resolve(Expr& expr, const Symbols& symbols, Conditions conditions) {
        line_ = expr.line;
        if (auto* name = std::get_if<NameExpr>(&expr.form)) {
            name->slot = symbols.find(name->name, symbols.function());
        } else if (const auto* filter = std::get_if<FilterExpr>(&expr.form)) {
            if (conditions == Conditions::Unconditional && find_filter(filter->name) == nullptr)
                fail("No filter named '{}'.", filter->name);
        } else if (const auto* test = std::get_if<TestExpr>(&expr.form)) {
            if (conditions == Conditions::Unconditional && find_test(test->name) == nullptr)
                fail("No test named '{}'.", test->name);
        }
        const bool chooses = std::holds_alternative<ConditionalExpr>(expr.form);
        const Conditions inner = chooses ? Conditions::Conditional : conditions;
        for_each_part(expr, [&](Expr& part) { resolve(part, symbols, inner); });
    }

    static void resolve(Target& target, const Symbols& symbols) {
        if (target.form != Target::Form::Tuple) target.slot = symbols.find(target.name, symbols.function());
        for (Target& part : target.parts) resolve(part, symbols);
    }

    // ---- statements

    void resolve(Block& block, const Symbols& symbols, Conditions conditions) {
        for (Statement& statement : block) {
            line_ = statement.line;
            std::visit([&](auto& form) { visit(form, symbols, conditions); }, statement.form);
        }
    }

    void visit(OutputStatement& output, const Symbols& symbols, Conditions conditions) {
        for (auto& [text, expr] : output.pieces)
            if (expr) resolve(*expr, symbols, conditions);
    }
    void visit(SetStatement& statement, const Symbols& symbols, Conditions conditions) {
        resolve(*statement.value, symbols, conditions);
        resolve(statement.target, symbols);
    }
    void visit(IfStatement& statement, const Symbols& symbols, Conditions /*conditions*/) {
        for (auto& [test, block] : statement.branches) {
            resolve(*test, symbols, Conditions::Conditional);
            resolve(block, symbols, Conditions::Conditional);
        }
        resolve(statement.otherwise, symbols, Conditions::Conditional);
    }
    void visit(BreakStatement& /*form*/, const Symbols& /*symbols*/, Conditions /*conditions*/) {}
    void visit(ContinueStatement& /*form*/, const Symbols& /*symbols*/, Conditions /*conditions*/) {}
    void visit(UnservedStatement& /*form*/, const Symbols& /*symbols*/, Conditions /*conditions*/) {}

    void visit(SetBlockStatement& statement, const Symbols& symbols, Conditions /*conditions*/) {
        Symbols inner(&symbols, symbols.function());
        Collector(inner).collect(statement.body);
        if (statement.filter) Collector(inner).collect(*statement.filter);
        resolve(statement.body, inner, Conditions::Unconditional);
        if (statement.filter) resolve(*statement.filter, inner, Conditions::Unconditional);
        resolve(statement.target, symbols);
        statement.scope = close(inner);
    }

    void visit(FilterStatement& statement, const Symbols& symbols, Conditions /*conditions*/) {
        Symbols inner(&symbols, symbols.function());
        Collector(inner).collect(statement.body);
        Collector(inner).collect(*statement.filter);
        resolve(statement.body, inner, Conditions::Unconditional);
        resolve(*statement.filter, inner, Conditions::Unconditional);
        statement.scope = close(inner);
    }

    void visit(WithStatement& statement, const Symbols& symbols, Conditions conditions) {
        Symbols inner(&symbols, symbols.function());
        Collector collector(inner);
        for (const auto& [target, value] : statement.assignments) collector.declare(target);
        collector.collect(statement.body);
        for (auto& [target, value] : statement.assignments) {
            resolve(*value, symbols, conditions);
            resolve(target, inner);
        }
        resolve(statement.body, inner, Conditions::Unconditional);
        statement.scope = close(inner);
    }

    void visit(ForStatement& loop, const Symbols& symbols, Conditions conditions) {
        if (assigns(loop, "loop")) fail("Can't assign to special loop variable in for-loop target");
        resolve(*loop.iterable, symbols, conditions);
        if (loop.test) resolve_test(loop, symbols);
        FunctionSlots own{&symbols.function(), {}};
        FunctionSlots& function = loop.is_recursive ? own : symbols.function();

        Symbols inner(&symbols, function);
        const bool says_loop = loop.is_recursive || !names_read(loop.body, {"loop"}).empty();
        if (says_loop) inner.declare_parameter("loop");
        Collector collector(inner);
        collector.declare(loop.target);
        collector.collect(loop.body);
        resolve(loop.target, inner);
        resolve(loop.body, inner, Conditions::Unconditional);
        if (says_loop) loop.loop_slot = inner.find("loop", function).slot;
        loop.scope = close(inner);

        Symbols otherwise(&symbols, function);
        Collector(otherwise).collect(loop.otherwise);
        resolve(loop.otherwise, otherwise, Conditions::Unconditional);
        loop.else_scope = close(otherwise);
        loop.function.n_slots = static_cast<int>(own.slots.size());
    }

    void resolve_test(ForStatement& loop, const Symbols& symbols) {
        FunctionSlots function{&symbols.function(), {}};
        Symbols inner(&symbols, function);
        Collector collector(inner);
        collector.declare(loop.test_target);
        collector.collect(*loop.test);
        resolve(loop.test_target, inner);
        resolve(*loop.test, inner, Conditions::Unconditional);
        loop.test_scope = close(inner);
        loop.test_function.n_slots = static_cast<int>(function.slots.size());
    }

    // ---- functions

    void visit(MacroStatement& statement, const Symbols& symbols, Conditions /*conditions*/) {
        statement.slot = symbols.find(statement.macro.name, symbols.function());
        resolve_macro(statement.macro, symbols);
    }
    void visit(CallStatement& statement, const Symbols& symbols, Conditions conditions) {
        resolve_macro(statement.caller, symbols);
        resolve(*statement.call, symbols, conditions);
    }
    void visit(GenerationStatement& statement, const Symbols& symbols, Conditions /*conditions*/) {
        resolve_macro(statement.body, symbols);
    }

    void resolve_macro(MacroBody& macro, const Symbols& symbols) {
        FunctionSlots function{&symbols.function(), {}};
        Symbols inner(&symbols, function);
        for (const Parameter& parameter : macro.parameters) inner.declare_parameter(parameter.name);
        declare_specials(macro, inner);
        Collector collector(inner);
        for (const Parameter& parameter : macro.parameters)
            if (parameter.otherwise) collector.collect(*parameter.otherwise);
        collector.collect(macro.body);
        for (Parameter& parameter : macro.parameters) {
            parameter.slot = inner.find(parameter.name, function).slot;
            if (parameter.otherwise) resolve(*parameter.otherwise, inner, Conditions::Unconditional);
        }
        resolve(macro.body, inner, Conditions::Unconditional);
        macro.scope = close(inner);
        macro.function.n_slots = static_cast<int>(function.slots.size());
    }

    // caller, kwargs and varargs are there for macros that read them.
    static void declare_specials(MacroBody& macro, Symbols& inner) {
        const auto declared = [&macro](std::string_view name) {
            const auto& all = macro.parameters;
            return std::find_if(all.begin(), all.end(), [name](const auto& p) { return p.name == name; });
        };
        const std::set<std::string> read = names_read(macro.body, {"caller", "kwargs", "varargs"});
        const auto special = [&](const char* name) {
            if (!read.contains(name)) return -1;
            if (declared(name) == macro.parameters.end()) {
                inner.declare_parameter(name);
                return inner.find(name, inner.function()).slot;
            }
            if (name == std::string_view("caller") && !declared(name)->otherwise)
                fail("the special argument \"caller\" of a macro must be omitted or be given a default");
            return -1;
        };
        macro.caller_slot = special("caller");
        macro.kwargs_slot = special("kwargs");
        macro.varargs_slot = special("varargs");
    }

    int& line_;
    std::set<std::string>& reads_;
};

}  // namespace

void resolve_names(Template& tree, int& line) {
    std::set<std::string> reads;
    Resolver(line, reads).run(tree);
    tree.reads.assign(reads.begin(), reads.end());
}

}  // namespace slipstream::jinja
