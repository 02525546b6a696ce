// Writes the answer to one request while its text grows: as a stream, or in one piece.
#pragma once

#include <memory>
#include <string>

#include "tools/serve/answer_shape.h"
#include "tools/serve/api_error.h"
#include "tools/serve/exchange.h"

namespace slipstream::tools {

class AnswerWriter {
public:
    AnswerWriter(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape, const TextRequest& request);

    /// Begins a stream, long before its first token.
    void begin();
    void progress(const PromptProgressReport& progress);
    void part(AnswerPart part);
    void finish(const TextOutcome& outcome);
    /// Ends the answer with an error. What was sent of a stream does not look finished.
    void fail(const ApiError& error);

    [[nodiscard]] const Exchange& exchange() const { return *exchange_; }

private:
    std::shared_ptr<Exchange> exchange_;
    std::unique_ptr<AnswerShape> shape_;
    bool stream_;
    bool with_usage_;
    bool with_progress_;
    AnswerPart whole_{};
};

}  // namespace slipstream::tools
