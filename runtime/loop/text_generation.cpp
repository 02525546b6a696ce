#include "runtime/loop/text_generation.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/loop/sampling/stop_matcher.h"

namespace slipstream {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Output of text: assembles complete characters, holds back possible stop strings, counts the bytes shown.
class TextOutput {
public:
    TextOutput(const Tokenizer& tokenizer, StreamingDetokenizer::Start start, const std::vector<std::string>& stops,
               const std::function<void(std::string_view)>& sink)
        : detokenizer_(tokenizer, start), matcher_(stops), sink_(sink) {}

    void push(TokenId token) { show(matcher_.push(detokenizer_.push(token))); }
    // Adds a token whose text was shown before: counts its bytes, shows nothing.
    void replay(TokenId token) { bytes_ += static_cast<std::int64_t>(matcher_.push(detokenizer_.push(token)).size()); }
    [[nodiscard]] bool stopped() const { return matcher_.matched(); }
    [[nodiscard]] const std::string& stop() const { return matcher_.matched_stop(); }
    void finish() {
        if (!matcher_.matched()) show(matcher_.push(detokenizer_.finish()));
        if (!matcher_.matched()) show(matcher_.finish());
    }
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

private:
    void show(std::string_view text) {
        if (text.empty()) return;
        bytes_ += static_cast<std::int64_t>(text.size());
        if (sink_) sink_(text);
    }

    StreamingDetokenizer detokenizer_;
    StopMatcher matcher_;
    const std::function<void(std::string_view)>& sink_;
    std::int64_t bytes_ = 0;
};

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
    switch (reason) {
        case StopReason::EndToken:
            return "eos";
        case StopReason::StopString:
            return "stop";
        case StopReason::Length:
            return "length";
        case StopReason::Context:
            return "context";
        case StopReason::Interrupt:
            return "interrupt";
    }
    return "?";
}

ReplayedText replay_text(const Tokenizer& tokenizer, StreamingDetokenizer::Start start,
                         std::span<const TokenId> end_tokens, const TextGenerationOptions& options,
                         std::span<const TokenId> tokens, std::int64_t room) {
    ReplayedText replayed;
    const std::function<void(std::string_view)> keep = [&](std::string_view text) { replayed.shown += text; };
    TextOutput output(tokenizer, start, options.stops, keep);
    for (const TokenId token : tokens) {
        if (replayed.ended)
            throw FormatError("tokens after the end of their text: they were not generated with these stop rules");
        if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) {
            replayed.ended = StopReason::EndToken;
            continue;
        }
        output.push(token);
        if (output.stopped()) replayed.ended = StopReason::StopString;
    }
    if (!replayed.ended && options.max_tokens >= 0 && std::ssize(tokens) >= options.max_tokens)
        replayed.ended = StopReason::Length;
    if (!replayed.ended && room <= 0) replayed.ended = StopReason::Context;
    if (replayed.ended) output.finish();
    return replayed;
}

TextGenerationResult generate_text(GenerationLoop& loop, const Tokenizer& tokenizer, StreamingDetokenizer::Start start,
                                   const LoopLimits& limits, const TextGenerationOptions& options,
                                   const TextGenerationCallbacks& callbacks) {
    TextGenerationResult result;
    result.prompt_tokens = std::ssize(loop.text()) - options.n_resumed;
    CHECK(options.n_resumed >= 0 && result.prompt_tokens >= 1, "{} resumed tokens of {}", options.n_resumed,
          loop.text().size());
    result.resumed_tokens = options.n_resumed;
    result.tokens.assign(loop.text().begin() + static_cast<std::ptrdiff_t>(result.prompt_tokens), loop.text().end());
    const std::int64_t max_tokens =
        options.max_tokens < 0 ? std::numeric_limits<std::int64_t>::max() : options.max_tokens;
    const auto cancelled = [&] {
        return callbacks.cancel != nullptr && callbacks.cancel->load(std::memory_order_relaxed);
    };
    TextOutput output(tokenizer, start, options.stops, callbacks.on_text);
    const auto n_generated = [&] { return static_cast<std::int64_t>(result.tokens.size()); };
    // Reserve once, so that no later step allocates.
    const std::int64_t n_resumed = n_generated();
    result.tokens.reserve(n_resumed +
                          std::clamp<std::int64_t>(loop.room(), 0, std::max<std::int64_t>(max_tokens - n_resumed, 0)));
    for (const TokenId token : result.tokens) output.replay(token);

    const Clock::time_point began = Clock::now();
    Clock::time_point first_token = began;
    std::int64_t first_pass_tokens = 0;
    LoopSeconds first_pass = loop.seconds();
    std::int64_t nodes = 0;
    std::int64_t all_passes = 0;
    bool running = n_generated() < max_tokens;
    if (running && !loop.prefill(callbacks.on_prefill, callbacks.cancel)) {
        result.stop_reason = StopReason::Interrupt;
        running = false;
    }
    while (running) {
        const std::span<const TokenId> fresh =
            loop.step(max_tokens - n_generated(), callbacks.cancel, callbacks.on_prefill);
        if (fresh.empty()) {
            result.stop_reason = cancelled() ? StopReason::Interrupt : StopReason::Context;
            break;
        }
        const auto n_before = static_cast<std::size_t>(n_generated());
        nodes += loop.last_tree_size();
        ++all_passes;
        if (all_passes > 1 || loop.last_tree_size() > 1) ++result.passes;
        for (const TokenId token : fresh) {
            result.tokens.push_back(token);
            if (std::find(limits.end_tokens.begin(), limits.end_tokens.end(), token) != limits.end_tokens.end()) {
                result.stop_reason = StopReason::EndToken;
                running = false;
                break;
            }
            output.push(token);
            if (output.stopped()) {
                result.stop_reason = StopReason::StopString;
                result.stop = output.stop();
                running = false;
                break;
            }
        }
        if (callbacks.on_commit) callbacks.on_commit(std::span<const TokenId>(result.tokens).subspan(n_before));
        if (all_passes == 1) {
            first_token = Clock::now();
            first_pass_tokens = n_generated();
            first_pass = loop.seconds();
        }
        if (callbacks.on_tokens) callbacks.on_tokens(n_generated());
        if (running && n_generated() >= max_tokens) {
            result.stop_reason = StopReason::Length;
            running = false;
        } else if (running && loop.room() <= 0) {
            result.stop_reason = StopReason::Context;
            running = false;
        } else if (running && cancelled()) {
            result.stop_reason = StopReason::Interrupt;
            running = false;
        }
    }
    // A pass does not know the stop strings and may have committed tokens after the one that ended the text.
    loop.truncate(result.prompt_tokens + n_generated());
    output.finish();
    result.text_bytes = output.bytes();
    result.prefill_seconds =
        all_passes == 0 ? seconds_since(began) : std::chrono::duration<double>(first_token - began).count();
    if (all_passes > 0) {
        result.decode_seconds = seconds_since(first_token);
        result.budget_mean = static_cast<double>(nodes) / static_cast<double>(all_passes);
    }
    const LoopSeconds& all = loop.seconds();
    result.split = {.draft = all.draft - first_pass.draft,
                    .verify = all.verify - first_pass.verify,
                    .sample = all.sample - first_pass.sample,
                    .check = all.check - first_pass.check,
                    .commit = all.commit - first_pass.commit};
    const std::int64_t decoded = n_generated() - first_pass_tokens;
    if (decoded > 0 && result.decode_seconds > 0.0)
        result.tokens_per_second = static_cast<double>(decoded) / result.decode_seconds;
    return result;
}

}  // namespace slipstream
