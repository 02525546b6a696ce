// Runs a template: walks its tree and writes what it prints. An error ends the rendering, so that nothing is put back
// on the way out of one.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/text_builder.h"

namespace slipstream::jinja {

/// What a loop's round, a macro's call or a block opens. A name means the variable of the innermost scope that has it,
/// else what was handed to the template, else a global function. Macros keep the scope that they were made in; scopes
/// hold macros: so those that are kept are emptied when the rendering ends.
class Scope final : public Cell {
public:
    explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

    /// Null where neither this scope nor one around it has the variable.
    [[nodiscard]] const Value* find(NameId name) const {
        for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get())
            for (const auto& [id, value] : scope->variables_)
                if (id == name) return &value;
        return nullptr;
    }
    void set(Runtime& runtime, NameId name, Value value) {
        for (auto& [id, old] : variables_)
            if (id == name) {
                old = std::move(value);
                return;
            }
        if (const std::size_t room = variables_.capacity(); variables_.size() == room) {
            charge(runtime.account(), (room + 4) * sizeof(variables_[0]));
            variables_.reserve(2 * room + 4);
        }
        variables_.emplace_back(name, std::move(value));
    }
    void clear() { variables_.clear(); }
    [[nodiscard]] const std::shared_ptr<Scope>& outer() const { return outer_; }

    bool is_kept = false;  // by a macro

private:
    std::shared_ptr<Scope> outer_;
    std::vector<std::pair<NameId, Value>> variables_;
};

class Evaluator {
public:
    /// `inputs` are the variables handed to the template; they hide the globals. All outlive this.
    Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs);
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;
    ~Evaluator();

    /// Throws TemplateError; the line is the runtime's then.
    [[nodiscard]] MarkedText render();

    /// What a macro prints, called in the scope that it was made in.
    [[nodiscard]] Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& closure, Arguments& arguments);

private:
    enum class Flow : std::uint8_t { Normal, Break, Continue };

    // Statements (execute.cpp).
    Flow execute(const Block& block);
    Flow execute(const Statement& statement);
    Flow execute_in_scope(const Block& block);
    /// With what the block prints as `text`.
    Flow capture(const Block& block, Value& text);
    void set(const Statement& statement);
    Flow set_block(const Statement& statement);
    Flow choose(const Statement& statement);
    Flow loop(const Statement& statement);
    [[nodiscard]] std::vector<Value> filtered(const Statement& loop, std::vector<Value> items);
    Flow filter_block(const Statement& statement);
    void assign(const Target& target, Value value);
    [[nodiscard]] Namespace& namespace_of(const Target& target);
    /// Sets the parameters of a macro in the current scope.
    void bind(const MacroBody& macro, Arguments& arguments);
    [[nodiscard]] Value make_macro(const MacroBody& macro);
    /// Opens a scope and gives back the one before, for scope_ to become again.
    [[nodiscard]] std::shared_ptr<Scope> open_scope(std::shared_ptr<Scope> outer) {
        return std::exchange(scope_, runtime_.make<Scope>(std::move(outer)));
    }

    // Expressions (evaluate.cpp).
    [[nodiscard]] Value evaluate(const Expr& expr);
    /// Of an expression that is printed as a whole, and so computed ahead even if it is undefined.
    [[nodiscard]] Value evaluate_printed(const Expr& expr);
    /// The value that Jinja computes ahead; nothing if the expression is not constant, has no slice, or fails.
    [[nodiscard]] std::optional<Value> folded(const Expr& expr);
    [[nodiscard]] Value part(const Expr& expr, std::size_t i) { return evaluate(*expr.parts[i]); }
    [[nodiscard]] Value part_or_none(const Expr& expr, std::size_t i) {
        return expr.parts[i] ? part(expr, i) : Value::none();
    }
    /// What is bound to the name: Missing where nothing is.
    [[nodiscard]] const Value& variable(NameId name) const;
    [[nodiscard]] std::vector<Value> parts(const Expr& expr);
    [[nodiscard]] Value dict(const Expr& expr);
    [[nodiscard]] Value signed_number(const Expr& expr);
    [[nodiscard]] Value comparison(const Expr& expr);
    [[nodiscard]] Value concat(const Expr& expr);
    [[nodiscard]] Value conditional(const Expr& expr);
    [[nodiscard]] Value call(const Expr& expr);
    [[nodiscard]] Value filter_or_test(const Expr& expr);
    /// The arguments of a call, filter or test: all parts but the first.
    [[nodiscard]] Arguments arguments(const Expr& expr);

    Runtime& runtime_;
    const Template& tree_;
    std::vector<Value> context_;    // by name: what was handed to the template, or a global, or missing
    std::vector<Value> globals_;    // by name: variables of the template outside of all scopes, or missing
    std::shared_ptr<Scope> scope_;  // null outside of all scopes
    std::vector<std::shared_ptr<Scope>> kept_;
    TextBuilder output_;
    TextBuilder* out_;
    bool is_folding_ = false;  // a constant is being computed as Jinja computes it ahead
    Value captured_;           // what a filter without input is applied to
};

}  // namespace slipstream::jinja
