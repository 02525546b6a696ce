// Runs a template: executes its tree and writes what it prints. An error ends the rendering, so state that an error
// leaves behind (scope_, out_) is not restored.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/text_builder.h"

namespace slipstream::jinja {

/// The variables of one scope: of one iteration of a loop, a call of a macro, or a block. A name means the variable of
/// the innermost scope that has it, else a variable given to the template, else a global function. A macro keeps alive
/// the scope in which it was made, and a scope may hold the macro; to break such cycles, scopes that a macro keeps are
/// emptied when the rendering ends.
class Scope final : public Cell {
public:
    explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

    /// Returns the variable, or null if neither this scope nor an outer one has it.
    [[nodiscard]] const Value* find(NameId name) const {
        for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get())
            for (const auto& [id, value] : scope->variables_)
                if (id == name) return &value;
        return nullptr;
    }
    /// Sets the variable in this scope, not in an outer one. Charges the account if the scope grows; throws
    /// TemplateError if the account has no more.
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

    bool is_kept = false;  // true: a macro keeps this scope alive

private:
    std::shared_ptr<Scope> outer_;
    std::vector<std::pair<NameId, Value>> variables_;
};

class Evaluator {
public:
    /// `inputs` are the variables given to the template; they hide global functions of the same name. `runtime`, `tree`
    /// and `inputs` must outlive the evaluator.
    Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs);
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;
    ~Evaluator();

    /// Executes the template and returns what it printed, with marks. Call once. If it throws TemplateError,
    /// runtime.line is the line of the error.
    [[nodiscard]] MarkedText render();

    /// Executes a macro in a new scope inside `closure`, the scope in which the macro was made, and returns what it
    /// printed. Consumes the keyword arguments. Throws TemplateError if the arguments do not fit.
    [[nodiscard]] Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& closure, Arguments& arguments);

private:
    enum class Flow : std::uint8_t { Normal, Break, Continue };

    // Runs statements until their end, or until a break or continue, and returns which of these it was. The functions
    // for statements are in execute.cpp.
    Flow execute(const Block& block);
    Flow execute(const Statement& statement);
    Flow execute_in_scope(const Block& block);
    /// Executes `block`, and sets `text` to what it printed instead of writing it to the output. Returns whether the
    /// block ended by break or continue.
    Flow capture(const Block& block, Value& text);
    void set(const Statement& statement);
    Flow set_block(const Statement& statement);
    Flow choose(const Statement& statement);
    Flow loop(const Statement& statement);
    [[nodiscard]] std::vector<Value> filtered(const Statement& loop, std::vector<Value> items);
    Flow filter_block(const Statement& statement);
    void assign(const Target& target, Value value);
    [[nodiscard]] Namespace& namespace_of(const Target& target);
    /// Sets the parameters of `macro` in the current scope, from `arguments` or the default values.
    void bind(const MacroBody& macro, Arguments& arguments);
    [[nodiscard]] Value make_macro(const MacroBody& macro);
    /// Opens a scope inside `outer`, makes it the current one, and returns the scope that was current before, which the
    /// caller must restore.
    [[nodiscard]] std::shared_ptr<Scope> open_scope(std::shared_ptr<Scope> outer) {
        return std::exchange(scope_, runtime_.make<Scope>(std::move(outer)));
    }

    // Returns the value of an expression. The functions for expressions are in evaluate.cpp.
    [[nodiscard]] Value evaluate(const Expr& expr);
    /// Evaluates an expression that is printed as a whole. Jinja computes such an expression ahead even if the result
    /// is undefined, so a constant slice that fails prints nothing.
    [[nodiscard]] Value evaluate_printed(const Expr& expr);
    /// Returns the value of an expression that Jinja computes when it compiles the template. Returns nullopt if the
    /// expression is not constant, has no slice, or fails.
    [[nodiscard]] std::optional<Value> folded(const Expr& expr);
    [[nodiscard]] Value part(const Expr& expr, std::size_t i) { return evaluate(*expr.parts[i]); }
    [[nodiscard]] Value part_or_none(const Expr& expr, std::size_t i) {
        return expr.parts[i] ? part(expr, i) : Value::none();
    }
    /// Returns the value of a variable; Missing if it has none.
    [[nodiscard]] const Value& variable(NameId name) const;
    [[nodiscard]] std::vector<Value> parts(const Expr& expr);
    [[nodiscard]] Value dict(const Expr& expr);
    [[nodiscard]] Value signed_number(const Expr& expr);
    [[nodiscard]] Value comparison(const Expr& expr);
    [[nodiscard]] Value concat(const Expr& expr);
    [[nodiscard]] Value conditional(const Expr& expr);
    /// Calls a function or macro and returns its result. `caller` is passed as the keyword argument of that name; if it
    /// is Missing, none is passed.
    [[nodiscard]] Value call(const Expr& expr, const Value& caller = {});
    [[nodiscard]] Value filter_or_test(const Expr& expr);
    /// Evaluates the arguments of a call, filter or test: all parts of `expr` but the first, the keyword arguments,
    /// *args and **kwargs. `caller` is added as the keyword argument of that name unless it is Missing.
    [[nodiscard]] Arguments arguments(const Expr& expr, const Value& caller = {});

    Runtime& runtime_;
    const Template& tree_;
    std::vector<Value> context_;    // [NameId] variable given to the template, or global function; else Missing
    std::vector<Value> globals_;    // [NameId] variable that the template set outside of all scopes; else Missing
    std::shared_ptr<Scope> scope_;  // current scope; null: outside of all scopes
    std::vector<std::shared_ptr<Scope>> kept_;
    TextBuilder output_;
    TextBuilder* out_;
    bool is_folding_ = false;  // computing a constant as Jinja does when it compiles
    Value captured_;           // input of the next filter that has none: the text of a block
};

}  // namespace slipstream::jinja
