#include "tools/chat/chat_generator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

SamplerOptions drawn_by(const ChatSettings& settings, std::span<const TokenId> end_tokens) {
    return settings.ignore_end ? without_end_tokens(settings.sampling, end_tokens) : settings.sampling;
}

}  // namespace

ChatGenerator::ChatGenerator(const GeneratorOptions& options, OpenedModel opened, const Tokenizer& tokenizer,
                             const ChatSettings& settings, const EngineCallbacks& callbacks)
    : tokenizer_(&tokenizer),
      end_tokens_(all_end_tokens(opened.files().generation_defaults(), tokenizer)),
      sampling_(drawn_by(settings, end_tokens_)),
      generator_(options, std::move(opened), sampling_, end_tokens_, callbacks) {}

ChatAnswer ChatGenerator::answer(EncodedPrompt prompt, const ChatSettings& settings,
                                 const TextGenerationOptions& options, const TextGenerationCallbacks& callbacks) {
    if (const auto n = std::ssize(prompt.tokens); n >= context_tokens())
        throw RequestError(fmt::format(
            "the context is full: with this message the chat is {} tokens long, and --ctx is {}; /undo takes back an "
            "exchange, /clear forgets all messages, /save F keeps them for a start with a larger --ctx and --session F",
            n, context_tokens()));
    check_tokens(prompt.tokens, model().config());
    if (SamplerOptions sampling = drawn_by(settings, end_tokens_); sampling != sampling_) {
        generator_.resample(sampling);
        sampling_ = std::move(sampling);
    }
    ChatAnswer answer;
    answer.kept_tokens = kept_ != nullptr ? kept_->start(generator_, std::move(prompt.tokens))
                                          : generator_.start(std::move(prompt.tokens));
    TextGenerationCallbacks with_text = callbacks;
    with_text.on_text = [&](std::string_view text) {
        answer.text += text;
        if (callbacks.on_text) callbacks.on_text(text);
    };
    answer.result = generator_.generate(*tokenizer_, prompt.start, options, with_text);
    if (kept_ != nullptr && answer.result.stop_reason == StopReason::Interrupt && answer.result.tokens.empty())
        answer.saved_tokens = kept_->interrupt();
    count(answer);
    return answer;
}

EncodedPrompt ChatGenerator::encoded(const MarkedText& prompt) const {
    return encode_rendered(prompt, *tokenizer_, &cancel_flag());
}

void ChatGenerator::add_figures(RunFigures& figures) const {
    figures.reused_prompt_tokens = kept_tokens_;
    figures.resumed_prompt_tokens = resumed_tokens_;
    figures.checkpoints = n_checkpoints_;
    figures.checkpoint_bytes = checkpoint_bytes_;
}

void ChatGenerator::count(const ChatAnswer& answer) {
    const TextGenerationResult& result = answer.result;
    ++n_answers_;
    const std::int64_t n_resumed = kept_ != nullptr ? kept_->n_resumed() : 0;
    kept_tokens_ += answer.kept_tokens - n_resumed;
    resumed_tokens_ += n_resumed;
    if (kept_ != nullptr) {
        n_checkpoints_ += kept_->n_checkpoints();
        checkpoint_bytes_ = std::max(checkpoint_bytes_, kept_->checkpoint_bytes());
    }
    nodes_ += result.budget_mean * static_cast<double>(result.passes);
    const double decoded =
        totals_.tokens_per_second * totals_.decode_seconds + result.tokens_per_second * result.decode_seconds;
    totals_.stop_reason = result.stop_reason;
    totals_.tokens.insert(totals_.tokens.end(), result.tokens.begin(), result.tokens.end());
    totals_.prompt_tokens += result.prompt_tokens;
    totals_.text_bytes += result.text_bytes;
    totals_.passes += result.passes;
    totals_.budget_mean = totals_.passes > 0 ? nodes_ / static_cast<double>(totals_.passes) : 0.0;
    totals_.prefill_seconds += result.prefill_seconds;
    totals_.decode_seconds += result.decode_seconds;
    totals_.tokens_per_second = totals_.decode_seconds > 0.0 ? decoded / totals_.decode_seconds : 0.0;
    totals_.split.draft += result.split.draft;
    totals_.split.verify += result.split.verify;
    totals_.split.sample += result.split.sample;
    totals_.split.check += result.split.check;
    totals_.split.commit += result.split.commit;
}

}  // namespace slipstream::tools
