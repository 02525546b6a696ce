// Generation as a user sees it: text that appears as it is committed, stop rules, and the figures of the run.
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
/// As the statistics spell it: "eos", "stop", "length", "context", "interrupt".
[[nodiscard]] std::string_view stop_reason_name(StopReason reason);

struct TextGenerationOptions {
    std::int64_t max_tokens = -1;    // most tokens to generate; -1 = until the context is full
    std::vector<std::string> stops;  // the text ends before the first of these
    std::int64_t n_resumed = 0;  // tokens at the end of loop.text() that were generated before, in another run: they
                                 // count as generated, and their text has been shown
};

struct TextGenerationCallbacks {
    std::function<void(std::int64_t, std::int64_t)> on_prefill;  // tokens done, tokens in all
    std::function<void(std::string_view)> on_text;               // complete characters, as they are committed
    std::function<void(std::span<const TokenId>)> on_commit;     // tokens that a pass added to the text, none behind a
                                                                 // stop; after their text
    std::function<void(std::int64_t)> on_tokens;                 // tokens generated so far, after each pass
    const std::atomic<bool>* cancel = nullptr;                   // turns true: stop soon, keep what there is
};

struct TextGenerationResult {
    StopReason stop_reason = StopReason::Length;
    std::vector<TokenId>
        tokens;  // generated, an end token included; after a stop string the token that completed it is the last
    std::int64_t resumed_tokens = 0;  // the first of them: generated before this run
    std::int64_t prompt_tokens = 0;
    std::int64_t text_bytes = 0;     // of generated text, that of resumed tokens included
    std::int64_t passes = 0;         // that yielded tokens; the one over the prompt counts where it carried guesses
    double budget_mean = 0.0;        // nodes of a pass, node 0 included, on average
    double prefill_seconds = 0.0;    // until the first token is there
    double decode_seconds = 0.0;     // from then on
    LoopSeconds split;               // of decode_seconds
    double tokens_per_second = 0.0;  // tokens after the first pass / decode_seconds
};

/// Tokens that were generated before, as text: what was shown of it while more was to come, and whether a rule ends it
/// there, so that nothing is left to generate.
struct ReplayedText {
    std::string shown;  // with what was held back, where it has ended
    std::optional<StopReason> ended;
};
/// `room`: tokens that the context still holds behind them. Throws FormatError where a rule ends the text before its
/// last token.
[[nodiscard]] ReplayedText replay_text(const Tokenizer& tokenizer, StreamingDetokenizer::Start start,
                                       std::span<const TokenId> end_tokens, const TextGenerationOptions& options,
                                       std::span<const TokenId> tokens, std::int64_t room);

/// Continues loop.text(), begun by the caller. `start` says whether the text begins here (after BOS alone) or continues
/// a prompt, which decides about the leading space. Afterwards loop.text() is what it was before and result.tokens
/// behind it (where options.n_resumed of it were generated before, they stand in result.tokens, too): what the last
/// pass committed behind a stop is taken back, so that a later call continues from the stop.
/// Callbacks may throw (a full disk): generation ends with that error, and loop.text() then holds whole passes.
[[nodiscard]] TextGenerationResult generate_text(GenerationLoop& loop, const Tokenizer& tokenizer,
                                                 StreamingDetokenizer::Start start, const LoopLimits& limits,
                                                 const TextGenerationOptions& options,
                                                 const TextGenerationCallbacks& callbacks);

}  // namespace slipstream
