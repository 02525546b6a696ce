// The parser's stream of tokens, and its statements: text, print tags, block tags.
#include "runtime/text/chat/parser.h"

#include <fmt/ranges.h>

#include <array>

#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr int kMaxNesting = 100;
constexpr std::size_t kMaxParameters = 255;

struct Unserved {
    std::string_view tag;
    std::string_view end;  // the tag that ends its body; empty: it has no body
};
constexpr std::array<Unserved, 7> kUnserved = {{{"autoescape", "endautoescape"},
                                                {"block", "endblock"},
                                                {"extends", ""},
                                                {"from", ""},
                                                {"import", ""},
                                                {"include", ""},
                                                {"with", "endwith"}}};

using Ends = std::initializer_list<std::string_view>;
// What a target of an assignment may be: variables only, or also attributes of a namespace ("ns.name").
enum class TargetForm : std::uint8_t { Names, NamesAndAttributes };

Block statements_until(Parser& parser, Ends ends);

// Reads the end of a tag, and statements up to one of the tags `ends`. Returns the name of that tag, which has been
// read.
std::string body(Parser& parser, Block& block, Ends ends) {
    parser.skip(":");  // allowed as in Python
    parser.expect(TokenType::BlockEnd);
    block = statements_until(parser, ends);
    return parser.take().text;
}

// Reads a body, as body() does. Names that are declared in it are undeclared again at its end.
std::string scoped_body(Parser& parser, Block& block, Ends ends) {
    const std::size_t n_declared = parser.n_declared();
    std::string end = body(parser, block, ends);
    parser.forget_since(n_declared);
    return end;
}

NameId assignable_name(Parser& parser) {
    const std::string name = parser.expect_name();
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
        if (name == word) fail("can't assign to '{}'", name);
    return parser.id_of(name);
}

Target single_target(Parser& parser, TargetForm form);

Target target(Parser& parser, TargetForm form, std::string_view end = {}) {
    Target result;
    while (true) {
        if (!result.parts.empty()) parser.expect(",");
        if (at_tuple_end(parser, end)) break;
        result.parts.push_back(single_target(parser, form));
        if (!parser.is(",")) break;
        result.is_tuple = true;
    }
    if (result.parts.empty()) parser.fail_expecting("a name");
    if (result.is_tuple) return result;
    return Target(std::move(result.parts[0]));
}

Target single_target(Parser& parser, TargetForm form) {
    if (parser.skip("(")) {
        parser.enter();
        Target inside = target(parser, TargetForm::Names);
        parser.expect(")");
        parser.leave();
        return inside;
    }
    Target result{.name = assignable_name(parser)};
    if (form == TargetForm::NamesAndAttributes && parser.skip(".")) {
        parser.note_read(result.name);
        result.attribute = parser.expect_name();
    } else {
        parser.note_set(result.name);
    }
    return result;
}

void declare(Parser& parser, const Target& target) {
    if (!target.is_tuple && target.attribute.empty()) parser.declare(target.name);
    for (const Target& part : target.parts) declare(parser, part);
}

void set_statement(Parser& parser, Statement& statement) {
    statement.target = target(parser, TargetForm::NamesAndAttributes);
    if (parser.skip("=")) {
        statement.kind = StatementKind::Set;
        statement.expr = parse_tuple(parser);
    } else {
        statement.kind = StatementKind::SetBlock;
        while (parser.skip("|")) statement.expr = parse_filter(parser, std::move(statement.expr));
        scoped_body(parser, statement.body, {"endset"});
    }
    declare(parser, statement.target);
}

