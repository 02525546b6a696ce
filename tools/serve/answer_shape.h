// The JSON of answers, one shape for each dialect: whole answers, and the events of streams. What clients stumble over
// is decided here: role and ids are in the first delta alone, every stream has a finish_reason, usage has its three
// counts.
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

/// What all events of an answer say.
struct AnswerHead {
    std::string id;            // without the prefix of a dialect
    std::int64_t created = 0;  // seconds since 1970
    std::string model;
    std::string fingerprint;  // of everything that a text depends on, besides the request
    std::uint64_t seed = 0;
    std::int64_t prompt_tokens = 0;
    std::vector<std::string> stops{};                   // of the request; the model's own are not among them
    TemplateValue tool_choice = TemplateValue::none();  // as chat completions have it
    bool one_call = false;
};

/// What a pass brought: content, thoughts and calls in their order, in whole characters.
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

    // Events of a stream, as they are sent; each may be several, or empty.
    [[nodiscard]] virtual std::string first_event() = 0;
    [[nodiscard]] virtual std::string part_event(const AnswerPart& part) = 0;
    [[nodiscard]] virtual std::string progress_event(const PromptProgressReport& progress) = 0;
    /// Sent while nothing else is: an event, since comments break some clients and do not count for others.
    [[nodiscard]] virtual std::string silence_event() = 0;
    /// `reason` is the finish_reason.
    [[nodiscard]] virtual std::string last_events(const TextOutcome& outcome, std::string_view reason,
                                                  bool with_usage) = 0;
    [[nodiscard]] virtual std::string error_event(const ApiError& error) = 0;
    /// How an error looks to a client that got nothing yet.
    [[nodiscard]] virtual ErrorShape error_shape() const { return ErrorShape::OpenAi; }

    /// The answer in one piece; `whole` has all parts together.
    [[nodiscard]] virtual std::string whole(const AnswerPart& whole, const TextOutcome& outcome,
                                            std::string_view reason) = 0;
};

/// `tokenizer` spells tokens with log probabilities and must outlive the shape.
[[nodiscard]] std::unique_ptr<AnswerShape> make_answer_shape(Dialect dialect, AnswerHead head,
                                                             const Tokenizer& tokenizer);

}  // namespace slipstream::tools
