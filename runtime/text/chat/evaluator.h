// Runs a template: walks its tree and writes what it prints.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/marked_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/scope.h"

namespace slipstream::jinja {

class Evaluator {
public:
    /// `inputs` are the variables handed to the template; they hide the globals. All outlive this.
    Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs);
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;
    ~Evaluator();

    /// Throws TemplateError; the line is the runtime's then.
    [[nodiscard]] MarkedText render();

    // For macros and loops.
    [[nodiscard]] Value call_macro(const MacroBody& macro, const Ref<Scope>& closure, Arguments& arguments);
    /// Whether a loop's filter lets an item pass; `around` is the scope around the loop.
    [[nodiscard]] bool passes(const Statement& loop, const Ref<Scope>& around, const Value& item);

private:
    enum class Flow : std::uint8_t { Normal, Break, Continue };
    /// Opens a scope, while it lives.
    class Inside;
    /// Sends the output to a buffer of its own, while it lives.
    class Capture;

    // Statements (execute.cpp).
    Flow execute(const Block& block);
    Flow execute(const Statement& statement);
    void set(const Statement& statement);
    Flow set_block(const Statement& statement);
    Flow choose(const Statement& statement);
    Flow loop(const Statement& statement);
    Flow filter_block(const Statement& statement);
    Flow with(const Statement& statement);
    void assign(const Target& target, Value value);
    [[nodiscard]] Namespace& namespace_of(const Target& target);
    /// Sets the parameters of a macro in the current scope.
    void bind(const MacroBody& macro, Arguments& arguments);
    [[nodiscard]] Value make_macro(const MacroBody& macro);

    // Expressions (evaluate.cpp).
    [[nodiscard]] Value evaluate(const Expr& expr);
    [[nodiscard]] Value part(const Expr& expr, std::size_t i) { return evaluate(*expr.parts[i]); }
    [[nodiscard]] Value part_or_none(const Expr& expr, std::size_t i) {
        return expr.parts[i] ? part(expr, i) : Value::none();
    }
    [[nodiscard]] Value variable(const Expr& expr);
    [[nodiscard]] std::vector<Value> parts(const Expr& expr);
    [[nodiscard]] Value dict(const Expr& expr);
    [[nodiscard]] Value comparison(const Expr& expr);
    [[nodiscard]] Value concat(const Expr& expr);
    [[nodiscard]] Value conditional(const Expr& expr);
    [[nodiscard]] Value call(const Expr& expr, const Value& caller);
    [[nodiscard]] Value call_value(const Expr& expr, const Value& function, const Value& caller);
    [[nodiscard]] Value filter(const Expr& expr);
    [[nodiscard]] Value test(const Expr& expr);
    /// The arguments of a call, filter or test: all parts but the first.
    [[nodiscard]] Arguments arguments(const Expr& expr);

    Runtime& runtime_;
    const Template& tree_;
    std::vector<Value> context_;  // by name: what was handed to the template, or a global, or missing
    std::vector<Value> globals_;  // by name: variables of the template outside of all scopes, or missing
    Ref<Scope> scope_;            // null outside of all scopes
    std::vector<Ref<Scope>> kept_;
    TextBuilder output_;
    TextBuilder* out_;
    Value captured_;  // what a filter without input is applied to
};

}  // namespace slipstream::jinja
