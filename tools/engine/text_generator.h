// All that turns a prompt into text on an engine model, from options to a generation loop, in the order in which it
// depends on one another: device, draft model, drafter, weights, cache, passes, sampler, loop. For generate, chat and
// whoever else makes text.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/loop/generation_loop.h"
#include "runtime/loop/self_check.h"
#include "tools/engine/engine_drafter.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/engine_runner.h"
#include "tools/engine/loaded_model.h"
#include "tools/engine/prefix_store.h"
#include "tools/engine/statistics.h"

namespace slipstream::tools {

struct GeneratorOptions {
    ComputeOptions compute;
    DraftSettings draft;
    CheckPasses check = CheckPasses::No;
    std::optional<std::int64_t> prompt_tokens{};  // where known: one that is too long is refused before all else
};

class TextGenerator {
public:
    /// Places and loads `opened`. Throws what that throws. What `callbacks` refer to must outlive this.
    TextGenerator(const GeneratorOptions& options, OpenedModel opened, const SamplerOptions& sampling,
                  std::vector<TokenId> end_tokens, const EngineCallbacks& callbacks);

    [[nodiscard]] const LoadedModel& model() const { return *model_; }
    [[nodiscard]] GenerationLoop& loop() { return *loop_; }
    [[nodiscard]] const LoopLimits& limits() const { return limits_; }
    [[nodiscard]] Sequence& sequence() { return runner_->sequence(); }
    [[nodiscard]] const Sequence& sequence() const { return runner_->sequence(); }
    [[nodiscard]] PrefixStore& prefixes() { return *prefixes_; }
    /// Draws by other options from now on; what is learnt and cached stays. The next text of loop() must be begun
    /// before its next step. Throws RequestError of options that are out of range; all is as before then.
    void resample(const SamplerOptions& sampling);
    /// What was offered and accepted since the start.
    [[nodiscard]] SourceTotals sources() const;
    /// Figures of what streamed since the last call of this; the loop's decoding begins.
    void start_clock();
    /// What was learnt about guessing is kept, as complete() does: for runs that take long.
    void keep_tables() const { drafter_->save(); }
    /// The run is over: what was learnt is kept, and its figures told.
    void complete(RunFigures& figures) const;

private:
    std::optional<LoadedModel> model_;
    std::optional<EngineDraftModel> draft_model_;
    std::optional<EngineDrafter> drafter_;
    LoopLimits limits_;
    std::unique_ptr<ModelRunner> runner_;
    std::optional<PrefixStore> prefixes_;
    std::optional<Sampler> sampler_;
    std::unique_ptr<Verifier> verifier_;
    std::optional<SelfCheck> self_check_;
    std::optional<GenerationLoop> loop_;
    StreamSnapshot start_{};
    StreamSnapshot before_{};  // what streamed up to there
};

/// The tokens that end a text: the model's, and those that its vocabulary names (</s>, <|eot_id|>, ...), each
/// once.
[[nodiscard]] std::vector<TokenId> all_end_tokens(const GenerationDefaults& defaults, const Tokenizer& tokenizer);

}  // namespace slipstream::tools
