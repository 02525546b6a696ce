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

}  // namespace

Block Parser::parse() {
    return statements_until({});
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
            continue;
        }
        // Text and print tags in a row are one statement.
        if (block.empty() || !std::holds_alternative<OutputStatement>(block.back().form) || !output_goes_on_)
            block.push_back({current().line, OutputStatement{}});
        output_goes_on_ = true;
        auto& pieces = std::get<OutputStatement>(block.back().form).pieces;
        if (is(TokenType::Data)) {
            pieces.emplace_back(take().text, nullptr);
        } else {
            expect(TokenType::VariableBegin);
            pieces.emplace_back(std::string(), tuple(Conditional::Allowed));
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
    output_goes_on_ = false;
    block = statements_until(ends);
    output_goes_on_ = false;
    return take().text;
}

Statement Parser::statement() {
    output_goes_on_ = false;
    if (!is(TokenType::Name)) fail("tag name expected");
    const int line = current().line;
    const std::string name = current().text;
    open_tags_.push_back(name);
    Statement result{line, statement_form(name)};
    open_tags_.pop_back();
    return result;
}

Statement::Form Parser::statement_form(const std::string& name) {
    using Parse = Statement::Form (Parser::*)();
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
    const auto tag =
        std::find_if(kTags.begin(), kTags.end(), [&name](const auto& entry) { return entry.first == name; });
    if (tag != kTags.end()) {
        take();
        return (this->*tag->second)();
    }
    if (name == "break" || name == "continue") {
        if (loops_ == 0) fail("'{}' outside loop", name);
        take();
        if (name == "break") return BreakStatement{};
        return ContinueStatement{};
    }
    for (const auto& [unserved, end] : kUnserved)
        if (name == unserved) return unserved_statement(end);
    open_tags_.pop_back();
    unknown_tag(name);
}

Statement::Form Parser::print_statement() {
    OutputStatement output;
    while (!is(TokenType::BlockEnd)) {
        if (!output.pieces.empty()) expect_operator(",");
        output.pieces.emplace_back(std::string(), expression());
    }
    return output;
}

Statement::Form Parser::set_statement() {
    Target where = target(TargetForm::NamesAndAttributes);
    if (skip_operator("=")) return SetStatement{std::move(where), tuple(Conditional::Allowed)};
    SetBlockStatement set{std::move(where), nullptr, {}, {}};
    while (skip_operator("|")) set.filter = filter(std::move(set.filter));
    body(set.body, {"endset"});
    return set;
}

Statement::Form Parser::if_statement() {
    IfStatement result;
    while (true) {
        auto& [test, block] = result.branches.emplace_back();
        test = tuple(Conditional::Forbidden);
        const std::string end = body(block, {"elif", "else", "endif"});
        if (end == "elif") continue;
        if (end == "else") body(result.otherwise, {"endif"});
        return result;
    }
}

Statement::Form Parser::for_statement() {
    ForStatement loop;
    loop.target = target(TargetForm::Names, "in");
    expect_name("in");
    loop.iterable = tuple(Conditional::Forbidden, "recursive");
    if (skip_name("if")) {
        loop.test = expression();
        loop.test_target = loop.target;
    }
    loop.is_recursive = skip_name("recursive");
    // The body of a recursive loop is a function of its own, whose else part no outer loop surrounds.
    const int outer_loops = loops_;
    loops_ = loop.is_recursive ? 1 : loops_ + 1;
    const std::string end = body(loop.body, {"endfor", "else"});
    loops_ = loop.is_recursive ? 0 : outer_loops;
    if (end == "else") {
        loop.has_else = true;
        body(loop.otherwise, {"endfor"});
    }
    loops_ = outer_loops;
    return loop;
}

void Parser::function_body(MacroBody& macro, std::string_view end) {
    const int outer_loops = std::exchange(loops_, 0);
    body(macro.body, {end});
    loops_ = outer_loops;
}

