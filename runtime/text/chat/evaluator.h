// Runs a template: walks its tree with the variables in slots and writes what it prints. Each function of the template
// (a macro, the body of a call block, a recursive loop) runs in an Activation, its slots and the activation around its
// definition. Values may refer to activations (a macro that was stored, a loop's filter), so those that are captured
// are kept until the rendering ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/text_builder.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class LoopContext;

struct Activation {
    Activation(Activation* around, const FunctionLayout& layout)
        : outer(around), slots(static_cast<std::size_t>(layout.n_slots)) {}

    Activation* outer;
    std::vector<Value> slots;  // missing where nothing is set
    bool is_captured = false;
};

class Evaluator {
public:
    /// `inputs` are the variables handed to the template; they hide the globals. All outlive this.
    Evaluator(Runtime& runtime, const Template& tree, const Dict& inputs);
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;

    /// Throws TemplateError; the line is the runtime's then.
    [[nodiscard]] std::string render();

    // For the objects that run parts of the template.
    [[nodiscard]] Value call_macro(const MacroBody& macro, Activation& closure, Arguments& arguments);
    /// The text of a recursive loop over `iterable`; `depth` counts from 0.
    [[nodiscard]] Value call_loop(const ForStatement& loop, Activation& closure, const Value& iterable, int depth);
    /// Whether a loop's filter lets an item pass; `own` are the slots of the filter. The item becomes what the target
    /// makes of it.
    [[nodiscard]] bool passes(const ForStatement& loop, Activation& own, Value& item);
    /// What a scope sets when it is entered.
    void enter(const Scope& scope, Activation& activation);
    [[nodiscard]] Runtime& runtime() { return runtime_; }

private:
    enum class Flow : std::uint8_t { Normal, Break, Continue };
    /// Makes another activation the current one, while it lives.
    class Call;
    /// Sends the output to a buffer of its own, while it lives.
    class Capture;

    // Statements (execute.cpp).
    Flow execute(const Block& block);
    Flow run(const OutputStatement& output);
    Flow run(const SetStatement& statement);
    Flow run(const SetBlockStatement& statement);
    Flow run(const IfStatement& statement);
    Flow run(const ForStatement& loop);
    Flow run(const MacroStatement& statement);
    Flow run(const CallStatement& statement);
    Flow run(const FilterStatement& statement);
    Flow run(const WithStatement& statement);
    Flow run(const GenerationStatement& statement);
    Flow run(const BreakStatement& statement);
    Flow run(const ContinueStatement& statement);
    Flow run(const UnservedStatement& statement);
    void leave(const Scope& scope);
    void assign(const Target& target, Value value, Activation& activation);
    void check_namespaces(const Target& target);
    void print(const Value& value);

    // Loops and functions (call.cpp).
    Flow run_loop(const ForStatement& loop, const Value& iterable, int depth);
    Flow run_body(const ForStatement& loop, const Value& iterable, int depth, bool& any_round_ended);
    [[nodiscard]] Value make_macro(const MacroBody& macro);
    /// The current activation, from now on kept until the rendering ends.
    [[nodiscard]] Activation& captured();
    /// What `yield target` gives: the values of the target's variables, tuples for tuples.
    [[nodiscard]] Value rebuilt(const Target& target, Activation& activation);

    // Expressions (evaluate.cpp).
    [[nodiscard]] Value evaluate(const Expr& expr);
    [[nodiscard]] Value value_of(const LiteralExpr& expr, int line);
    [[nodiscard]] Value value_of(const NameExpr& expr, int line);
    [[nodiscard]] Value value_of(const SequenceExpr& expr, int line);
    [[nodiscard]] Value value_of(const DictExpr& expr, int line);
    [[nodiscard]] Value value_of(const UnaryExpr& expr, int line);
    [[nodiscard]] Value value_of(const ArithmeticExpr& expr, int line);
    [[nodiscard]] Value value_of(const LogicExpr& expr, int line);
    [[nodiscard]] Value value_of(const CompareExpr& expr, int line);
    [[nodiscard]] Value value_of(const ConcatExpr& expr, int line);
    [[nodiscard]] Value value_of(const ConditionalExpr& expr, int line);
    [[nodiscard]] Value value_of(const AttributeExpr& expr, int line);
    [[nodiscard]] Value value_of(const ItemExpr& expr, int line);
    [[nodiscard]] Value value_of(const SliceExpr& expr, int line);
    [[nodiscard]] Value value_of(const CallExpr& expr, int line);
    [[nodiscard]] Value value_of(const FilterExpr& expr, int line);
    [[nodiscard]] Value value_of(const TestExpr& expr, int line);
    [[nodiscard]] Value call(const Expr& callee, const CallArguments& arguments, const Value& caller, int line);
    [[nodiscard]] Arguments evaluate_arguments(const CallArguments& arguments);
    [[nodiscard]] Value& variable(SlotRef ref, Activation& activation) const;
    [[nodiscard]] Value from_context(std::string_view name);

    Runtime& runtime_;
    const Template& tree_;
    const Dict& inputs_;
    Activation root_;
    Activation* current_;
    TextBuilder output_;
    TextBuilder* out_;
    Value captured_text_;  // what a filter without input is applied to
    std::vector<std::unique_ptr<Activation>> kept_;
};

}  // namespace slipstream::jinja
