// The syntax tree of a template. The parser makes it, the scope analysis writes into it where each variable lives
// (SlotRef, Scope, FunctionLayout), and from then on it is only read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

/// A variable: `up` functions outwards, its slot there.
struct SlotRef {
    int up = 0;
    int slot = -1;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// ---- expressions

struct LiteralExpr {
    Value value;
};
struct NameExpr {
    std::string name;
    SlotRef slot;
};
struct SequenceExpr {
    Kind kind;  // List or Tuple
    std::vector<ExprPtr> items;
};
struct DictExpr {
    std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
enum class UnaryOp : std::uint8_t { Not, Minus, Plus };
struct UnaryExpr {
    UnaryOp op;
    ExprPtr operand;
};
struct ArithmeticExpr {
    Arithmetic op;
    ExprPtr left, right;
};
enum class LogicOp : std::uint8_t { And, Or };
struct LogicExpr {
    LogicOp op;
    ExprPtr left, right;
};
enum class CompareOp : std::uint8_t { Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, In, NotIn };
struct CompareExpr {
    ExprPtr first;
    std::vector<std::pair<CompareOp, ExprPtr>> rest;  // a < b < c: each compared with the one before it
};
struct ConcatExpr {
    std::vector<ExprPtr> parts;  // a ~ b ~ c
};
struct ConditionalExpr {
    ExprPtr test, yes;
    ExprPtr no;  // may be null
};
struct AttributeExpr {
    ExprPtr object;
    std::string name;
};
struct ItemExpr {
    ExprPtr object, key;
};
struct SliceExpr {
    ExprPtr object;
    ExprPtr start, stop, step;  // each may be null
};
struct CallArguments {
    std::vector<ExprPtr> positional;
    std::vector<std::pair<std::string, ExprPtr>> named;
    ExprPtr spread, spread_named;  // *args, **kwargs; may be null
};
struct CallExpr {
    ExprPtr callee;
    CallArguments arguments;
};
struct FilterExpr {
    ExprPtr input;  // null: the text that the block around it has captured
    std::string name;
    CallArguments arguments;
};
struct TestExpr {
    ExprPtr input;
    std::string name;
    CallArguments arguments;
};

struct Expr {
    using Form =
        std::variant<LiteralExpr, NameExpr, SequenceExpr, DictExpr, UnaryExpr, ArithmeticExpr, LogicExpr, CompareExpr,
                     ConcatExpr, ConditionalExpr, AttributeExpr, ItemExpr, SliceExpr, CallExpr, FilterExpr, TestExpr>;
    int line = 0;
    int depth = 1;  // of the tree below, itself included
    Form form;
};

// ---- what is assigned to

struct Target {
    enum class Form : std::uint8_t { Name, Attribute, Tuple };
    Form form = Form::Name;
    std::string name;  // of the variable, or of the namespace
    std::string attribute;
    SlotRef slot;
    std::vector<Target> parts;  // of a tuple
};

// ---- scopes and functions

/// What a scope does to its own slots when it is entered; when it is left they are unset again.
struct SlotLoad {
    enum class From : std::uint8_t { Parameter, Unset, Alias, Context };
    From from = From::Unset;
    int slot = -1;
    SlotRef source;    // Alias: a variable of an outer scope, copied
    std::string name;  // Context: what was handed to the template, and globals
};
struct Scope {
    std::vector<SlotLoad> loads;
};

struct Statement;
using Block = std::vector<Statement>;

/// What is run with slots of its own: a macro, the body of a call block, a recursive loop, the filter of a loop.
struct FunctionLayout {
    int n_slots = 0;
};

struct Parameter {
    std::string name;
    int slot = -1;
    ExprPtr otherwise;  // may be null
};

struct MacroBody {
    std::string name;  // empty: of a call block
    std::vector<Parameter> parameters;
    int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // where the body asks for them
    FunctionLayout function;
    Scope scope;
    Block body;
};

// ---- statements

struct OutputStatement {
    std::vector<std::pair<std::string, ExprPtr>> pieces;  // text, or (where it is not null) an expression
};
struct SetStatement {
    Target target;
    ExprPtr value;
};
struct SetBlockStatement {
    Target target;
    ExprPtr filter;  // may be null
    Scope scope;
    Block body;
};
struct IfStatement {
    std::vector<std::pair<ExprPtr, Block>> branches;
    Block otherwise;
};
struct ForStatement {
    Target target;
    ExprPtr iterable;
    ExprPtr test;        // may be null
    Target test_target;  // the same as target, in the slots of the test's own function
    FunctionLayout test_function;
    Scope test_scope;
    bool is_recursive = false;
    FunctionLayout function;  // where recursive
    int loop_slot = -1;       // where the body says `loop`
    Scope scope;
    Block body;
    Scope else_scope;
    Block otherwise;
    bool has_else = false;
};
struct MacroStatement {
    SlotRef slot;
    MacroBody macro;
};
struct CallStatement {
    ExprPtr call;
    MacroBody caller;
};
struct FilterStatement {
    ExprPtr filter;
    Scope scope;
    Block body;
};
struct WithStatement {
    std::vector<std::pair<Target, ExprPtr>> assignments;
    Scope scope;
    Block body;
};
/// {% generation %}: marks what the model wrote; rendered as its body, which has slots of its own as a macro has.
struct GenerationStatement {
    MacroBody body;
};
struct BreakStatement {};
struct ContinueStatement {};
/// What needs other templates (include, extends, import, block) or escaping (autoescape): fails when it is reached.
struct UnservedStatement {
    std::string what;
};

struct Statement {
    using Form = std::variant<OutputStatement, SetStatement, SetBlockStatement, IfStatement, ForStatement,
                              MacroStatement, CallStatement, FilterStatement, WithStatement, GenerationStatement,
                              BreakStatement, ContinueStatement, UnservedStatement>;
    int line = 0;
    Form form;
};

struct Template {
    Block body;
    FunctionLayout function;
    Scope scope;
    std::vector<std::string> reads;  // names asked of the context somewhere, sorted
};

}  // namespace slipstream::jinja
