// Turns the source of a template into tokens. White space is handled as transformers configures Jinja: trim_blocks (a
// line end after a block tag is removed), lstrip_blocks (spaces before a block tag that is the first on its line are
// removed), "-" and "+" at either end of a tag, comments; one line end at the end of the source is removed. The rules
// are those of jinja2/lexer.py (3.1), with three restrictions: names are ASCII, numbers are decimal, raw blocks are not
// supported.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::jinja {

enum class TokenType : std::uint8_t {
    Data,           // text to print
    VariableBegin,  // {{
    VariableEnd,
    BlockBegin,  // {%
    BlockEnd,
    Name,      // text
    Text,      // a string literal; text: its contents
    Integer,   // integer
    Float,     // real
    Operator,  // text: "+", "**", "==", ...
    Error,     // text: error at this position, which the parser reports if it gets here
    End
};

struct Token {
    TokenType type = TokenType::End;
    int line = 0;
    std::string text;
    std::int64_t integer = 0;
    double real = 0;
};

/// Returns all tokens of `source`; the last one has type End. If the source cannot be read to its end, an Error token
/// with the message is before it.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

}  // namespace slipstream::jinja
