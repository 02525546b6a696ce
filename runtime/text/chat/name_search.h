// Questions about the names in a part of the tree, answered by walking all of it: Jinja asks them to know whether a
// loop needs its `loop`, and a macro its caller and its spare arguments.
#pragma once

#include <set>
#include <string>

#include "runtime/text/chat/ast.h"

namespace slipstream::jinja {

/// Which of `names` the block reads before (in the order of the source) it sets them, nested blocks included.
[[nodiscard]] std::set<std::string> names_read(const Block& block, std::set<std::string> names);

/// Whether a target of the loop, or of anything inside it, is the variable `name`.
[[nodiscard]] bool assigns(const ForStatement& loop, const std::string& name);

}  // namespace slipstream::jinja
