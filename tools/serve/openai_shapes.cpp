// The shapes of /v1/chat/completions and /v1/completions.
#include <utility>

#include <fmt/format.h>

#include "runtime/text/request/call_ids.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/serve/answer_json.h"
#include "tools/serve/dialect_shapes.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

// Returns the events that end a stream: `last` with `reason` as its finish_reason, the usage if the client asked for
// it, and the end mark.
std::string end_of_stream(Json last, const AnswerHead& head, const TextOutcome& outcome, std::string_view reason,
                          bool with_usage) {
    Json usage = last;
    last["choices"][0]["finish_reason"] = reason;
    if (!with_usage) {
        add_figures(last, head, outcome);
        return fmt::format("{}{}", data_event(last), kDone);
    }
    usage["choices"] = Json::array();
    usage["usage"] = usage_json(outcome);
    add_figures(usage, head, outcome);
    return fmt::format("{}{}{}", data_event(last), data_event(usage), kDone);
}

class ChatShape final : public AnswerShape {
public:
    ChatShape(AnswerHead head, const Tokenizer& tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

    std::string first_event() override { return data_event(chunk({{"role", "assistant"}, {"content", ""}})); }

    std::string part_event(const AnswerPart& part) override {
        std::string events;
        for (const AnswerPiece& piece : part.pieces) {
            Json event = chunk(delta_json(piece));
            if (events.empty()) add_logprobs(part, event);
            events += data_event(event);
        }
        if (!events.empty() || part.logprobs.empty()) return events;
        // The reader holds the text of these tokens back, so their probabilities are sent in an event without text.
        Json event = chunk(Json::object());
        add_logprobs(part, event);
        return data_event(event);
    }

    std::string progress_event(const PromptProgressReport& progress) override {
        Json event = chunk(Json::object());
        event["prompt_progress"] = progress_json(progress);
        return data_event(event);
    }

    std::string silence_event() override { return data_event(chunk(Json::object())); }

    std::string last_events(const TextOutcome& outcome, std::string_view reason, bool with_usage) override {
        return end_of_stream(chunk(Json::object()), head_, outcome, reason, with_usage);
    }

    std::string error_event(const ApiError& error) override { return fmt::format("data: {}\n\n", error.body()); }

    std::string whole(const AnswerPart& whole, const TextOutcome& outcome, std::string_view reason) override {
        Json answer = head("chat.completion");
        answer["choices"] = Json::array(
            {{{"index", 0}, {"message", message_json(whole)}, {"logprobs", nullptr}, {"finish_reason", reason}}});
        add_logprobs(whole, answer);
        answer["usage"] = usage_json(outcome);
        add_figures(answer, head_, outcome);
        return json_text(answer);
    }

private:
    [[nodiscard]] Json head(std::string_view object) const {
        return {{"id", fmt::format("chatcmpl-{}", head_.id)},
                {"object", object},
                {"created", head_.created},
                {"model", head_.model},
                {"system_fingerprint", head_.fingerprint}};
    }

    [[nodiscard]] Json chunk(Json delta) const {
        Json event = head("chat.completion.chunk");
        event["choices"] = Json::array({{{"index", 0}, {"delta", std::move(delta)}, {"finish_reason", nullptr}}});
        return event;
    }

    // Returns a tool call as JSON and counts it. It is never divided: a stream sends it in one delta. Its index is the
    // number of calls before it; its id has nine letters or digits, which all chat templates accept.
    [[nodiscard]] Json call_json(const AnswerPiece& call) {
        const std::int64_t index = n_calls_++;
        return {{"index", index},
                {"id", nine_character_id(fmt::format("{}/{}", head_.id, index))},
                {"type", "function"},
                {"function", {{"name", call.name}, {"arguments", call.text}}}};
    }

    [[nodiscard]] Json delta_json(const AnswerPiece& piece) {
        Json delta;
        if (piece.kind == AnswerPiece::Kind::Call)
            delta["tool_calls"] = Json::array({call_json(piece)});
        else
            delta[piece.kind == AnswerPiece::Kind::Thought ? "reasoning_content" : "content"] = piece.text;
        return delta;
    }

    [[nodiscard]] Json message_json(const AnswerPart& whole) {
        std::string content;
        std::string thought;
        Json calls = Json::array();
        for (const AnswerPiece& piece : whole.pieces) {
            if (piece.kind == AnswerPiece::Kind::Content) content += piece.text;
            if (piece.kind == AnswerPiece::Kind::Thought) thought += piece.text;
            if (piece.kind != AnswerPiece::Kind::Call) continue;
            Json call = call_json(piece);
            call.erase("index");
            calls.push_back(std::move(call));
        }
        Json message{{"role", "assistant"}, {"content", content}};
        if (content.empty() && !calls.empty()) message["content"] = nullptr;
        if (!thought.empty()) message["reasoning_content"] = thought;
        if (!calls.empty()) message["tool_calls"] = std::move(calls);
        return message;
    }

    void add_logprobs(const AnswerPart& part, Json& event) const {
        if (!part.logprobs.empty()) event["choices"][0]["logprobs"] = logprobs_json(part.logprobs);
    }

    [[nodiscard]] Json token_json(TokenId id, float logprob) const {
        const std::string_view text = token_text(tokenizer_, id);
        return {{"token", text}, {"logprob", logprob}, {"bytes", byte_list(text)}};
    }

    [[nodiscard]] Json logprobs_json(const std::vector<TokenLogprob>& logprobs) const {
        Json content = Json::array();
        for (const TokenLogprob& token : logprobs) {
            Json best = Json::array();
            for (const TokenLogprob::Alternative& each : token.best) best.push_back(token_json(each.id, each.logprob));
            content.push_back(token_json(token.id, token.logprob));
            content.back()["top_logprobs"] = std::move(best);
        }
        return {{"content", std::move(content)}, {"refusal", nullptr}};
    }

    AnswerHead head_;
    const Tokenizer& tokenizer_;
    std::int64_t n_calls_ = 0;
};

class CompletionShape final : public AnswerShape {
public:
    CompletionShape(AnswerHead head, const Tokenizer& tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

    std::string first_event() override { return {}; }

    std::string part_event(const AnswerPart& part) override {
        if (part.empty()) return {};
        return data_event(answer_with(part));
    }

    std::string progress_event(const PromptProgressReport& progress) override {
        Json event = answer_with({});
        event["prompt_progress"] = progress_json(progress);
        return data_event(event);
    }

    std::string silence_event() override { return data_event(answer_with({})); }

    std::string last_events(const TextOutcome& outcome, std::string_view reason, bool with_usage) override {
        return end_of_stream(answer_with({}), head_, outcome, reason, with_usage);
    }

    std::string error_event(const ApiError& error) override { return fmt::format("data: {}\n\n", error.body()); }

    std::string whole(const AnswerPart& whole, const TextOutcome& outcome, std::string_view reason) override {
        Json answer = answer_with(whole);
        answer["choices"][0]["finish_reason"] = reason;
        answer["usage"] = usage_json(outcome);
        add_figures(answer, head_, outcome);
        return json_text(answer);
    }

private:
    [[nodiscard]] Json answer_with(const AnswerPart& part) {
        std::string text;
        for (const AnswerPiece& piece : part.pieces)
            text += piece.text;  // all pieces are content: there is no AnswerReader
        Json choice{{"index", 0}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
        if (!part.logprobs.empty()) choice["logprobs"] = logprobs_json(part.logprobs);
        return {{"id", fmt::format("cmpl-{}", head_.id)},
                {"object", "text_completion"},
                {"created", head_.created},
                {"model", head_.model},
                {"system_fingerprint", head_.fingerprint},
                {"choices", Json::array({std::move(choice)})}};
    }

    // Returns the log probabilities with one list for each property. "text_offset" is in bytes from the first generated
    // token.
    [[nodiscard]] Json logprobs_json(const std::vector<TokenLogprob>& logprobs) {
        Json json{{"tokens", Json::array()},
                  {"token_logprobs", Json::array()},
                  {"top_logprobs", Json::array()},
                  {"text_offset", Json::array()}};
        for (const TokenLogprob& token : logprobs) {
            Json best = Json::object();
            for (const TokenLogprob::Alternative& each : token.best)
                best[std::string(token_text(tokenizer_, each.id))] = each.logprob;
            json["tokens"].push_back(token_text(tokenizer_, token.id));
            json["token_logprobs"].push_back(token.logprob);
            json["top_logprobs"].push_back(std::move(best));
            json["text_offset"].push_back(text_offset_);
            text_offset_ += tokenizer_.token_bytes(token.id).size();
        }
        return json;
    }

    AnswerHead head_;
    const Tokenizer& tokenizer_;
    std::size_t text_offset_ = 0;
};

}  // namespace

std::unique_ptr<AnswerShape> make_chat_shape(AnswerHead head, const Tokenizer& tokenizer) {
    return std::make_unique<ChatShape>(std::move(head), tokenizer);
}

std::unique_ptr<AnswerShape> make_completion_shape(AnswerHead head, const Tokenizer& tokenizer) {
    return std::make_unique<CompletionShape>(std::move(head), tokenizer);
}

}  // namespace slipstream::tools
