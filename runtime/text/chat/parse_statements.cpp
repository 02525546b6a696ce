// The parser's statements: text, print tags, block tags.
#include <fmt/ranges.h>

#include <array>

#include "runtime/text/chat/parser.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

struct Unserved {
    std::string_view tag;
    std::string_view end;  // the tag that ends its body; empty where it has none
};
constexpr std::size_t kMaxParameters = 255;
constexpr std::array<Unserved, 6> kUnserved = {{{"autoescape", "endautoescape"},
                                                {"block", "endblock"},
                                                {"extends", ""},
                                                {"from", ""},
                                                {"import", ""},
                                                {"include", ""}}};
enum Special : std::size_t { Loop, Caller, Kwargs, Varargs };  // by NameId

}  // namespace

Template Parser::parse() {
    result_.body = statements_until({});
    for (std::size_t i = 0; i < result_.names.size(); ++i) {
        const bool is_declared =
            std::find(declared_.begin(), declared_.end(), static_cast<NameId>(i)) != declared_.end();
        if (is_read_[i] || (is_read_by_macro_[i] && !is_declared)) result_.reads.push_back(static_cast<NameId>(i));
    }
    return std::move(result_);
}

Block Parser::statements_until(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Block block;
    ends_.emplace_back(ends);
    const auto at_end_tag = [&] {
        return std::any_of(ends.begin(), ends.end(), [this](auto end) { return is_name(end); });
    };
    while (!is(TokenType::End)) {
        if (is(TokenType::BlockBegin)) {
            take();
            if (at_end_tag()) {
                ends_.pop_back();
                return block;
            }
            block.push_back(statement());
            expect(TokenType::BlockEnd);
        } else if (is(TokenType::Data)) {
            Statement& text = block.emplace_back();
            text.line = current().line;
            text.text = take().text;
        } else {
            expect(TokenType::VariableBegin);
            Statement& print = block.emplace_back();
            print.kind = StatementKind::Print;
            print.expr = tuple(Conditional::Allowed);
            print.line = print.expr->line;
            expect(TokenType::VariableEnd);
        }
    }
    if (ends.size() > 0) fail_at_end();
    ends_.pop_back();
    return block;
}

std::string Parser::body(Block& block, std::initializer_list<std::string_view> ends) {
    skip_operator(":");  // as Python's
    expect(TokenType::BlockEnd);
    block = statements_until(ends);
    return take().text;
}

Statement Parser::statement() {
    if (!is(TokenType::Name)) fail("tag name expected");
    using Parse = void (Parser::*)(Statement&);
    static constexpr std::array<std::pair<std::string_view, Parse>, 9> kTags = {
        {{"call", &Parser::call_statement},
         {"filter", &Parser::filter_statement},
         {"for", &Parser::for_statement},
         {"generation", &Parser::generation_statement},
         {"if", &Parser::if_statement},
         {"macro", &Parser::macro_statement},
         {"print", &Parser::print_statement},
         {"set", &Parser::set_statement},
         {"with", &Parser::with_statement}}};
    Statement result;
    result.line = current().line;
    const std::string name = current().text;
    open_tags_.push_back(name);
    const auto tag =
        std::find_if(kTags.begin(), kTags.end(), [&name](const auto& entry) { return entry.first == name; });
    const auto unserved =
        std::find_if(kUnserved.begin(), kUnserved.end(), [&name](const Unserved& entry) { return entry.tag == name; });
    if (tag != kTags.end()) {
        take();
        (this->*tag->second)(result);
    } else if (name == "break" || name == "continue") {
        if (loops_ == 0) fail("'{}' outside loop", name);
        take();
        result.kind = name == "break" ? StatementKind::Break : StatementKind::Continue;
    } else if (unserved != kUnserved.end()) {
        unserved_statement(result, unserved->end);
    } else {
        open_tags_.pop_back();
        unknown_tag(name);
    }
    open_tags_.pop_back();
    return result;
}

void Parser::print_statement(Statement& statement) {
    statement.kind = StatementKind::Print;
    statement.expr = make(ExprKind::Concat, current().line);
    while (!is(TokenType::BlockEnd)) {
        if (!statement.expr->parts.empty()) expect_operator(",");
        statement.expr->parts.push_back(expression());
    }
    statement.expr = measured(std::move(statement.expr));
}

void Parser::set_statement(Statement& statement) {
    statement.target = target(TargetForm::NamesAndAttributes);
    if (skip_operator("=")) {
        statement.kind = StatementKind::Set;
        statement.expr = tuple(Conditional::Allowed);
    } else {
        statement.kind = StatementKind::SetBlock;
        while (skip_operator("|")) statement.expr = filter(std::move(statement.expr));
        const Declared declared(*this);
        body(statement.body, {"endset"});
    }
    declare(statement.target);
}

void Parser::if_statement(Statement& statement) {
    statement.kind = StatementKind::If;
    int line = statement.line;
    while (true) {
        Branch branch{nullptr, line, {}};
        branch.test = tuple(Conditional::Forbidden);
        const std::string end = body(branch.body, {"elif", "else", "endif"});
        statement.branches.push_back(std::move(branch));
        line = current().line;
        if (end == "elif") continue;
        if (end == "else") body(statement.otherwise, {"endif"});
        return;
    }
}

void Parser::for_statement(Statement& statement) {
    statement.kind = StatementKind::For;
    statement.target = target(TargetForm::Names, "in");
    expect_name("in");
    statement.expr = tuple(Conditional::Forbidden, "recursive");
    const Declared declared(*this);
    declare(statement.target);
    if (skip_name("if")) statement.test = expression();
    if (is_name("recursive")) fail("recursive loops are not served in chat templates");
    const int n_loop = n_special_[Loop];
    declared_.push_back(Loop);
    ++loops_;
    const std::string end = body(statement.body, {"endfor", "else"});
    --loops_;
    statement.uses_loop = n_special_[Loop] != n_loop;
    if (end == "else") body(statement.otherwise, {"endfor"});
}

