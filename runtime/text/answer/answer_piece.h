// A part of an answer: content, a thought, or a tool call.
#pragma once

#include <cstdint>
#include <string>

namespace slipstream {

struct AnswerPiece {
    enum class Kind : std::uint8_t { Content, Thought, Call };
    Kind kind = Kind::Content;
    std::string text;  // the text; for a Call its arguments, a JSON object
    std::string name;  // for a Call: the name of the tool
    bool operator==(const AnswerPiece&) const = default;
};

}  // namespace slipstream
