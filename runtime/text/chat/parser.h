// Tokens into a syntax tree: the grammar of jinja2/parser.py (3.1) with the tags break, continue and generation.
// Nesting is limited, so that no recursion over the tree can run out of stack.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/lexer.h"

namespace slipstream::jinja {

class Parser {
public:
    Parser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) { look(); }

    /// The whole template. Throws TemplateError; `line` is kept at the line that is being read.
    [[nodiscard]] Block parse();

private:
    enum class Conditional : std::uint8_t { Allowed, Forbidden };
    enum class Filters : std::uint8_t { Allowed, Forbidden };
    enum class Parentheses : std::uint8_t { None, Around };
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

    // Expressions (parse_expressions.cpp), from the loosest binding to the tightest.
    ExprPtr expression(Conditional conditional = Conditional::Allowed);
    ExprPtr conditional_expression();
    ExprPtr or_expression();
    ExprPtr and_expression();
    ExprPtr not_expression();
    ExprPtr comparison();
    ExprPtr sum();
    ExprPtr concatenation();
    ExprPtr product();
    ExprPtr power();
    ExprPtr unary(Filters filters);
    ExprPtr primary();
    ExprPtr list_literal();
    ExprPtr dict_literal();
    /// "a, b, c", or one expression. The name `end` ends it, besides the ends of tags and ")".
    ExprPtr tuple(Conditional conditional, std::string_view end = {}, Parentheses parentheses = Parentheses::None);
    [[nodiscard]] bool at_tuple_end(std::string_view end) const;
    ExprPtr make(int line, Expr::Form form);

    // What follows a value (parse_postfix.cpp).
    ExprPtr postfix(ExprPtr expr);
    ExprPtr filters_and_tests(ExprPtr expr);
    std::string dotted_name();
    /// One filter, its pipe taken.
    ExprPtr filter(ExprPtr input);
    ExprPtr test(ExprPtr input);
    ExprPtr subscript(ExprPtr object);
    ExprPtr slice(int line, ExprPtr object, ExprPtr start, bool is_alone);
    ExprPtr call(ExprPtr callee);
    CallArguments call_arguments();

    // Statements (parse_statements.cpp).
    Block statements_until(std::initializer_list<std::string_view> ends);
    /// The rest of a tag, and statements up to one of the tags `ends`, whose name is taken and given back.
    std::string body(Block& block, std::initializer_list<std::string_view> ends);
    Statement statement();
    Statement::Form statement_form(const std::string& name);
    Statement::Form print_statement();
    Statement::Form set_statement();
    Statement::Form if_statement();
    Statement::Form for_statement();
    Statement::Form macro_statement();
    Statement::Form call_statement();
    Statement::Form generation_statement();
    Statement::Form filter_statement();
    Statement::Form with_statement();
    Statement::Form unserved_statement(std::string_view end);
    void signature(MacroBody& macro);
    void function_body(MacroBody& macro, std::string_view end);
    enum class TargetForm : std::uint8_t { Names, NamesAndAttributes };  // "ns.name" too
    std::string assignable_name();
    Target target(TargetForm form, std::string_view end = {});
    Target single_target(TargetForm form);
    static Target target_of(const Expr& expr);
    [[noreturn]] void unknown_tag(const std::string& name) const;
    [[noreturn]] void fail_at_end() const;

    std::vector<Token> tokens_;
    int& line_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loops_ = 0;                                    // around here, in this function
    bool output_goes_on_ = false;                      // whether text would join the output statement before it
    std::vector<std::vector<std::string_view>> ends_;  // what open tags wait for
    std::vector<std::string> open_tags_;
};

}  // namespace slipstream::jinja
