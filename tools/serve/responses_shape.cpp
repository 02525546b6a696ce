// The shape of /v1/responses (OpenAI). An answer is a list of items: reasoning, messages, function calls. Each event
// has a sequence_number, and says by output_index, item_id and content_index to what it belongs. Clients take an item
// from response.output_item.done, which has all of it, and the usage from response.completed.
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "runtime/text/request/call_ids.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/serve/answer_json.h"
#include "tools/serve/dialect_shapes.h"

namespace slipstream::tools {

namespace {

using Kind = AnswerPiece::Kind;

Json choice_json(const TemplateValue& choice) {
    if (choice.is_text()) return choice.view();
    if (!choice.is(jinja::Kind::Dict)) return "auto";
    return {{"type", "function"}, {"name", choice.dict().find("function")->dict().find("name")->view()}};
}

class ResponsesShape final : public AnswerShape {
public:
    ResponsesShape(AnswerHead head, const Tokenizer& tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

    std::string first_event() override {
        std::string events = response_event("response.created", response_json("in_progress"));
        return events += response_event("response.in_progress", response_json("in_progress"));
    }

    std::string part_event(const AnswerPart& part) override {
        std::string events;
        for (const AnswerPiece& piece : part.pieces) {
            if (open_ != piece.kind || piece.kind == Kind::Call) {
                events += close("completed");
                events += open(piece);
            }
            events += add(piece);
        }
        return events;
    }

    std::string progress_event(const PromptProgressReport& progress) override {
        Json response = response_json("in_progress");
        response["prompt_progress"] = progress_json(progress);
        return response_event("response.in_progress", std::move(response));
    }

    // Returns the stream's second event, response.in_progress, once more and with its old sequence_number, 1: a client
    // that counts events takes it for a repetition.
    std::string silence_event() override {
        return named_event(
            {{"type", "response.in_progress"}, {"sequence_number", 1}, {"response", response_json("in_progress")}});
    }

    std::string last_events(const TextOutcome& outcome, std::string_view reason, bool /*with_usage*/) override {
        const bool is_cut = reason == "length";
        std::string events = close(is_cut ? "incomplete" : "completed");
        return events += response_event(is_cut ? "response.incomplete" : "response.completed", ended(outcome, is_cut));
    }

    std::string error_event(const ApiError& error) override {
        Json response = response_json("failed");
        response["error"] = {{"code", error.code().empty() ? error.type() : error.code()}, {"message", error.what()}};
        return response_event("response.failed", std::move(response));
    }

    std::string whole(const AnswerPart& whole, const TextOutcome& outcome, std::string_view reason) override {
        const bool is_cut = reason == "length";
        static_cast<void>(part_event(whole));
        static_cast<void>(close(is_cut ? "incomplete" : "completed"));
        return json_text(ended(outcome, is_cut));
    }

private:
    [[nodiscard]] Json response_json(std::string_view status) const {
        return {{"id", fmt::format("resp_{}", head_.id)},
                {"object", "response"},
                {"created_at", head_.created},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", head_.model},
                {"output", output_},
                {"parallel_tool_calls", !head_.one_call},
                {"previous_response_id", nullptr},
                {"store", false},
                {"tool_choice", choice_json(head_.tool_choice)},
                {"tools", Json::array()},  // not repeated: those of the request are often larger than the answer
                {"usage", nullptr}};
    }

    [[nodiscard]] Json ended(const TextOutcome& outcome, bool is_cut) const {
        Json response = response_json(is_cut ? "incomplete" : "completed");
        if (is_cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
        const std::int64_t n_prompt = outcome.result.prompt_tokens;
        const auto n_generated = static_cast<std::int64_t>(outcome.result.tokens.size());
        response["usage"] = {
            {"input_tokens", n_prompt},
            {"input_tokens_details", {{"cached_tokens", outcome.reused_tokens}, {"cache_write_tokens", 0}}},
            {"output_tokens", n_generated},
            {"output_tokens_details", {{"reasoning_tokens", thought_tokens_}}},
            {"total_tokens", n_prompt + n_generated}};
        add_figures(response, head_, outcome);
        return response;
    }

    [[nodiscard]] std::string response_event(std::string_view type, Json response) {
        return named_event({{"type", type}, {"sequence_number", n_events_++}, {"response", std::move(response)}});
    }

    // Returns an event about the open item, with the members of `more`.
    [[nodiscard]] std::string item_event(std::string_view type, const Json& more) {
        Json event{{"type", type}, {"sequence_number", n_events_++}, {"output_index", output_.size()}};
        event.update(more);
        return named_event(event);
    }

    // Returns an event about the text of the open item, with the members of `more`. An item has one text, so its
    // content_index is 0.
    [[nodiscard]] std::string text_event(std::string_view type, Json more) {
        more["item_id"] = item_.at("id");
        more["content_index"] = 0;
        return item_event(type, more);
    }

    [[nodiscard]] bool is_message() const { return open_ == Kind::Content; }
    [[nodiscard]] std::string_view text_name() const {
        return is_message() ? "response.output_text" : "response.reasoning_text";
    }
    [[nodiscard]] Json text_part(const std::string& text) const {
        if (is_message())
            return {
                {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
        return {{"type", "reasoning_text"}, {"text", text}};
    }

    [[nodiscard]] std::string open(const AnswerPiece& piece) {
        open_ = piece.kind;
        text_.clear();
        const std::string id = fmt::format("{}_{}", head_.id, output_.size());
        if (piece.kind == Kind::Call) {
            item_ = {{"id", fmt::format("fc_{}", id)},   {"type", "function_call"}, {"status", "in_progress"},
                     {"call_id", nine_character_id(id)}, {"name", piece.name},      {"arguments", ""}};
            return item_event("response.output_item.added", {{"item", item_}});
        }
        if (is_message())
            item_ = {{"id", fmt::format("msg_{}", id)},
                     {"type", "message"},
                     {"status", "in_progress"},
                     {"role", "assistant"},
                     {"content", Json::array()}};
        else
            item_ = {{"id", fmt::format("rs_{}", id)},
                     {"type", "reasoning"},
                     {"summary", Json::array()},
                     {"content", Json::array()}};
        std::string events = item_event("response.output_item.added", {{"item", item_}});
        return events += text_event("response.content_part.added", {{"part", text_part("")}});
    }

    [[nodiscard]] std::string add(const AnswerPiece& piece) {
        text_ += piece.text;
        if (piece.kind == Kind::Call)
            return item_event("response.function_call_arguments.delta",
                              {{"item_id", item_.at("id")}, {"delta", piece.text}});
        Json more{{"delta", piece.text}};
        if (is_message()) more["logprobs"] = Json::array();
        return text_event(fmt::format("{}.delta", text_name()), std::move(more));
    }

    // Closes the open item with this status and returns its last events; empty if no item is open.
    [[nodiscard]] std::string close(std::string_view status) {
        if (!open_) return {};
        std::string events;
        if (*open_ == Kind::Call) {
            item_["arguments"] = text_;
            events += item_event("response.function_call_arguments.done",
                                 {{"item_id", item_.at("id")}, {"name", item_.at("name")}, {"arguments", text_}});
        } else {
            if (*open_ == Kind::Thought)
                thought_tokens_ += tokenizer_.encode(text_, SpecialTokens::AsText, nullptr).size();
            Json more{{"text", text_}};
            if (is_message()) more["logprobs"] = Json::array();
            events += text_event(fmt::format("{}.done", text_name()), std::move(more));
            events += text_event("response.content_part.done", {{"part", text_part(text_)}});
            item_["content"].push_back(text_part(text_));
        }
        if (item_.contains("status")) item_["status"] = *open_ == Kind::Call ? "completed" : status;
        events += item_event("response.output_item.done", {{"item", item_}});
        output_.push_back(std::move(item_));
        open_.reset();
        return events;
    }

    AnswerHead head_;
    const Tokenizer& tokenizer_;
    std::int64_t n_events_ = 0;
    Json output_ = Json::array();  // complete items
    std::optional<Kind> open_;
    Json item_;         // the open item, as it began; its text is in text_
    std::string text_;  // text of the open item so far
    std::size_t thought_tokens_ = 0;
};

}  // namespace

std::unique_ptr<AnswerShape> make_responses_shape(AnswerHead head, const Tokenizer& tokenizer) {
    return std::make_unique<ResponsesShape>(std::move(head), tokenizer);
}

}  // namespace slipstream::tools
