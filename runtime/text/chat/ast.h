// The syntax tree of a template. The parser builds it; after that it is only read. Variables are identified by numbers,
// so that scopes do not compare strings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

/// A variable of a template, as an index into Template::names.
using NameId = int;

/// Numbers of the variables `loop`, `caller`, `kwargs` and `varargs`; the parser must give them out first. A macro that
/// reads one of the last three gets it as a parameter: `caller` is the macro of the {% call %} that calls it, `kwargs`
/// and `varargs` are the arguments beyond its parameters.
inline constexpr NameId kLoop = 0, kCaller = 1, kKwargs = 2, kVarargs = 3;

enum class ExprKind : std::uint8_t {
    Literal,  // value
    Name,     // name
    List,     // parts
    Tuple,    // parts
    Dict,     // parts: key, value, key, value, ...
    Not,      // parts[0], as for Minus and Plus
    Minus,
    Plus,
    Arithmetic,  // parts[0] operation parts[1]
    And,
    Or,
    Compare,      // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...: each operand with the one before it
    Concat,       // parts, concatenated as texts
    Conditional,  // parts: condition, value if true, value if false (may be null)
    Attribute,    // parts[0] . value
    Item,         // parts[0] [parts[1]]
    Slice,        // parts[0] [parts[1] : parts[2] : parts[3]]; parts 1 to 3 may be null
    Call,         // parts[0] is called with the other parts
    Filter,       // filter `value` on parts[0]; null: on the text of the block around the expression
    Test          // test `value` on parts[0]
};

/// Whether Jinja computes an expression when it compiles the template. A slice that fails is undefined if it is
/// computed then, and an error if it is computed at run time, so ConstantSlice marks constant expressions that contain
/// a slice.
enum class Folding : std::uint8_t { None, Constant, ConstantSlice };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
    ExprKind kind = ExprKind::Literal;
    Arithmetic operation = Arithmetic::Add;
    Folding folding = Folding::None;
    int line = 0;
    int depth = 1;  // height of the subtree, in nodes, including this one
    NameId name = -1;
    const Builtin* builtin = nullptr;  // the function of a Filter or Test; null if there is no such function
    Value value;
    std::vector<ExprPtr> parts;
    std::vector<Comparison> comparisons;
    std::vector<std::pair<std::string, ExprPtr>> named;  // keyword arguments
    ExprPtr star, star_star;                             // *expr and **expr after the arguments; null: none
};

/// The left-hand side of an assignment: a variable, an attribute of a namespace, or a tuple of such targets.
struct Target {
    NameId name = -1;
    std::string attribute;  // attribute of the namespace `name`; empty: the variable itself
    std::vector<Target> parts;
    bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
    NameId name;
    ExprPtr otherwise;  // default value; null: none
};

struct MacroBody {
    std::string name;
    std::vector<Parameter> parameters;
    bool takes_caller = false;   // the body reads `caller`, which each call sets
    bool takes_kwargs = false;   // the body reads `kwargs`, the keyword arguments beyond its parameters
    bool takes_varargs = false;  // the body reads `varargs`, the positional arguments beyond its parameters
    Block body;
};

enum class StatementKind : std::uint8_t {
    Text,        // text
    Print,       // expr
    Set,         // target = expr
    SetBlock,    // target = what body prints, passed through the filters of expr (may be null)
    If,          // the first of branches whose test is true or null
    For,         // body for target in expr if test (may be null) is true; otherwise if no body was run to its end
    Macro,       // target.name = macro
    CallBlock,   // prints the call `expr`, which gets `macro` as its keyword argument caller
    Filter,      // what body prints, passed through the filters of expr
    Generation,  // body, in its own scope
    Break,
    Continue,
    Unserved  // text: tag that is not supported (other templates, escaping, ...); fails when it is executed
};

struct Branch {
    ExprPtr test;
    int line;
    Block body;
};

struct Statement {
    StatementKind kind = StatementKind::Text;
    bool uses_loop = false;  // the body reads `loop`
    int line = 0;
    std::string text;
    Target target;
    ExprPtr expr, test;
    Block body, otherwise;
    std::vector<Branch> branches;
    std::unique_ptr<MacroBody> macro;
};

struct Template {
    Block body;
    std::vector<std::string> names;            // of all variables
    std::vector<NameId> reads;                 // variables that some expression reads from the context
    std::set<std::string, std::less<>> words;  // names of attributes, and texts without white space, in the source
};

}  // namespace slipstream::jinja
