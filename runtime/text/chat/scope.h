// Where each variable of a template lives, decided before it runs, as Jinja's compiler decides it
// (jinja2/idtracking.py, compiler.py, 3.1). Templates can tell: a name that a loop's body sets is a variable of that
// body, begun anew as a copy of the outer one in each round; a name that only a branch of an `if` sets falls back to
// what the caller handed in; a macro sees the variables around its definition as they are when it is called. Scopes are
// the template, loops (body, else, filter), macros, call blocks, and the blocks of filter, set, with and generation;
// not `if`. Slots belong to functions: scopes of one function share its slots, and two scopes at the same depth that
// use the same name share one slot.
#pragma once

#include "runtime/text/chat/ast.h"

namespace slipstream::jinja {

/// Fills in slots and scopes. Refuses what Jinja refuses when it compiles: filters and tests that do not exist (outside
/// of conditions), and assigning to `loop` in a loop. Throws TemplateError; `line` is kept at what is being read.
void resolve_names(Template& tree, int& line);

}  // namespace slipstream::jinja
