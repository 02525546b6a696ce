// The shape of /v1/messages (Anthropic). An answer is a list of blocks: text, thinking, tool_use. A stream opens a
// block, adds to it, and closes it before the next one. Thoughts have an empty signature, since nothing signs them
// here.
#include <algorithm>
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

class MessagesShape final : public AnswerShape {
public:
    MessagesShape(AnswerHead head, const Tokenizer& tokenizer) : head_(std::move(head)), tokenizer_(tokenizer) {}

    std::string first_event() override {
        Json message = message_json();
        // How many tokens of the prompt are reused is not known yet; the last event has it.
        message["usage"] = {{"input_tokens", head_.prompt_tokens},
                            {"cache_creation_input_tokens", 0},
                            {"cache_read_input_tokens", 0},
                            {"output_tokens", 0}};
        return named_event({{"type", "message_start"}, {"message", std::move(message)}}) + silence_event();
    }

    std::string part_event(const AnswerPart& part) override {
        std::string events;
        for (const AnswerPiece& piece : part.pieces) {
            if (open_ != piece.kind || piece.kind == Kind::Call) {
                events += close();
                events += open(piece);
            }
            events += add(piece);
        }
        return events;
    }

    std::string progress_event(const PromptProgressReport& progress) override {
        return named_event({{"type", "ping"}, {"prompt_progress", progress_json(progress)}});
    }

    std::string silence_event() override { return named_event({{"type", "ping"}}); }

    std::string last_events(const TextOutcome& outcome, std::string_view reason, bool /*with_usage*/) override {
        std::string events = close();
        Json last{{"type", "message_delta"}, {"delta", stop_json(outcome, reason)}, {"usage", usage(outcome)}};
        add_figures(last, head_, outcome);
        events += named_event(last);
        return events += named_event({{"type", "message_stop"}});
    }

    std::string error_event(const ApiError& error) override {
        return fmt::format("event: error\ndata: {}\n\n", error.body(error_shape()));
    }

    ErrorShape error_shape() const override { return ErrorShape::Anthropic; }

    std::string whole(const AnswerPart& whole, const TextOutcome& outcome, std::string_view reason) override {
        static_cast<void>(part_event(whole));
        static_cast<void>(close());
        Json message = message_json();
        message["content"] = std::move(blocks_);
        message.update(stop_json(outcome, reason));
        message["usage"] = usage(outcome);
        add_figures(message, head_, outcome);
        return json_text(message);
    }

private:
    [[nodiscard]] Json message_json() const {
        return {{"id", fmt::format("msg_{}", head_.id)},
                {"type", "message"},
                {"role", "assistant"},
                {"model", head_.model},
                {"content", Json::array()},
                {"stop_reason", nullptr},
                {"stop_sequence", nullptr}};
    }

    [[nodiscard]] Json event(std::string_view type) const { return {{"type", type}, {"index", blocks_.size()}}; }

    [[nodiscard]] std::string open(const AnswerPiece& piece) {
        open_ = piece.kind;
        text_.clear();
        if (piece.kind == Kind::Content) block_ = {{"type", "text"}, {"text", ""}};
        if (piece.kind == Kind::Thought) block_ = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
        if (piece.kind == Kind::Call)
            block_ = {{"type", "tool_use"},
                      {"id", nine_character_id(fmt::format("{}/{}", head_.id, blocks_.size()))},
                      {"name", piece.name},
                      {"input", Json::object()}};
        Json start = event("content_block_start");
        start["content_block"] = block_;
        return named_event(start);
    }

    [[nodiscard]] std::string add(const AnswerPiece& piece) {
        text_ += piece.text;
        Json delta = event("content_block_delta");
        if (piece.kind == Kind::Content) delta["delta"] = {{"type", "text_delta"}, {"text", piece.text}};
        if (piece.kind == Kind::Thought) delta["delta"] = {{"type", "thinking_delta"}, {"thinking", piece.text}};
        if (piece.kind == Kind::Call) delta["delta"] = {{"type", "input_json_delta"}, {"partial_json", piece.text}};
        return named_event(delta);
    }

    // Closes the open block and returns its last events; empty if no block is open.
    [[nodiscard]] std::string close() {
        if (!open_) return {};
        std::string events;
        if (*open_ == Kind::Content) block_["text"] = text_;
        if (*open_ == Kind::Call)
            block_["input"] = Json::parse(text_);  // does not throw: AnswerReader yields valid objects
        if (*open_ == Kind::Thought) {
            block_["thinking"] = text_;
            thought_tokens_ += tokenizer_.encode(text_, SpecialTokens::AsText, nullptr).size();
            Json delta = event("content_block_delta");
            delta["delta"] = {{"type", "signature_delta"}, {"signature", ""}};
            events += named_event(delta);
        }
        events += named_event(event("content_block_stop"));
        blocks_.push_back(std::move(block_));
        open_.reset();
        return events;
    }

    [[nodiscard]] Json stop_json(const TextOutcome& outcome, std::string_view reason) const {
        const TextGenerationResult& result = outcome.result;
        if (result.stop_reason == StopReason::Context)
            return {{"stop_reason", "model_context_window_exceeded"}, {"stop_sequence", nullptr}};
        if (reason == "length") return {{"stop_reason", "max_tokens"}, {"stop_sequence", nullptr}};
        if (reason == "tool_calls") return {{"stop_reason", "tool_use"}, {"stop_sequence", nullptr}};
        if (result.stop_reason == StopReason::StopString && std::ranges::count(head_.stops, result.stop) > 0)
            return {{"stop_reason", "stop_sequence"}, {"stop_sequence", result.stop}};
        return {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
    }

    [[nodiscard]] Json usage(const TextOutcome& outcome) const {
        Json usage{{"input_tokens", outcome.result.prompt_tokens - outcome.reused_tokens},
                   {"cache_creation_input_tokens", 0},
                   {"cache_read_input_tokens", outcome.reused_tokens},
                   {"output_tokens", outcome.result.tokens.size()}};
        if (thought_tokens_ > 0) usage["output_tokens_details"] = {{"thinking_tokens", thought_tokens_}};
        return usage;
    }

    AnswerHead head_;
    const Tokenizer& tokenizer_;
    Json blocks_ = Json::array();  // complete blocks of the answer
    std::optional<Kind> open_;
    Json block_;        // the open block, as it began; its text is in text_
    std::string text_;  // text of the open block so far
    std::size_t thought_tokens_ = 0;
};

}  // namespace

std::unique_ptr<AnswerShape> make_messages_shape(AnswerHead head, const Tokenizer& tokenizer) {
    return std::make_unique<MessagesShape>(std::move(head), tokenizer);
}

}  // namespace slipstream::tools
