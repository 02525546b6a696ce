// Text generation: shows text as its tokens are committed, applies stop rules, and measures the run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/loop/generation_loop.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

enum class StopReason : std::uint8_t { EndToken, StopString, Length, Context, Interrupt };
/// Returns the name in the statistics: "eos", "stop", "length", "context", "interrupt".
[[nodiscard]] std::string_view stop_reason_name(StopReason reason);

struct TextGenerationOptions {
    std::int64_t max_tokens = -1;    // most tokens to generate, resumed ones included; -1: until the context is full
    std::vector<std::string> stops;  // the text ends before the first of these that occurs
    std::int64_t n_resumed = 0;      // tokens at the end of loop.text() that an earlier run generated: they count as
                                     // generated, and their text has been shown
};

struct TextGenerationCallbacks {
    std::function<void(std::int64_t, std::int64_t)> on_prefill;  // prompt tokens done and in total
    std::function<void(std::string_view)> on_text;               // text of new tokens, in complete characters
    std::function<void(std::span<const TokenId>)> on_commit;     // new tokens up to a stop; called after on_text
    std::function<void(std::int64_t)> on_tokens;                 // tokens generated so far; after each pass
    const std::atomic<bool>* cancel = nullptr;  // if it turns true, generation stops soon and keeps what there is
};

struct TextGenerationResult {
    StopReason stop_reason = StopReason::Length;
    std::string stop;  // stop string that ended the text; empty unless the reason is StopReason::StopString
    std::vector<TokenId>
        tokens;  // generated, an end token included; after a stop string the token that completed it is the last
    std::int64_t resumed_tokens = 0;  // how many of `tokens`, from the first on, an earlier run generated
    std::int64_t prompt_tokens = 0;
    std::int64_t text_bytes = 0;   // bytes of the text of generated tokens, resumed ones included
    std::int64_t passes = 0;       // passes with new tokens; the one over the prompt counts only if it had draft tokens
    double budget_mean = 0.0;      // mean nodes of a pass, node 0 included
    double prefill_seconds = 0.0;  // seconds until the first pass has yielded tokens
    double decode_seconds = 0.0;   // seconds after the first pass has yielded tokens
    LoopSeconds split;             // parts of decode_seconds
    double tokens_per_second = 0.0;  // tokens after the first pass / decode_seconds
};

/// Text of tokens that were generated before: what has been shown of it, and the stop rule that ends it, if one does.
/// If it has ended, nothing is left to generate.
struct ReplayedText {
    std::string shown;  // the text shown; once it has ended, the text that was held back is included
    std::optional<StopReason> ended;
};
/// Replays the stop rules over `tokens`, which an earlier run generated. `room`: tokens that can still be added to the
/// context after them. Throws FormatError if a rule ends the text before the last token.
[[nodiscard]] ReplayedText replay_text(const Tokenizer& tokenizer, StreamingDetokenizer::Start start,
                                       std::span<const TokenId> end_tokens, const TextGenerationOptions& options,
                                       std::span<const TokenId> tokens, std::int64_t room);

/// Continues loop.text(), which the caller has begun. `start` says whether the text begins here (after BOS alone) or
/// continues a prompt, which decides about the leading space. Afterwards loop.text() is the prompt followed by
/// result.tokens: tokens that the last pass committed after a stop are removed, so that a later call continues from the
/// stop. The last options.n_resumed tokens of loop.text() are the first ones of result.tokens.
///
/// Callbacks may throw (for example on a full disk): generation then ends with that error, and loop.text() holds the
/// tokens of whole passes.
[[nodiscard]] TextGenerationResult generate_text(GenerationLoop& loop, const Tokenizer& tokenizer,
                                                 StreamingDetokenizer::Start start, const LoopLimits& limits,
                                                 const TextGenerationOptions& options,
                                                 const TextGenerationCallbacks& callbacks);

}  // namespace slipstream
