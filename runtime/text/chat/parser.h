// Tokens into a syntax tree: the grammar of jinja2/parser.py (3.1) with the tags break, continue and generation. Lines
// are those that Jinja blames. Nesting is limited, so that no recursion over the tree can run out of stack. An error
// ends the parsing, so nothing is put back on the way out of one.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/lexer.h"

namespace slipstream::jinja {

/// The whole template. Throws TemplateError; `line` is kept at the line that is being read.
[[nodiscard]] Template parse_template(std::string_view source, int& line);

/// Where the parser is: the stream of tokens, and what it knows of names.
class Parser {
public:
    Parser(std::vector<Token> tokens, int& line);

    [[nodiscard]] const Token& current() const { return tokens_[at_]; }
    [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token take();
    [[nodiscard]] bool is(TokenType type) const { return current().type == type; }
    /// Whether this operator or name comes next.
    [[nodiscard]] bool is(std::string_view word) const { return is_word(current(), word); }
    [[nodiscard]] static bool is_word(const Token& token, std::string_view word) {
        return (token.type == TokenType::Operator || token.type == TokenType::Name) && token.text == word;
    }
    bool skip(std::string_view word);
    void expect(std::string_view word);
    void expect(TokenType type);
    std::string expect_name();
    [[noreturn]] void fail_expecting(std::string_view what) const;

    /// One level of brackets or tags; each takes a dozen frames of stack.
    void enter();
    void leave() { --nesting_; }

    [[nodiscard]] NameId id_of(const std::string& name);
    void declare(NameId name) { declared_.push_back(name); }
    /// Names declared since `n` are unknown again.
    void forget_since(std::size_t n) { declared_.resize(n); }
    [[nodiscard]] std::size_t n_declared() const { return declared_.size(); }
    void note_read(NameId name);
    /// How often `loop` was read.
    [[nodiscard]] int n_loop_reads() const { return n_loop_reads_; }
    /// The names and those of them that the context is asked for.
    void finish(Template& result) const;

    int loops = 0;   // around here, in this macro
    int macros = 0;  // around here

private:
    struct Name {
        std::string text;
        bool is_read = false;           // outside of macros
        bool is_read_by_macro = false;  // and inside: what is declared later is no argument
    };
    void check_current();
    [[nodiscard]] bool is_declared(NameId name) const { return std::ranges::find(declared_, name) != declared_.end(); }

    std::vector<Token> tokens_;
    int& line_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    std::vector<Name> names_;
    std::unordered_map<std::string, NameId> ids_;
    std::vector<NameId> declared_;  // names that mean a variable of the template here
    int n_loop_reads_ = 0;
};

enum class Conditional : std::uint8_t { Allowed, Forbidden };  // "a if b else c"
[[nodiscard]] ExprPtr parse_expression(Parser& parser, Conditional conditional = Conditional::Allowed);
/// "a, b, c", or one expression. The name `end` ends it, besides the ends of tags and ")".
[[nodiscard]] ExprPtr parse_tuple(Parser& parser, Conditional conditional = Conditional::Allowed,
                                  std::string_view end = {});
[[nodiscard]] bool at_tuple_end(const Parser& parser, std::string_view end);
/// One filter, its pipe taken.
[[nodiscard]] ExprPtr parse_filter(Parser& parser, ExprPtr input);

}  // namespace slipstream::jinja
