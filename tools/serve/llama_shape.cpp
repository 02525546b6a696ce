// The shape of /completion, llama-server's own: the text is `content`; a stream ends with an event that has "stop":
// true and the figures, without an end mark.
#include <utility>

#include <fmt/format.h>

#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/serve/answer_json.h"
#include "tools/serve/dialect_shapes.h"

namespace slipstream::tools {

namespace {

std::string_view stop_type(StopReason reason) {
    switch (reason) {
        case StopReason::EndToken:
            return "eos";
        case StopReason::StopString:
            return "word";
        case StopReason::Length:
        case StopReason::Context:
            return "limit";
        case StopReason::Interrupt:
            break;
    }
    return "none";
}

class LlamaShape final : public AnswerShape {
public:
    LlamaShape(AnswerHead head, const Tokenizer& tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

    std::string first_event() override { return {}; }

    std::string part_event(const AnswerPart& part) override {
        return part.empty() ? std::string() : data_event(answer_with(part));
    }

    std::string progress_event(const PromptProgressReport& progress) override {
        Json event = answer_with({});
        event["prompt_progress"] = progress_json(progress);
        return data_event(event);
    }

    std::string silence_event() override { return data_event(answer_with({})); }

    std::string last_events(const TextOutcome& outcome, std::string_view /*reason*/, bool /*with_usage*/) override {
        return data_event(ended({}, outcome));
    }

    std::string error_event(const ApiError& error) override { return fmt::format("data: {}\n\n", error.body()); }

    std::string whole(const AnswerPart& whole, const TextOutcome& outcome, std::string_view /*reason*/) override {
        return json_text(ended(whole, outcome));
    }

private:
    [[nodiscard]] Json answer_with(const AnswerPart& part) const {
        std::string text;
        for (const AnswerPiece& piece : part.pieces)
            text += piece.text;  // all pieces are content: there is no AnswerReader
        Json answer{{"index", 0}, {"content", text}, {"tokens", Json::array()}, {"id_slot", 0}, {"stop", false}};
        if (!part.logprobs.empty()) answer["completion_probabilities"] = logprobs_json(part.logprobs);
        return answer;
    }

    [[nodiscard]] Json ended(const AnswerPart& part, const TextOutcome& outcome) const {
        const TextGenerationResult& result = outcome.result;
        Json answer = answer_with(part);
        answer["stop"] = true;
        answer["model"] = head_.model;
        answer["tokens_predicted"] = result.tokens.size();
        answer["tokens_evaluated"] = result.prompt_tokens;
        answer["tokens_cached"] = outcome.reused_tokens;
        answer["truncated"] = false;
        answer["stop_type"] = stop_type(result.stop_reason);
        answer["stopping_word"] = result.stop;
        add_figures(answer, head_, outcome);
        return answer;
    }

    [[nodiscard]] Json token_json(TokenId id, float logprob) const {
        const std::string_view text = token_text(tokenizer_, id);
        return {{"id", id}, {"token", text}, {"bytes", byte_list(text)}, {"logprob", logprob}};
    }

    [[nodiscard]] Json logprobs_json(const std::vector<TokenLogprob>& logprobs) const {
        Json list = Json::array();
        for (const TokenLogprob& token : logprobs) {
            Json best = Json::array();
            for (const TokenLogprob::Alternative& each : token.best) best.push_back(token_json(each.id, each.logprob));
            list.push_back(token_json(token.id, token.logprob));
            list.back()["top_logprobs"] = std::move(best);
        }
        return list;
    }

    AnswerHead head_;
    const Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<AnswerShape> make_llama_shape(AnswerHead head, const Tokenizer& tokenizer) {
    return std::make_unique<LlamaShape>(std::move(head), tokenizer);
}

}  // namespace slipstream::tools
