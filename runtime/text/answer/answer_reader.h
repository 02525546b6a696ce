// Reads a generated answer while it grows: divides it into content, thoughts and tool calls. The input is the text of
// generate_text(), in which control tokens that are marks are spelt out (is_answer_mark()), in parts of any size; how
// the text is divided does not change what is read.
//
// Rules:
// - Nothing is dropped but marks that were understood, and white space next to them. What is not understood is content,
//   as the model wrote it: a call that is no valid JSON, has no name, or is cut off at the end of the answer.
// - A call is a piece only when it is complete, so a client never gets half a call. A missing closing mark does not
//   matter.
// - Marks around the content of an answer (Granite 3.3) are dropped if the opening one begins the answer or follows the
//   thought, and only a call or nothing follows the closing one.
// - A thought begins only at the beginning of the answer; a mark in the middle of a sentence is content. Calls in
//   thoughts and in strings of arguments are not calls.
// - Calls are read only if tools are offered. A call of an unknown tool is a call, since its marks say so.
// - In the forms Hermes and Llama 3, a JSON object at the beginning of the answer or after a call, also in a fence of
//   Markdown (```json), is a call if it has arguments and the name of an offered tool. Llama 3 writes no other form;
//   small models of Qwen (2.5 Coder) often forget the marks.
// - Answers in the forms Harmony and Muse are messages with headers, thoughts among them (harmony_reader.h).
//
// No input makes the reader throw. The time is linear in the length of the answer: text that failed to be a call is not
// searched again, except for the byte at which it failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_form.h"
#include "runtime/text/answer/answer_piece.h"
#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/harmony_reader.h"
#include "runtime/text/answer/offered_tool.h"

namespace slipstream {

class AnswerReader {
public:
    enum class Start : std::uint8_t { Text, Thought };

    /// `tools` are the tools that the request offers; if there are none, calls are not read. With Start::Thought the
    /// prompt has opened a thought (ends_in_thought()), so the answer begins inside it.
    AnswerReader(const AnswerForm& form, OfferedTools tools, Start start = Start::Text);
    AnswerReader(const AnswerReader&) = delete;
    AnswerReader& operator=(const AnswerReader&) = delete;

    /// Reads a part of the answer that is already in the prompt: the beginning of a call (append_call_start()), or an
    /// answer that is continued. Its content and thoughts are dropped. Call before push().
    void skip(std::string_view text);
    /// Reads the next part of the answer and returns the pieces that it completes. Adjacent text of one kind is one
    /// piece.
    [[nodiscard]] std::vector<AnswerPiece> push(std::string_view text);
    /// Ends the answer and returns the text that was held back because it could have become a mark or a call. Call
    /// once.
    [[nodiscard]] std::vector<AnswerPiece> finish();

    [[nodiscard]] std::size_t n_calls() const { return n_calls_; }
    [[nodiscard]] bool in_thought() const { return harmony_ ? harmony_->in_thought() : state_ == State::Thought; }

private:
    enum class State : std::uint8_t {
        Beginning,
        Content,
        MarkedContent,  // content after its opening mark
        AfterContent,   // after the closing mark of content
        Thought,
        AfterThought,
        InCall,
        AfterCall,
    };
    enum class Effect : std::uint8_t { OpensThought, OpensContent, ClosesContent, OpensCall, BeginsCall, Separates };
    /// A text that opens or separates thoughts and calls, if it appears in one of the states `states`.
    struct Mark {
        std::string_view text;
        Effect effect = Effect::OpensCall;  // BeginsCall: the mark is itself the first part of the call
        unsigned states = 0;                // set of the states in which the mark counts: bits 1 << State
        bool is_weak = false;               // calls after it count only with arguments and the name of an offered tool
    };

    void step(char c);
    void step_text(char c);
    void step_thought(char c);
    void step_call(char c);
    [[nodiscard]] bool may_begin(const Mark& mark, std::string_view begun) const;
    [[nodiscard]] bool take_mark();
    void enter(const Mark& mark);
    void fail_call(char c);
    void flush_pending();
    void forget_pending();
    void emit(AnswerPiece::Kind kind, std::string_view text);

    OfferedTools tools_;
    std::optional<HarmonyReader> harmony_;  // reads all of the answer if its form consists of messages
    CallForm calls_;
    std::string_view thought_end_;
    std::vector<Mark> marks_;
    State state_;
    State text_state_ = State::Content;  // the state of content: Content or MarkedContent
    std::string closing_;                // held back in AfterContent: the closing mark and the white space before it
    // Text that is held back: white space, then a prefix of a mark; inside a call, all text since the last complete
    // call.
    std::string pending_;
    std::size_t n_space_ = 0;  // leading white space of pending_, bytes
    // Bytes at the beginning of pending_ that skip() read: they are in the prompt, so they are not emitted.
    std::size_t n_skipped_ = 0;
    bool drops_space_ = false;          // white space at the beginning of pending_ belongs to the mark before it
    bool is_weak_ = false;              // Mark::is_weak of the mark before call_
    std::unique_ptr<CallReader> call_;  // reads the calls while state_ is InCall
    std::size_t n_calls_ = 0;
    std::vector<AnswerPiece> out_;
};

}  // namespace slipstream
