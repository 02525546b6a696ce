// Reads an answer that consists of messages in channels: the harmony format of gpt-oss. The prompt ends with
// "<|start|>assistant", so the answer begins with the rest of a header:
//
//     HEADER <|message|> TEXT [<|end|>] <|start|> HEADER <|message|> TEXT ...
//     HEADER: [assistant] [to=RECIPIENT] <|channel|>CHANNEL [to=RECIPIENT] [<|constrain|>] [TYPE]
//
// "<|start|>" with the role may be missing, and so may the channel at the beginning of an answer or with a recipient.
// TEXT of the channel "analysis" is a thought; of "final" and "commentary", content. With a recipient,
// "functions.NAME", it is the arguments of a call, a JSON object. The control token <|end|> is not spelt out in the
// text of an answer, as the marks that is_answer_mark() names are; <|end|> there was written in ordinary tokens.
// <|call|> and <|return|> end an answer and are not part of it.
//
// The rules of AnswerReader hold: what is not understood stays as the model wrote it, in the message around it or, at
// the beginning and after a call, as content. So a mark in a text ends the text only with a whole header after it.
// Messages of one kind that follow one another are separated by an empty line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_piece.h"
#include "runtime/text/answer/json_object_scanner.h"

namespace slipstream {

class HarmonyReader {
public:
    enum class Start : std::uint8_t { Header, Thought };

    /// `reads_calls`: whether tools are offered. With Start::Thought the prompt ends with the header of a thought.
    HarmonyReader(bool reads_calls, Start start)
        : reads_calls_(reads_calls), state_(start == Start::Thought ? State::Text : State::First) {
        if (start == Start::Thought) kind_ = AnswerPiece::Kind::Thought;
    }

    /// Reads the next byte of the answer; appends complete pieces to `out`. Adjacent text of one kind is one piece.
    void push(char c, std::vector<AnswerPiece>& out);
    /// Marks what is held back as part of the prompt: it is never emitted.
    void skip_held() { n_skipped_ = held_.size(); }
    /// Ends the answer: what was held back becomes content, but a header of a further message is dropped, since it has
    /// no text yet.
    void finish(std::vector<AnswerPiece>& out);

    [[nodiscard]] bool in_thought() const { return state_ == State::Text && kind_ == AnswerPiece::Kind::Thought; }

private:
    enum class State : std::uint8_t {
        First,    // the beginning of the answer: a header, or text without one
        Text,     // in the text of a message
        Call,     // in the arguments of a call
        Between,  // after a call
    };

    void read_held(std::vector<AnswerPiece>& out);
    void begin_message(std::string_view recipient, std::string_view channel, std::vector<AnswerPiece>& out);
    void read_call(char c, std::vector<AnswerPiece>& out);
    void become_content();
    void emit_held(std::size_t n, std::vector<AnswerPiece>& out);
    void drop_held();
    void emit(std::string_view text, std::vector<AnswerPiece>& out);

    bool reads_calls_;
    State state_;
    AnswerPiece::Kind kind_ = AnswerPiece::Kind::Content;  // of the text of the message
    std::string held_;           // bytes that are not emitted yet: a header, a call with its header, part of a mark
    std::size_t n_skipped_ = 0;  // bytes at the beginning of held_ that are in the prompt
    std::string name_;           // of the tool that is called
    std::optional<JsonObjectScanner> arguments_;  // nullopt before the first byte of the arguments
    std::optional<AnswerPiece::Kind> last_kind_;  // of the last text; nullopt: none since the last call
    bool is_at_message_start_ = false;            // no text of the message is emitted yet
};

}  // namespace slipstream