// Parses the rest of an if statement. A variable is declared after it only if every branch sets it; else it may still
// come from the context.
void if_statement(Parser& parser, Statement& statement) {
    statement.kind = StatementKind::If;
    int line = statement.line;
    const std::size_t n_declared = parser.n_declared();
    std::vector<NameId> in_all;
    bool has_else = false;
    for (std::string end = "elif"; end != "endif"; line = parser.current().line) {
        Branch& branch = statement.branches.emplace_back(Branch{nullptr, line, {}});
        has_else = end == "else";
        if (!has_else) branch.test = parse_tuple(parser, Conditional::Forbidden);
        end = has_else ? body(parser, branch.body, {"endif"}) : body(parser, branch.body, {"elif", "else", "endif"});
        const std::span<const NameId> declared = parser.declared_since(n_declared);
        if (statement.branches.size() == 1) in_all.assign(declared.begin(), declared.end());
        std::erase_if(in_all, [&](NameId name) { return std::ranges::find(declared, name) == declared.end(); });
        parser.forget_since(n_declared);
    }
    if (!has_else) return;
    for (const NameId name : in_all) parser.declare(name);
}

void for_statement(Parser& parser, Statement& statement) {
    statement.kind = StatementKind::For;
    statement.target = target(parser, TargetForm::Names, "in");
    parser.expect("in");
    statement.expr = parse_tuple(parser, Conditional::Forbidden, "recursive");
    const std::size_t n_declared = parser.n_declared();
    declare(parser, statement.target);
    if (parser.skip("if")) statement.test = parse_expression(parser);
    if (parser.is("recursive")) fail("recursive loops are not served in chat templates");
    const int n_loop_reads = parser.n_loop_reads();
    parser.declare(kLoop);
    ++parser.loops;
    const std::string end = body(parser, statement.body, {"endfor", "else"});
    --parser.loops;
    statement.uses_loop = parser.n_loop_reads() != n_loop_reads;
    parser.forget_since(n_declared);
    if (end == "else") scoped_body(parser, statement.otherwise, {"endfor"});
}

void signature(Parser& parser, MacroBody& macro) {
    parser.expect("(");
    bool has_default = false;
    while (!parser.is(")")) {
        if (!macro.parameters.empty()) parser.expect(",");
        if (macro.parameters.size() == kMaxParameters) fail("a macro of more than {} parameters", kMaxParameters);
        Parameter parameter{assignable_name(parser), nullptr};
        parser.note_set(parameter.name);
        for (const Parameter& other : macro.parameters)
            if (other.name == parameter.name) fail("a macro with two arguments of one name");
        if (parser.skip("=")) {
            parameter.otherwise = parse_expression(parser);
            has_default = true;
        } else if (has_default) {
            fail("non-default argument follows default argument");
        }
        parser.declare(parameter.name);
        macro.parameters.push_back(std::move(parameter));
    }
    parser.expect(")");
}

void macro_statement(Parser& parser, Statement& statement) {
    statement.kind = StatementKind::Macro;
    statement.macro = std::make_unique<MacroBody>();
    statement.macro->name = parser.current().text;
    statement.target.name = assignable_name(parser);
    declare(parser, statement.target);
    const int outer_loops = std::exchange(parser.loops, 0);
    const std::size_t n_declared = parser.n_declared();
    parser.begin_macro();
    signature(parser, *statement.macro);
    parser.begin_macro_body();
    body(parser, statement.macro->body, {"endmacro"});
    parser.end_macro(*statement.macro);
    parser.forget_since(n_declared);
    parser.loops = outer_loops;
}

// Parses the rest of {% call(a, b) f(x) %}...{% endcall %}: the body is a macro with the parameters a and b, the
// argument `caller` of f.
void call_statement(Parser& parser, Statement& statement) {
    statement.kind = StatementKind::CallBlock;
    statement.macro = std::make_unique<MacroBody>();
    const int outer_loops = std::exchange(parser.loops, 0);
    const std::size_t n_declared = parser.n_declared();
    if (parser.is("(")) signature(parser, *statement.macro);
    const std::vector<NameId> parameters(parser.declared_since(n_declared).begin(),
                                         parser.declared_since(n_declared).end());
    parser.forget_since(n_declared);  // the call itself does not see the parameters
    statement.expr = parse_expression(parser);
    if (statement.expr->kind != ExprKind::Call) fail("expected call");
    for (const NameId name : parameters) parser.declare(name);
    parser.begin_macro();
    parser.begin_macro_body();
    body(parser, statement.macro->body, {"endcall"});
    parser.end_macro(*statement.macro);
    parser.forget_since(n_declared);
    parser.loops = outer_loops;
}

