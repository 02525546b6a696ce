// Reads an answer that consists of messages with headers: the harmony format of gpt-oss, and that of Muse Glimmer. The
// prompt ends with "<|start|>assistant", so the answer begins with the rest of a header. gpt-oss:
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
// Muse Glimmer has recipients instead of channels, and spells the end of a message:
//
//     HEADER <|message|> TEXT [<|eom|>] <|start|> HEADER <|message|> TEXT ...
//     HEADER: [assistant] [to=RECIPIENT]
//
// TEXT to "self" is a thought; to "user" or to none, content; to a tool, calls in XML (make_atem_call_reader()). So is
// a text without a recipient that begins with a call. <|eot|> ends an answer and is not part of it. After <|eom|>,
// "<|start|>assistant" may be missing before a recipient.
//
// The rules of AnswerReader hold: what is not understood stays as the model wrote it, in the message around it or, at
// the beginning and after a call, as content. So a mark in a text ends the text only with a whole header after it.
// Messages of one kind that follow one another are separated by an empty line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_piece.h"
#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/json_object_scanner.h"
#include "runtime/text/answer/offered_tool.h"

namespace slipstream {

class HarmonyReader {
public:
    enum class Start : std::uint8_t { Header, Thought };
    enum class Dialect : std::uint8_t { GptOss, Muse };

    /// `tools` are the tools that the request offers and must outlive the reader; if there are none, calls are not
    /// read. With Start::Thought the prompt ends with the header of a thought.
    HarmonyReader(Dialect dialect, const OfferedTools& tools, Start start)
        : dialect_(dialect), tools_(tools), state_(start == Start::Thought ? State::Text : State::First) {
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
    void begin_xml_calls();
    void read_xml_calls(char c, std::vector<AnswerPiece>& out);
    void fail_call(std::vector<AnswerPiece>& out);
    void become_content();
    void emit_held(std::size_t n, std::vector<AnswerPiece>& out);
    void drop_held();
    void emit(std::string_view text, std::vector<AnswerPiece>& out);

    Dialect dialect_;
    const OfferedTools& tools_;
    State state_;
    AnswerPiece::Kind kind_ = AnswerPiece::Kind::Content;  // of the text of the message
    std::string held_;           // bytes that are not emitted yet: a header, a call with its header, part of a mark
    std::size_t n_skipped_ = 0;  // bytes at the beginning of held_ that are in the prompt
    std::string name_;           // of the tool that is called
    std::optional<JsonObjectScanner> arguments_;  // gpt-oss; nullopt before the first byte of the arguments
    std::unique_ptr<CallReader> calls_;           // Muse: reads the calls of a message
    bool may_be_text_ = false;                    // Muse: the message has no recipient, and its header is dropped
    bool has_called_ = false;                     // Muse: a call of the message has been read
    std::optional<AnswerPiece::Kind> last_kind_;  // of the last text; nullopt: none since the last call
    bool is_at_message_start_ = false;            // no text of the message is emitted yet
};

}  // namespace slipstream
