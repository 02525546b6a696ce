// The JSON of answers, one shape for each dialect: whole answers, and the events of streams. Rules on which clients of
// chat completions rely: the role is in the first delta alone, each tool call with its id is in one delta, every stream
// has a finish_reason, usage has its three counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_reader.h"
#include "tools/serve/api_error.h"
#include "tools/serve/text_engine.h"
#include "tools/serve/text_request.h"

namespace slipstream {
class Tokenizer;
}

namespace slipstream::tools {

/// What all events of an answer have in common; fixed before the first one.
struct AnswerHead {
    std::string id;            // id of the answer; each shape adds its prefix, such as "chatcmpl-"
    std::int64_t created = 0;  // seconds since 1970
    std::string model;
    std::string fingerprint;  // identifies everything besides the request that decides the text
    std::uint64_t seed = 0;
    std::int64_t prompt_tokens = 0;
    std::vector<std::string> stops{};                   // stop texts of the request, without those of the model
    TemplateValue tool_choice = TemplateValue::none();  // tool_choice of the request, in the form of chat completions
    bool one_call = false;
};

/// A part of an answer, from one pass, or the whole answer: content, thoughts and tool calls in their order, in whole
/// characters, and the log probabilities of its tokens if the request asks for them.
struct AnswerPart {
    std::vector<AnswerPiece> pieces{};
    std::vector<TokenLogprob> logprobs{};

    [[nodiscard]] bool empty() const { return pieces.empty() && logprobs.empty(); }
};

struct PromptProgressReport {
    std::int64_t total = 0;
    std::int64_t cached = 0;
    std::int64_t processed = 0;
    std::int64_t milliseconds = 0;
};

class AnswerShape {
public:
    AnswerShape() = default;
    AnswerShape(const AnswerShape&) = delete;
    AnswerShape& operator=(const AnswerShape&) = delete;
    virtual ~AnswerShape() = default;

    // The *_event and *_events functions return bytes of a stream as they are sent: one event, several, or none
    // (empty).

    [[nodiscard]] virtual std::string first_event() = 0;
    [[nodiscard]] virtual std::string part_event(const AnswerPart& part) = 0;
    [[nodiscard]] virtual std::string progress_event(const PromptProgressReport& progress) = 0;
    /// Returns the event that is sent when a stream has been silent for a while. It is an event and not a comment,
    /// since comments break some clients, and others do not count them as a sign of life.
    [[nodiscard]] virtual std::string silence_event() = 0;
    /// Returns the events that end a stream. `reason` is the finish_reason of chat completions: "stop", "length" or
    /// "tool_calls". `with_usage`: the client has asked for the usage.
    [[nodiscard]] virtual std::string last_events(const TextOutcome& outcome, std::string_view reason,
                                                  bool with_usage) = 0;
    [[nodiscard]] virtual std::string error_event(const ApiError& error) = 0;
    /// Returns the shape of an error for a client that has not got any part of the answer.
    [[nodiscard]] virtual ErrorShape error_shape() const { return ErrorShape::OpenAi; }

    /// Returns the body of an answer that is not a stream. `whole` has all parts of the answer. Call once, and none of
    /// the functions for events besides.
    [[nodiscard]] virtual std::string whole(const AnswerPart& whole, const TextOutcome& outcome,
                                            std::string_view reason) = 0;
};

/// Makes the shape of a dialect. `tokenizer` spells the tokens of log probabilities and counts those of thoughts; it
/// must outlive the shape.
[[nodiscard]] std::unique_ptr<AnswerShape> make_answer_shape(Dialect dialect, AnswerHead head,
                                                             const Tokenizer& tokenizer);

}  // namespace slipstream::tools
