#include "runtime/text/chat/name_search.h"

#include "runtime/text/chat/tree_walk.h"

namespace slipstream::jinja {

namespace {

// Walks in the order of the fields of Jinja's nodes (jinja2/nodes.py), which decides what is read before it is set.
class Search {
public:
    /// Looks for reads of `names`, and for an assignment to `target` if there is one to look for.
    explicit Search(std::set<std::string> names, std::string target = {})
        : names_(std::move(names)), target_(std::move(target)) {}

    void walk(const Block& block) {
        for (const Statement& statement : block) {
            if (names_.empty() && target_.empty()) return;
            std::visit([this](const auto& form) { walk_form(form); }, statement.form);
        }
    }
    void walk_form(const ForStatement& loop) {
        set(loop.target);
        walk(*loop.iterable);
        walk(loop.body);
        walk(loop.otherwise);
        if (loop.test) walk(*loop.test);
    }
    [[nodiscard]] const std::set<std::string>& read() const { return read_; }
    [[nodiscard]] bool assigns_target() const { return assigns_target_; }

private:
    void walk(const Expr& expr) {
        if (const auto* name = std::get_if<NameExpr>(&expr.form); name != nullptr && names_.contains(name->name))
            read_.insert(name->name);
        for_each_part(expr, [this](const Expr& part) { walk(part); });
    }

    enum class Binding : std::uint8_t { Assigned, Parameter };
    void set(const std::string& name, Binding binding) {
        assigns_target_ = assigns_target_ || (binding == Binding::Assigned && name == target_);
        if (!read_.contains(name)) names_.erase(name);
    }
    void set(const Target& target, Binding binding = Binding::Assigned) {
        if (target.form == Target::Form::Name) set(target.name, binding);
        for (const Target& part : target.parts) set(part, binding);
    }

    void walk_macro(const MacroBody& macro) {
        for (const Parameter& parameter : macro.parameters) set(parameter.name, Binding::Parameter);
        for (const Parameter& parameter : macro.parameters)
            if (parameter.otherwise) walk(*parameter.otherwise);
        walk(macro.body);
    }

    void walk_form(const OutputStatement& output) {
        for (const auto& [text, expr] : output.pieces)
            if (expr) walk(*expr);
    }
    void walk_form(const SetStatement& statement) {
        set(statement.target);
        walk(*statement.value);
    }
    void walk_form(const SetBlockStatement& statement) {
        set(statement.target);
        if (statement.filter) walk(*statement.filter);
        walk(statement.body);
    }
    void walk_form(const IfStatement& statement) {
        for (const auto& [test, block] : statement.branches) {
            walk(*test);
            walk(block);
        }
        walk(statement.otherwise);
    }
    void walk_form(const MacroStatement& statement) { walk_macro(statement.macro); }
    void walk_form(const CallStatement& statement) {
        walk(*statement.call);
        walk_macro(statement.caller);
    }
    void walk_form(const FilterStatement& statement) {
        walk(statement.body);
        walk(*statement.filter);
    }
    void walk_form(const WithStatement& statement) {
        for (const auto& [target, value] : statement.assignments) set(target, Binding::Parameter);
        for (const auto& [target, value] : statement.assignments) walk(*value);
        walk(statement.body);
    }
    void walk_form(const GenerationStatement& statement) { walk(statement.body.body); }
    void walk_form(const BreakStatement& /*statement*/) {}
    void walk_form(const ContinueStatement& /*statement*/) {}
    void walk_form(const UnservedStatement& /*statement*/) {}

    std::set<std::string> names_;
    std::set<std::string> read_;
    std::string target_;
    bool assigns_target_ = false;
};

}  // namespace

std::set<std::string> names_read(const Block& block, std::set<std::string> names) {
    Search search(std::move(names));
    search.walk(block);
    return search.read();
}

bool assigns(const ForStatement& loop, const std::string& name) {
    Search search({}, name);
    search.walk_form(loop);
    return search.assigns_target();
}

}  // namespace slipstream::jinja
