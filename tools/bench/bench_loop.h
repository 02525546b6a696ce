// The generation loop with a clock: prefill to the first token, then decoding, and what plain decoding has to read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/loop/generation_loop.h"
#include "tools/bench/bench_figures.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

struct BenchLoopOptions {
    std::vector<TokenId> end_tokens{};  // any of them ends a text
    SamplerOptions sampling{.temperature = 0.0};
};

class BenchLoop {
public:
    /// `model`, `runner` (of that model, for passes of the drafter's budget) and `drafter` must outlive this object.
    /// Loops may share a runner and run in turn, each from restart().
    BenchLoop(const LoadedModel& model, ModelRunner& runner, EngineDrafter& drafter, BenchLoopOptions options);

    struct Run {
        PhaseSample prefill;  // of the prompt's tokens that were not in the cache, to the first token that is generated
        PhaseSample decode;   // the tokens after it; bytes are those of plain decoding
        std::int64_t passes = 0;     // of decode
        std::int64_t nodes = 0;      // of them all, node 0 included
        double draft_seconds = 0.0;  // of decode, spent on guessing
    };
    /// Generates 1 + `decode_tokens` tokens, fewer at an end token. The KV of the beginning that `prompt` shares with
    /// the text so far is reused; after restart() all KV is, as that of the prompt's first tokens. Throws Interrupted
    /// after a signal.
    [[nodiscard]] Run run(std::vector<TokenId> prompt, std::int64_t decode_tokens);
    /// Keeps `n_kept` positions of the KV cache, filled without a text or restored from a session, and no text.
    void restart(std::int64_t n_kept = 0);
    /// Prompt and what was generated.
    [[nodiscard]] const std::vector<TokenId>& text() const { return sequence_->tokens(); }

private:
    [[nodiscard]] bool step(GenerationLoop& loop, std::int64_t max_new_tokens) const;
    [[nodiscard]] PhaseSample reads(std::int64_t begin, std::int64_t end, std::int64_t pass_tokens) const;

    const ModelConfig* config_;
    WeightBytes weights_;
    Proposer* proposer_;
    LoopLimits limits_;
    Sequence* sequence_;
    PrefixStore prefixes_;
    bool restarted_ = true;  // and no text was made since
    std::unique_ptr<Sampler> sampler_;
    std::unique_ptr<Verifier> verifier_;
};

}  // namespace slipstream::tools
