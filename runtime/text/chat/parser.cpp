// The parser's stream of tokens, and what it says when they are not as expected.
#include "runtime/text/chat/parser.h"

#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

// Of brackets and of tags inside each other; each level takes a dozen frames of stack here.
constexpr int kMaxNesting = 100;

}  // namespace

Parser::Parser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {
    for (const char* name : {"loop", "caller", "kwargs", "varargs"}) static_cast<void>(id_of(name));
    look();
}

NameId Parser::id_of(const std::string& name) {
    const auto [entry, is_new] = ids_.try_emplace(name, static_cast<NameId>(ids_.size()));
    if (is_new) {
        result_.names.push_back(name);
        is_read_.push_back(false);
        is_read_by_macro_.push_back(false);
    }
    return entry->second;
}

void Parser::declare(const Target& target) {
    if (!target.is_tuple && target.attribute.empty()) declared_.push_back(target.name);
    for (const Target& part : target.parts) declare(part);
}

void Parser::note_read(NameId name) {
    if (static_cast<std::size_t>(name) < n_special_.size()) ++n_special_[static_cast<std::size_t>(name)];
    if (std::find(declared_.begin(), declared_.end(), name) != declared_.end()) return;
    (macros_ > 0 ? is_read_by_macro_ : is_read_)[static_cast<std::size_t>(name)] = true;
}

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting) {
        --parser_.nesting_;
        fail("brackets or tags nested deeper than {}", kMaxNesting);
    }
}

Token Parser::take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    look();
    return token;
}

void Parser::look() {
    line_ = current().line;
    if (is(TokenType::Error)) throw TemplateError(current().text);
}

bool Parser::skip_operator(std::string_view sign) {
    if (!is_operator(sign)) return false;
    take();
    return true;
}

bool Parser::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
}

void Parser::expect_operator(std::string_view sign) {
    if (skip_operator(sign)) return;
    if (is(TokenType::End)) fail("unexpected end of template, expected '{}'.", sign);
    fail("expected token '{}', got {}", sign, quoted(describe(current())));
}

void Parser::expect_name(std::string_view name) {
    if (skip_name(name)) return;
    if (is(TokenType::End)) fail("unexpected end of template, expected '{}'.", name);
    fail("expected token '{}', got {}", name, quoted(describe(current())));
}

std::string Parser::expect_any_name() {
    if (!is(TokenType::Name)) expect(TokenType::Name);
    return take().text;
}

void Parser::expect(TokenType type) {
    if (!is(type)) {
        if (is(TokenType::End)) fail("unexpected end of template, expected '{}'.", describe(type));
        fail("expected token '{}', got {}", describe(type), quoted(describe(current())));
    }
    take();
}

std::string Parser::describe(const Token& token) {
    return token.type == TokenType::Name || token.type == TokenType::Operator ? token.text : describe(token.type);
}

std::string Parser::describe(TokenType type) {
    constexpr std::array<std::string_view, 12> kNames = {"template data / text",
                                                         "begin of print statement",
                                                         "end of print statement",
                                                         "begin of statement block",
                                                         "end of statement block",
                                                         "name",
                                                         "string",
                                                         "integer",
                                                         "float",
                                                         "operator",
                                                         "end of template",
                                                         "end of template"};
    return std::string(kNames[static_cast<std::size_t>(type)]);
}

}  // namespace slipstream::jinja