void Parser::signature(MacroBody& macro) {
    expect_operator("(");
    bool has_default = false;
    while (!is_operator(")")) {
        if (!macro.parameters.empty()) expect_operator(",");
        if (macro.parameters.size() == kMaxParameters) fail("a macro of more than {} parameters", kMaxParameters);
        Parameter parameter{assignable_name(), -1, nullptr};
        for (const Parameter& other : macro.parameters)
            if (other.name == parameter.name) fail("duplicate argument '{}' of a macro", other.name);
        if (skip_operator("=")) {
            parameter.otherwise = expression();
            has_default = true;
        } else if (has_default) {
            fail("non-default argument follows default argument");
        }
        macro.parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
}

Statement::Form Parser::macro_statement() {
    MacroStatement result;
    result.macro.name = assignable_name();
    signature(result.macro);
    function_body(result.macro, "endmacro");
    return result;
}

Statement::Form Parser::call_statement() {
    CallStatement result;
    if (is_operator("(")) signature(result.caller);
    result.call = expression();
    if (!std::holds_alternative<CallExpr>(result.call->form)) fail("expected call");
    function_body(result.caller, "endcall");
    return result;
}

Statement::Form Parser::generation_statement() {
    GenerationStatement result;
    function_body(result.body, "endgeneration");
    return result;
}

Statement::Form Parser::filter_statement() {
    FilterStatement result;
    result.filter = filter(nullptr);
    while (skip_operator("|")) result.filter = filter(std::move(result.filter));
    body(result.body, {"endfilter"});
    return result;
}

Statement::Form Parser::with_statement() {
    WithStatement result;
    while (!is(TokenType::BlockEnd)) {
        if (!result.assignments.empty()) expect_operator(",");
        Target where = target(TargetForm::Names);
        expect_operator("=");
        result.assignments.emplace_back(std::move(where), expression());
    }
    body(result.body, {"endwith"});
    return result;
}

Statement::Form Parser::unserved_statement(std::string_view end) {
    UnservedStatement result{take().text};
    while (!is(TokenType::BlockEnd) && !is(TokenType::End)) take();
    if (!end.empty()) {
        Block ignored;
        body(ignored, {end});
        if (is(TokenType::Name)) take();  // {% endblock name %}
    }
    return result;
}

std::string Parser::assignable_name() {
    if (!is(TokenType::Name)) expect(TokenType::Name);
    return single_target(TargetForm::Names).name;
}

Target Parser::target(TargetForm form, std::string_view end) {
    Target result;
    bool is_tuple = false;
    while (true) {
        if (!result.parts.empty()) expect_operator(",");
        if (at_tuple_end(end)) break;
        result.parts.push_back(single_target(form));
        if (!is_operator(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && result.parts.empty()) fail("Expected an expression, got {}", quoted(describe(current())));
    if (!is_tuple) {
        Target single = std::move(result.parts[0]);
        return single;
    }
    result.form = Target::Form::Tuple;
    return result;
}

Target Parser::single_target(TargetForm form) {
    if (form == TargetForm::NamesAndAttributes && is(TokenType::Name) && is_operator(ahead(), ".")) {
        Target result{.form = Target::Form::Attribute, .name = take().text};
        take();
        result.attribute = expect_any_name();
        return result;
    }
    const Nested nested(*this);
    return target_of(*primary());
}

Target Parser::target_of(const Expr& expr) {
    if (const auto* name = std::get_if<NameExpr>(&expr.form)) return {.form = Target::Form::Name, .name = name->name};
    const auto* tuple = std::get_if<SequenceExpr>(&expr.form);
    if (tuple == nullptr || tuple->kind != Kind::Tuple) fail("can't assign to this: a name is needed, or names");
    Target result{.form = Target::Form::Tuple};
    for (const ExprPtr& item : tuple->items) result.parts.push_back(target_of(*item));
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
