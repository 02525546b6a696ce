// The generation loop with a clock: prefill up to the first token, then decoding, and the bytes that plain decoding
// would read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "offload/trace_file.h"
#include "runtime/loop/generation_loop.h"
#include "tools/bench/bench_figures.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

struct BenchLoopOptions {
    std::vector<TokenId> end_tokens{};  // a text ends after any of them
    SamplerOptions sampling{.temperature = 0.0};
};

/// Is told which share of the work is done, 0 to 1.
using BenchProgress = std::function<void(double share)>;

class BenchLoop {
public:
    /// `model`, `drafter` and `runner` (of that model, with room for passes of the drafter's budget) must outlive the
    /// loop. Several loops may share a runner; they run in turn, each after a restart().
    BenchLoop(const LoadedModel& model, ModelRunner& runner, EngineDrafter& drafter, BenchLoopOptions options);

    struct Run {
        PhaseSample prefill;         // prompt tokens that were not in the KV cache, and the first generated token
        PhaseSample decode;          // the tokens after it; bytes are those that plain decoding would read
        std::int64_t passes = 0;     // decode passes
        std::int64_t nodes = 0;      // nodes of these passes, node 0 included
        double draft_seconds = 0.0;  // time spent on drafting while decoding
    };
    /// Generates 1 + `decode_tokens` tokens, fewer if an end token comes. Reuses the KV of the longest common prefix of
    /// `prompt` and the current text; after restart(), reuses all KV as that of the first tokens of `prompt`. Throws
    /// Interrupted after a signal.
    [[nodiscard]] Run run(std::vector<TokenId> prompt, std::int64_t decode_tokens, const BenchProgress& progress);
    /// Drops the text and keeps the first `n_kept` positions of the KV cache, which were filled without a text or
    /// restored from a session.
    void restart(std::int64_t n_kept = 0);
    /// Records the steps of later runs on a track of `trace`, named `track`. `trace` must outlive the loop.
    void trace_with(TraceFile& trace, std::string_view track);
    /// Returns the prompt and the generated tokens.
    [[nodiscard]] const std::vector<TokenId>& text() const { return sequence_->tokens(); }

private:
    [[nodiscard]] bool step(GenerationLoop& loop, std::int64_t max_new_tokens, const PromptProgress& on_progress) const;
    [[nodiscard]] PhaseSample reads(std::int64_t begin, std::int64_t end, std::int64_t pass_tokens) const;

    const ModelConfig* config_;
    const LoadedModel* model_;
    Proposer* proposer_;
    LoopLimits limits_;
    Sequence* sequence_;
    PrefixStore prefixes_;
    bool restarted_ = true;  // restart() was called, and run() not since
    std::unique_ptr<Sampler> sampler_;
    std::unique_ptr<Verifier> verifier_;
    TraceFile* trace_ = nullptr;  // null: no trace
    std::uint32_t track_ = 0;     // of trace_
};

}  // namespace slipstream::tools
