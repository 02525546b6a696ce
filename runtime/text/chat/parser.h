// Builds the syntax tree from tokens: the grammar of jinja2/parser.py (3.1) with the tags break, continue and
// generation. Nodes have the lines that Jinja gives in errors. Nesting is limited, so that recursion over the tree
// cannot overflow the stack. An error ends the parsing, so state that an error leaves behind is not restored.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/chat/ast.h"
#include "runtime/text/chat/lexer.h"

namespace slipstream::jinja {

/// Returns the tree of a template. Throws TemplateError if `source` is not valid; `line` is always set to the line that
/// is being read, from 1, so that the caller can report it.
[[nodiscard]] Template parse_template(std::string_view source, int& line);

/// The state of the parser: the stream of tokens, and what is known of names.
class Parser {
public:
    Parser(std::vector<Token> tokens, int& line);

    [[nodiscard]] const Token& current() const { return tokens_[at_]; }
    [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token take();
    [[nodiscard]] bool is(TokenType type) const { return current().type == type; }
    /// Returns whether the next token is the operator or name `word`.
    [[nodiscard]] bool is(std::string_view word) const { return is_word(current(), word); }
    [[nodiscard]] static bool is_word(const Token& token, std::string_view word) {
        return (token.type == TokenType::Operator || token.type == TokenType::Name) && token.text == word;
    }
    bool skip(std::string_view word);
    void expect(std::string_view word);
    void expect(TokenType type);
    std::string expect_name();
    [[noreturn]] void fail_expecting(std::string_view what) const;

    /// Enters one level of brackets or tags; leave() leaves it. Throws TemplateError beyond 100 levels: each takes
    /// about a dozen stack frames.
    void enter();
    void leave() { --nesting_; }

    [[nodiscard]] NameId id_of(const std::string& name);
    void declare(NameId name) { declared_.push_back(name); }
    /// Reports that the template sets the variable `name` at this position. If it is `caller`, `kwargs` or `varargs`,
    /// the macros around this position read the variable from here on, not the parameter of that name.
    void note_set(NameId name);
    /// begin_macro(), begin_macro_body() and end_macro() must be called in this order around a macro: before its
    /// parameters, before its body, and after it. end_macro() sets what the macro takes beyond its parameters.
    void begin_macro() { macros_.emplace_back(); }
    void begin_macro_body();
    void end_macro(MacroBody& macro);
    /// Returns whether macros are around the current position.
    [[nodiscard]] bool in_macro() const { return !macros_.empty(); }
    /// Makes the names that were declared since `n` (an earlier n_declared()) undeclared again.
    void forget_since(std::size_t n) { declared_.resize(n); }
    [[nodiscard]] std::size_t n_declared() const { return declared_.size(); }
    /// Returns the names that were declared since `n`; valid until the next declaration.
    [[nodiscard]] std::span<const NameId> declared_since(std::size_t n) const {
        return std::span(declared_).subspan(n);
    }
    void note_read(NameId name);
    /// Returns how many times `loop` was read.
    [[nodiscard]] int n_loop_reads() const { return n_loop_reads_; }
    /// Adds a name of an attribute, or a text, to Template::words.
    void note_word(std::string_view word);
    /// Sets the words and names of `result`, and which names are read from the context.
    void finish(Template& result);

    int loops = 0;  // number of loops around the current position, inside of the current macro

private:
    struct Name {
        std::string text;
        bool is_read = false;           // read outside of macros
        bool is_read_by_macro = false;  // read inside a macro: counts only if the template never declares it
    };
    // How a macro uses kCaller, kKwargs and kVarargs, [0] to [2].
    struct SpecialNames {
        bool in_body = false;
        std::array<bool, 3> is_read{};
        std::array<bool, 3> is_set{};  // set in the body before it is read
    };
    void check_current();
    [[nodiscard]] bool is_declared(NameId name) const { return std::ranges::find(declared_, name) != declared_.end(); }

    std::vector<Token> tokens_;
    int& line_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    std::vector<Name> names_;
    std::unordered_map<std::string, NameId> ids_;
    std::vector<NameId> declared_;  // names that are variables of the template at the current position
    int n_loop_reads_ = 0;
    std::set<std::string, std::less<>> words_;
    std::vector<SpecialNames> macros_;  // names of the macros around the current position, the outermost macro first
};

enum class Conditional : std::uint8_t { Allowed, Forbidden };  // whether "a if b else c" may be read
[[nodiscard]] ExprPtr parse_expression(Parser& parser, Conditional conditional = Conditional::Allowed);
/// Parses "a, b, c" as a tuple, or one expression as itself. It ends before the name `end`, the end of a tag, or ")".
[[nodiscard]] ExprPtr parse_tuple(Parser& parser, Conditional conditional = Conditional::Allowed,
                                  std::string_view end = {});
[[nodiscard]] bool at_tuple_end(const Parser& parser, std::string_view end);
/// Parses one filter, whose "|" was read before. `input` is what the filter is applied to; null: the text of a block.
[[nodiscard]] ExprPtr parse_filter(Parser& parser, ExprPtr input);

}  // namespace slipstream::jinja
