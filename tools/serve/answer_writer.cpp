#include "tools/serve/answer_writer.h"

#include <utility>

namespace slipstream::tools {

AnswerWriter::AnswerWriter(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape,
                           const TextRequest& request)
    : exchange_(std::move(exchange)),
      shape_(std::move(shape)),
      stream_(request.stream),
      with_usage_(request.include_usage),
      with_progress_(request.return_progress) {}

void AnswerWriter::begin() {
    if (!stream_) return exchange_->expect_whole();
    exchange_->begin_stream(shape_->silence_event());
    exchange_->send(shape_->first_event());
}

void AnswerWriter::progress(const PromptProgressReport& progress) {
    if (stream_ && with_progress_) exchange_->send(shape_->progress_event(progress));
}

void AnswerWriter::part(AnswerPart part) {
    if (part.empty()) return;
    if (stream_) return exchange_->send(shape_->part_event(part));
    whole_.text += part.text;
    for (TokenLogprob& token : part.logprobs) whole_.logprobs.push_back(std::move(token));
}

void AnswerWriter::finish(const TextOutcome& outcome) {
    if (!stream_) return exchange_->answer({.body = shape_->whole(whole_, outcome)});
    exchange_->send(shape_->last_events(outcome, with_usage_));
    exchange_->end();
}

void AnswerWriter::fail(const ApiError& error) {
    if (!stream_) return exchange_->answer(error.answer());
    exchange_->send(shape_->error_event(error.body()));
    exchange_->end();
}

}  // namespace slipstream::tools