void generation_statement(Parser& parser, Statement& statement) {
    statement.kind = StatementKind::Generation;
    const int outer_loops = std::exchange(parser.loops, 0);  // Jinja compiles the block to a function
    scoped_body(parser, statement.body, {"endgeneration"});
    parser.loops = outer_loops;
}

void filter_statement(Parser& parser, Statement& statement) {
    statement.kind = StatementKind::Filter;
    statement.expr = parse_filter(parser, nullptr);
    while (parser.skip("|")) statement.expr = parse_filter(parser, std::move(statement.expr));
    scoped_body(parser, statement.body, {"endfilter"});
}

template <StatementKind kind>
void cut_statement(Parser& parser, Statement& statement) {
    statement.kind = kind;
    if (parser.loops == 0) fail("'{}' outside loop", kind == StatementKind::Break ? "break" : "continue");
}

void unserved_statement(Parser& parser, Statement& statement, const Unserved& tag) {
    statement.kind = StatementKind::Unserved;
    statement.text = tag.tag;
    while (!parser.is(TokenType::BlockEnd) && !parser.is(TokenType::End)) parser.take();
    if (tag.end.empty()) return;
    Block ignored;
    body(parser, ignored, {tag.end});
    if (parser.is(TokenType::Name)) parser.take();  // {% endblock name %}
}

Statement statement(Parser& parser) {
    using Parse = void (*)(Parser&, Statement&);
    static constexpr std::array<std::pair<std::string_view, Parse>, 9> kTags = {
        {{"break", cut_statement<StatementKind::Break>},
         {"call", call_statement},
         {"continue", cut_statement<StatementKind::Continue>},
         {"filter", filter_statement},
         {"for", for_statement},
         {"generation", generation_statement},
         {"if", if_statement},
         {"macro", macro_statement},
         {"set", set_statement}}};
    Statement result;
    result.line = parser.current().line;
    if (!parser.is(TokenType::Name)) parser.fail_expecting("the name of a tag");
    const std::string name = parser.current().text;
    const auto* const tag = std::ranges::find(kTags, name, &std::pair<std::string_view, Parse>::first);
    const auto* const unserved = std::ranges::find(kUnserved, name, &Unserved::tag);
    if (tag == kTags.end() && unserved == kUnserved.end()) fail("unknown tag '{}'", name);
    parser.take();
    if (tag != kTags.end())
        tag->second(parser, result);
    else
        unserved_statement(parser, result, *unserved);
    return result;
}

Block statements_until(Parser& parser, Ends ends) {
    parser.enter();
    Block block;
    while (!parser.is(TokenType::End)) {
        if (parser.is(TokenType::BlockBegin)) {
            parser.take();
            if (std::ranges::any_of(ends, [&](std::string_view end) { return parser.is(end); })) break;
            block.push_back(statement(parser));
            parser.expect(TokenType::BlockEnd);
        } else if (parser.is(TokenType::Data)) {
            Statement& text = block.emplace_back();
            text.line = parser.current().line;
            text.text = parser.take().text;
        } else {
            parser.expect(TokenType::VariableBegin);
            Statement& print = block.emplace_back();
            print.kind = StatementKind::Print;
            print.expr = parse_tuple(parser);
            print.line = print.expr->line;
            parser.expect(TokenType::VariableEnd);
        }
    }
    if (ends.size() > 0 && parser.is(TokenType::End))
        parser.fail_expecting(fmt::format("one of the tags '{}'", fmt::join(ends, "', '")));
    parser.leave();
    return block;
}

// Returns the description of a token for messages.
std::string described(TokenType type, std::string_view text = {}) {
    constexpr std::array<std::string_view, 12> kNames = {
        "text",     "'{{'",     "'}}'",    "'{%'",        "'%}'",  "a name",
        "a string", "a number", "a float", "an operator", "error", "the end of the template"};
    return text.empty() ? std::string(kNames[static_cast<std::size_t>(type)]) : repr_of(text);
}

}  // namespace

