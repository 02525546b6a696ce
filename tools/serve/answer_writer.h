// Writes the answer to one request while its text grows: as a stream, or in one piece.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/answer_shape.h"
#include "tools/serve/api_error.h"
#include "tools/serve/exchange.h"

namespace slipstream::tools {

class AnswerWriter {
public:
    /// `reader` divides the text into content, thoughts and tool calls; null: all of it is content.
    AnswerWriter(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape,
                 std::unique_ptr<AnswerReader> reader, const TextRequest& request);

    /// Begins the answer; call first. A stream is opened at once, long before its first token; a whole answer is
    /// announced, so that the exchange fills the silence before it.
    void begin();
    void progress(const PromptProgressReport& progress);
    /// Adds the text and the log probabilities of a pass. Returns true if generation should end: the request allows one
    /// tool call, and the answer has it.
    [[nodiscard]] bool part(std::string_view text, std::span<const TokenLogprob> logprobs);
    void finish(const TextOutcome& outcome);
    /// Ends the answer with an error. A stream that has begun gets an error event and no end mark, so it does not look
    /// finished.
    void fail(const ApiError& error);

    [[nodiscard]] const Exchange& exchange() const { return *exchange_; }

private:
    void write(std::vector<AnswerPiece> pieces, std::span<const TokenLogprob> logprobs);

    std::shared_ptr<Exchange> exchange_;
    std::unique_ptr<AnswerShape> shape_;
    std::unique_ptr<AnswerReader> reader_;
    bool stream_;
    bool with_usage_;
    bool with_progress_;
    bool one_call_;
    std::size_t n_calls_ = 0;
    AnswerPart whole_{};
};

}  // namespace slipstream::tools
