// Variables at run time. A scope is what a loop's round, a macro's call or a block opens; a name means the variable of
// the innermost scope that has it, else what was handed to the template, else a global function. Macros keep the scope
// that they were made in; scopes hold macros: so those that are kept are emptied when the rendering ends.
#pragma once

#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Scope final : public Cell {
public:
    explicit Scope(Ref<Scope> outer) : outer_(std::move(outer)) {}

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
        charge(runtime.account(), 2 * sizeof(variables_[0]));
        variables_.emplace_back(name, std::move(value));
    }
    void clear() { variables_.clear(); }
    [[nodiscard]] const Ref<Scope>& outer() const { return outer_; }

    bool is_kept = false;  // by a macro

private:
    Ref<Scope> outer_;
    std::vector<std::pair<NameId, Value>> variables_;
};

}  // namespace slipstream::jinja