ExprPtr Parser::macro(MacroBody& macro) {
    const int outer_loops = std::exchange(loops_, 0);
    const auto before = n_special_;
    const bool is_call = macro.name.empty();
    ++macros_;
    const Declared declared(*this);
    if (!is_call || is_operator("(")) signature(macro);
    ExprPtr callee;
    if (is_call) callee = expression();  // stands between the signature and the body
    if (!is_call) declared_.insert(declared_.end(), {Caller, Kwargs, Varargs});
    body(macro.body, {is_call ? "endcall" : "endmacro"});
    --macros_;
    loops_ = outer_loops;
    macro.uses_caller = n_special_[Caller] != before[Caller];
    macro.uses_kwargs = n_special_[Kwargs] != before[Kwargs];
    macro.uses_varargs = n_special_[Varargs] != before[Varargs];
    return callee;
}

void Parser::signature(MacroBody& macro) {
    expect_operator("(");
    bool has_default = false;
    while (!is_operator(")")) {
        if (!macro.parameters.empty()) expect_operator(",");
        if (macro.parameters.size() == kMaxParameters) fail("a macro of more than {} parameters", kMaxParameters);
        Parameter parameter{single_target(TargetForm::Names).name, nullptr};
        for (const Parameter& other : macro.parameters)
            if (other.name == parameter.name) fail("a macro with two arguments of one name");
        if (skip_operator("=")) {
            parameter.otherwise = expression();
            has_default = true;
        } else if (has_default) {
            fail("non-default argument follows default argument");
        }
        declared_.push_back(parameter.name);
        macro.parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
}

void Parser::macro_statement(Statement& statement) {
    statement.kind = StatementKind::Macro;
    statement.macro = std::make_unique<MacroBody>();
    statement.macro->name = is(TokenType::Name) ? current().text : std::string();
    statement.target = single_target(TargetForm::Names);
    declare(statement.target);
    static_cast<void>(macro(*statement.macro));
}

void Parser::call_statement(Statement& statement) {
    statement.kind = StatementKind::Call;
    statement.macro = std::make_unique<MacroBody>();
    statement.expr = macro(*statement.macro);
    if (statement.expr->kind != ExprKind::Call) fail("expected call");
}

void Parser::generation_statement(Statement& statement) {
    statement.kind = StatementKind::Generation;
    const int outer_loops = std::exchange(loops_, 0);  // Jinja makes a function of it
    const Declared declared(*this);
    body(statement.body, {"endgeneration"});
    loops_ = outer_loops;
}

void Parser::filter_statement(Statement& statement) {
    statement.kind = StatementKind::Filter;
    statement.expr = filter(nullptr);
    while (skip_operator("|")) statement.expr = filter(std::move(statement.expr));
    const Declared declared(*this);
    body(statement.body, {"endfilter"});
}

void Parser::with_statement(Statement& statement) {
    statement.kind = StatementKind::With;
    const Declared declared(*this);
    while (!is(TokenType::BlockEnd)) {
        if (!statement.assignments.empty()) expect_operator(",");
        Target where = target(TargetForm::Names);
        expect_operator("=");
        statement.assignments.emplace_back(std::move(where), expression());
    }
    for (const auto& [where, value] : statement.assignments) declare(where);
    body(statement.body, {"endwith"});
}

void Parser::unserved_statement(Statement& statement, std::string_view end) {
    statement.kind = StatementKind::Unserved;
    statement.text = take().text;
    while (!is(TokenType::BlockEnd) && !is(TokenType::End)) take();
    if (end.empty()) return;
    Block ignored;
    body(ignored, {end});
    if (is(TokenType::Name)) take();  // {% endblock name %}
}

Target Parser::target(TargetForm form, std::string_view end) {
    Target result;
    while (true) {
        if (!result.parts.empty()) expect_operator(",");
        if (at_tuple_end(end)) break;
        result.parts.push_back(single_target(form));
        if (!is_operator(",")) break;
        result.is_tuple = true;
    }
    if (result.parts.empty()) fail("Expected an expression, got {}", quoted(describe(current())));
    if (result.is_tuple) return result;
    Target single = std::move(result.parts[0]);
    return single;
}

Target Parser::single_target(TargetForm form) {
    if (skip_operator("(")) {
        const Nested nested(*this);
        Target inside = target(TargetForm::Names);
        expect_operator(")");
        return inside;
    }
    if (!is(TokenType::Name)) expect(TokenType::Name);
    const std::string name = take().text;
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
        if (name == word) fail("can't assign to '{}'", name);
    Target result{.name = id_of(name)};
    if (form == TargetForm::NamesAndAttributes && skip_operator(".")) {
        note_read(result.name);
        result.attribute = expect_any_name();
    }
    return result;
}

void Parser::unknown_tag(const std::string& name) const {
    std::string message = fmt::format("Encountered unknown tag '{}'.", name);
    if (!ends_.back().empty())
        message += fmt::format(" Jinja was looking for the following tags: '{}'.", fmt::join(ends_.back(), "' or '"));
    if (!open_tags_.empty())
        message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
    throw TemplateError(message);
}

void Parser::fail_at_end() const {
    fail(
        "Unexpected end of template. Jinja was looking for the following tags: '{}'. The innermost block that needs to "
        "be closed is '{}'.",
        fmt::join(ends_.back(), "' or '"), open_tags_.back());
}

}  // namespace slipstream::jinja