Parser::Parser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {
    for (const char* name : {"loop", "caller", "kwargs", "varargs"}) static_cast<void>(id_of(name));
    check_current();
}

NameId Parser::id_of(const std::string& name) {
    const auto [entry, is_new] = ids_.try_emplace(name, static_cast<NameId>(ids_.size()));
    if (is_new) names_.push_back({name});
    return entry->second;
}

void Parser::note_read(NameId name) {
    const auto i = static_cast<std::size_t>(name);
    if (name == kLoop) ++n_loop_reads_;
    if (name >= kCaller && name <= kVarargs)
        for (SpecialNames& macro : macros_)
            if (const auto at = static_cast<std::size_t>(name - kCaller); macro.in_body && !macro.is_set[at])
                macro.is_read[at] = true;
    if (!is_declared(name)) (in_macro() ? names_[i].is_read_by_macro : names_[i].is_read) = true;
}

void Parser::note_set(NameId name) {
    if (name < kCaller || name > kVarargs) return;
    for (SpecialNames& macro : macros_)
        if (macro.in_body) macro.is_set[name - kCaller] = true;
}

// Jinja hands a macro `caller`, `kwargs` and `varargs` if its body reads them before it sets them, bodies of macros
// inside of it included. They are declared so that they do not count as variables of the context.
void Parser::begin_macro_body() {
    macros_.back().in_body = true;
    for (const NameId name : {kCaller, kKwargs, kVarargs}) declare(name);
}

void Parser::end_macro(MacroBody& macro) {
    const SpecialNames names = macros_.back();
    macros_.pop_back();
    const auto is_parameter = [&](NameId name) {
        return std::ranges::find(macro.parameters, name, &Parameter::name) != macro.parameters.end();
    };
    for (const Parameter& parameter : macro.parameters)
        if (parameter.name == kCaller && names.is_read[0] && !parameter.otherwise)
            fail("a macro that reads caller may have a parameter of that name only with a default value");
    macro.takes_caller = names.is_read[0] && !is_parameter(kCaller);
    macro.takes_kwargs = names.is_read[1] && !is_parameter(kKwargs);
    macro.takes_varargs = names.is_read[2] && !is_parameter(kVarargs);
}

void Parser::note_word(std::string_view word) {
    if (word.find_first_of(" \t\n") == std::string_view::npos) words_.emplace(word);
}

void Parser::finish(Template& result) {
    result.words = std::move(words_);
    for (const Name& name : names_) {
        const auto id = static_cast<NameId>(result.names.size());
        if (name.is_read || (name.is_read_by_macro && !is_declared(id))) result.reads.push_back(id);
        result.names.push_back(name.text);
    }
}

void Parser::enter() {
    if (++nesting_ > kMaxNesting) fail("brackets or tags nested deeper than {}", kMaxNesting);
}

Token Parser::take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    check_current();
    return token;
}

void Parser::check_current() {
    line_ = current().line;
    if (is(TokenType::Error)) throw TemplateError(current().text);
}

bool Parser::skip(std::string_view word) {
    if (!is(word)) return false;
    take();
    return true;
}

void Parser::expect(std::string_view word) {
    if (!skip(word)) fail_expecting(repr_of(word));
}

void Parser::expect(TokenType type) {
    if (!is(type)) fail_expecting(described(type));
    take();
}

std::string Parser::expect_name() {
    if (!is(TokenType::Name)) fail_expecting(described(TokenType::Name));
    return take().text;
}

void Parser::fail_expecting(std::string_view what) const {
    const bool is_word = is(TokenType::Name) || is(TokenType::Operator);
    fail("expected {}, got {}", what, described(current().type, is_word ? current().text : std::string_view()));
}

Template parse_template(std::string_view source, int& line) {
    Parser parser(tokenize(source), line);
    Template result;
    result.body = statements_until(parser, {});
    parser.finish(result);
    return result;
}

}  // namespace slipstream::jinja
