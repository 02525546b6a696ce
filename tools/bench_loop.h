// The plain loop with a clock: prefill to the first token, then decoding, and what both have to read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/generation_loop.h"
#include "tools/bench_figures.h"
#include "tools/served_model.h"

namespace slipstream::tools {

class BenchLoop {
public:
    /// The generation loop without guesses, greedy, for texts of at most `text_tokens`; `end_tokens` end one. `served`
    /// is loaded and outlives this.
    BenchLoop(const ServedModel& served, std::int64_t text_tokens, std::vector<TokenId> end_tokens);

    struct Run {
        PhaseSample prefill;  // of the prompt's tokens that were not in the cache, to the first token that is generated
        PhaseSample decode;   // the tokens after it
    };
    /// Generates 1 + `decode_tokens` tokens, fewer at an end token. `prompt` begins with the text so far, whose KV is
    /// kept; restart() empties that. Throws Interrupted after a signal.
    [[nodiscard]] Run run(std::vector<TokenId> prompt, std::int64_t decode_tokens);
    void restart() { cache_.truncate(0); }
    /// Prompt and what was generated.
    [[nodiscard]] const std::vector<TokenId>& text() const { return loop_.text(); }

private:
    [[nodiscard]] bool step(std::int64_t max_new_tokens);
    [[nodiscard]] PhaseSample reads(std::int64_t begin, std::int64_t end, std::int64_t pass_tokens) const;

    const ModelConfig* config_;
    WeightBytes weights_;
    std::vector<TokenId> end_tokens_;
    KvCache cache_;
    Forward forward_;
    Sampler sampler_;
    NoGuesser guesser_;
    GenerationLoop loop_;
};

}  // namespace slipstream::tools
