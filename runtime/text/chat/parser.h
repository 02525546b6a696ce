// Tokens into a syntax tree: the grammar of jinja2/parser.py (3.1) with the tags break, continue and generation. Lines
// are those that Jinja blames. Nesting is limited, so that no recursion over the tree can run out of stack.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/lexer.h"

namespace slipstream::jinja {

class Parser {
public:
    Parser(std::vector<Token> tokens, int& line);

    /// The whole template. Throws TemplateError; `line` is kept at the line that is being read.
    [[nodiscard]] Template parse();

private:
    enum class Conditional : std::uint8_t { Allowed, Forbidden };
    enum class Filters : std::uint8_t { Allowed, Forbidden };
    enum class Parentheses : std::uint8_t { None, Around };
    enum class TargetForm : std::uint8_t { Names, NamesAndAttributes };  // "ns.name" too
    /// One level of recursion, while it lives.
    class Nested {
    public:
        explicit Nested(Parser& parser);
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;
        ~Nested() { --parser_.nesting_; }

    private:
        Parser& parser_;
    };
    /// Names that are declared in a part of the template, while it lives.
    class Declared {
    public:
        explicit Declared(Parser& parser) : parser_(parser), n_(parser.declared_.size()) {}
        Declared(const Declared&) = delete;
        Declared& operator=(const Declared&) = delete;
        ~Declared() { parser_.declared_.resize(n_); }

    private:
        Parser& parser_;
        std::size_t n_;
    };

    // The stream of tokens.
    [[nodiscard]] const Token& current() const { return tokens_[at_]; }
    [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token take();
    void look();
    [[nodiscard]] bool is(TokenType type) const { return current().type == type; }
    [[nodiscard]] bool is_operator(std::string_view sign) const { return is_operator(current(), sign); }
    [[nodiscard]] static bool is_operator(const Token& token, std::string_view sign) {
        return token.type == TokenType::Operator && token.text == sign;
    }
    [[nodiscard]] bool is_name(std::string_view name) const { return is(TokenType::Name) && current().text == name; }
    bool skip_operator(std::string_view sign);
    bool skip_name(std::string_view name);
    void expect_operator(std::string_view sign);
    void expect_name(std::string_view name);
    std::string expect_any_name();
    void expect(TokenType type);
    [[nodiscard]] static std::string describe(const Token& token);
    [[nodiscard]] static std::string describe(TokenType type);

    // Names.
    [[nodiscard]] NameId id_of(const std::string& name);
    void declare(const Target& target);
    void note_read(NameId name);

    // Expressions (parse_expressions.cpp), from the loosest binding to the tightest.
    ExprPtr expression(Conditional conditional = Conditional::Allowed);
    ExprPtr conditional_expression();
    ExprPtr logic(ExprKind kind, std::string_view word, ExprPtr (Parser::*tighter)());
    ExprPtr or_expression() { return logic(ExprKind::Or, "or", &Parser::and_expression); }
    ExprPtr and_expression() { return logic(ExprKind::And, "and", &Parser::not_expression); }
    ExprPtr not_expression();
    ExprPtr comparison();
    using Operators = std::initializer_list<std::pair<std::string_view, Arithmetic>>;
    ExprPtr arithmetic(Operators operators, ExprPtr (Parser::*tighter)());
    ExprPtr sum();
    ExprPtr concatenation();
    ExprPtr product();
    ExprPtr power();
    ExprPtr operand() { return unary(Filters::Allowed); }
    ExprPtr unary(Filters filters);
    ExprPtr primary();
    ExprPtr list_literal();
    ExprPtr dict_literal();
    /// "a, b, c", or one expression. The name `end` ends it, besides the ends of tags and ")".
    ExprPtr tuple(Conditional conditional, std::string_view end = {}, Parentheses parentheses = Parentheses::None);
    [[nodiscard]] bool at_tuple_end(std::string_view end) const;
    template <typename... Parts>
    ExprPtr make(ExprKind kind, int line, Parts... parts) {
        auto expr = std::make_unique<Expr>();
        expr->kind = kind;
        expr->line = line;
        (expr->parts.push_back(std::move(parts)), ...);
        return measured(std::move(expr));
    }
    ExprPtr literal(int line, Value value);
    /// With its depth; throws where that is too much.
    static ExprPtr measured(ExprPtr expr);

    // What follows a value.
    ExprPtr postfix(ExprPtr expr);
    ExprPtr filters_and_tests(ExprPtr expr);
    std::string dotted_name();
    /// One filter, its pipe taken.
    ExprPtr filter(ExprPtr input);
    ExprPtr test(ExprPtr input);
    ExprPtr subscript(ExprPtr object);
    ExprPtr slice(int line, ExprPtr object, ExprPtr start, bool is_alone);
    ExprPtr call(ExprPtr callee);
    void call_arguments(Expr& expr);

    // Statements (parse_statements.cpp).
    Block statements_until(std::initializer_list<std::string_view> ends);
    /// The rest of a tag, and statements up to one of the tags `ends`, whose name is taken and given back.
    std::string body(Block& block, std::initializer_list<std::string_view> ends);
    Statement statement();
    void print_statement(Statement& statement);
    void set_statement(Statement& statement);
    void if_statement(Statement& statement);
    void for_statement(Statement& statement);
    void macro_statement(Statement& statement);
    void call_statement(Statement& statement);
    void generation_statement(Statement& statement);
    void filter_statement(Statement& statement);
    void with_statement(Statement& statement);
    void unserved_statement(Statement& statement, std::string_view end);
    /// Signature and body; of a call block also what it calls, which is given back.
    ExprPtr macro(MacroBody& macro);
    void signature(MacroBody& macro);
    Target target(TargetForm form, std::string_view end = {});
    Target single_target(TargetForm form);
    [[noreturn]] void unknown_tag(const std::string& name) const;
    [[noreturn]] void fail_at_end() const;

    std::vector<Token> tokens_;
    int& line_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loops_ = 0;  // around here, in this macro
    Template result_;
    std::unordered_map<std::string, NameId> ids_;
    std::vector<NameId> declared_;                     // names that mean a variable of the template here
    std::vector<bool> is_read_;                        // by name, outside of macros
    std::vector<bool> is_read_by_macro_;               // and inside: what is declared later is no argument
    int macros_ = 0;                                   // around here
    std::array<int, 4> n_special_{};                   // how often loop, caller, kwargs and varargs were named
    std::vector<std::vector<std::string_view>> ends_;  // what open tags wait for
    std::vector<std::string> open_tags_;
};

}  // namespace slipstream::jinja
