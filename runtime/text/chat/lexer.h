// Template source into tokens, white space as transformers sets Jinja up: trim_blocks (a line end after a block tag
// goes), lstrip_blocks (spaces before a block tag that begins its line go), "-" and "+" at either end of a tag,
// comments; one line end at the end of the source is dropped. The rules are those of jinja2/lexer.py (3.1); names are
// ASCII, numbers decimal, raw blocks not served.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::jinja {

enum class TokenType : std::uint8_t {
    Data,           // text: what is to be printed
    VariableBegin,  // {{
    VariableEnd,
    BlockBegin,  // {%
    BlockEnd,
    Name,      // text
    Text,      // a string literal; text: its content
    Integer,   // integer
    Float,     // real
    Operator,  // text: "+", "**", "==", ...
    Error,     // text: what is wrong from here on; the parser says so if it comes here
    End
};

struct Token {
    TokenType type = TokenType::End;
    int line = 0;
    std::string text;
    std::int64_t integer = 0;
    double real = 0;
};

/// All tokens, the last of type End; what cannot be read is an Error before it.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

}  // namespace slipstream::jinja
