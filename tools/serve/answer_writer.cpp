#include "tools/serve/answer_writer.h"

#include <algorithm>
#include <utility>

namespace slipstream::tools {

AnswerWriter::AnswerWriter(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerShape> shape,
                           std::unique_ptr<AnswerReader> reader, const TextRequest& request)
    : exchange_(std::move(exchange)),
      shape_(std::move(shape)),
      reader_(std::move(reader)),
      stream_(request.stream),
      with_usage_(request.include_usage),
      with_progress_(request.return_progress),
      one_call_(request.one_call) {}

void AnswerWriter::begin() {
    if (!stream_) return exchange_->expect_whole();
    exchange_->begin_stream(shape_->silence_event());
    exchange_->send(shape_->first_event());
}

void AnswerWriter::progress(const PromptProgressReport& progress) {
    if (stream_ && with_progress_) exchange_->send(shape_->progress_event(progress));
}

bool AnswerWriter::part(std::string_view text, std::span<const TokenLogprob> logprobs) {
    std::vector<AnswerPiece> pieces;
    if (reader_)
        pieces = reader_->push(text);
    else if (!text.empty())
        pieces.push_back({.text = std::string(text)});
    write(std::move(pieces), logprobs);
    return one_call_ && n_calls_ > 0;
}

void AnswerWriter::write(std::vector<AnswerPiece> pieces, std::span<const TokenLogprob> logprobs) {
    const auto is_call = [](const AnswerPiece& piece) { return piece.kind == AnswerPiece::Kind::Call; };
    if (one_call_) {  // a pass may yield several calls; only the first is sent
        const auto first = std::ranges::find_if(pieces, is_call);
        if (n_calls_ > 0)
            pieces.clear();
        else if (first != pieces.end())
            pieces.erase(first + 1, pieces.end());
    }
    n_calls_ += static_cast<std::size_t>(std::ranges::count_if(pieces, is_call));
    AnswerPart part{.pieces = std::move(pieces), .logprobs = {logprobs.begin(), logprobs.end()}};
    if (part.empty()) return;
    if (stream_) return exchange_->send(shape_->part_event(part));
    for (AnswerPiece& piece : part.pieces) whole_.pieces.push_back(std::move(piece));
    for (TokenLogprob& token : part.logprobs) whole_.logprobs.push_back(std::move(token));
}

void AnswerWriter::finish(const TextOutcome& outcome) {
    if (reader_) write(reader_->finish(), {});
    const bool ended =
        outcome.result.stop_reason != StopReason::Length && outcome.result.stop_reason != StopReason::Context;
    const std::string_view reason = !ended ? "length" : n_calls_ > 0 ? "tool_calls" : "stop";
    if (!stream_) return exchange_->answer({.body = shape_->whole(whole_, outcome, reason)});
    exchange_->send(shape_->last_events(outcome, reason, with_usage_));
    exchange_->end();
}

void AnswerWriter::fail(const ApiError& error) {
    if (!stream_) return exchange_->answer(error.answer(shape_->error_shape()));
    exchange_->send(shape_->error_event(error));
    exchange_->end_and_close();
}

}  // namespace slipstream::tools
