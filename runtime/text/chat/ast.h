// The syntax tree of a template: the parser makes it, and from then on it is only read. Names of variables are numbers,
// so that scopes compare no texts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/indexed.h"
#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

/// A variable's name, as an index into Template::names.
using NameId = int;

/// `loop`, the first name of all.
inline constexpr NameId kLoop = 0;

enum class ExprKind : std::uint8_t {
    Literal,  // value
    Name,     // name
    List,     // parts
    Tuple,    // parts
    Dict,     // parts: key, value, key, value, ...
    Not,      // parts[0], as the other operators of one operand
    Minus,
    Plus,
    Arithmetic,  // parts[0] operation parts[1]
    And,
    Or,
    Compare,      // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...: each with the one before it
    Concat,       // parts, joined as texts
    Conditional,  // parts: test, yes, no (may be null)
    Attribute,    // parts[0] . value
    Item,         // parts[0] [parts[1]]
    Slice,        // parts[0] [parts[1] : parts[2] : parts[3]], each of which may be null
    Call,         // parts[0] is called with the others
    Filter,       // parts[0] goes through the filter called `value`; null: the text of the block around it
    Test          // parts[0] is what the test called `value` asks
};

/// Jinja computes what is constant when it compiles. A slice that fails is undefined then; a slice that is reached at
/// run time fails.
enum class Folding : std::uint8_t { None, Constant, ConstantSlice };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
    ExprKind kind = ExprKind::Literal;
    Arithmetic operation = Arithmetic::Add;
    Folding folding = Folding::None;  // ConstantSlice: constant, and a slice is part of it
    int line = 0;
    int depth = 1;  // of the tree below, itself included
    NameId name = -1;
    const Builtin* builtin = nullptr;  // of a filter or test that is served
    Value value;
    std::vector<ExprPtr> parts;
    std::vector<Comparison> comparisons;
    std::vector<std::pair<std::string, ExprPtr>> named;  // arguments by name
};

/// What is assigned to: a variable, an attribute of a namespace, or several of them.
struct Target {
    NameId name = -1;
    std::string attribute;  // of the namespace `name`; empty: the variable itself
    std::vector<Target> parts;
    bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
    NameId name;
    ExprPtr otherwise;  // may be null
};

struct MacroBody {
    std::string name;
    std::vector<Parameter> parameters;
    Block body;
};

enum class StatementKind : std::uint8_t {
    Text,        // text
    Print,       // expr
    Set,         // target = expr
    SetBlock,    // target = what body prints, through the filters of expr (may be null)
    If,          // the first of branches whose test holds, or has none
    For,         // body for target in expr, where test (may be null) holds
    Macro,       // target.name = macro
    Filter,      // what body prints through the filters of expr
    Generation,  // body in a scope of its own
    Break,
    Continue,
    Unserved  // text: what needs other templates, escaping and the like: fails when it is reached
};

struct Branch {
    ExprPtr test;
    int line;
    Block body;
};

struct Statement {
    StatementKind kind = StatementKind::Text;
    bool uses_loop = false;  // whether the body says `loop`
    int line = 0;
    std::string text;
    Target target;
    ExprPtr expr, test;
    Block body;
    std::vector<Branch> branches;
    std::unique_ptr<MacroBody> macro;
};

struct Template {
    Block body;
    Indexed<std::string> names;  // of all variables
    std::vector<NameId> reads;   // those asked of the context somewhere
};

}  // namespace slipstream::jinja
