// TextGenerator: makes everything that turns a prompt into text, from options to a generation loop, in order of
// dependency: devices, draft model, drafter, weights, caches, passes, sampler, loop. Used by all commands that generate
// text.
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
    std::optional<std::int64_t> prompt_tokens{};  // if known: too long a prompt is refused before loading
};

class TextGenerator {
public:
    /// Places and loads `opened`. Throws what this throws, and RequestError if the prompt is too long or a logit bias
    /// is for an unknown token. What `callbacks` refer to must outlive this object.
    TextGenerator(const GeneratorOptions& options, OpenedModel opened, const SamplerOptions& sampling,
                  std::vector<TokenId> end_tokens, const EngineCallbacks& callbacks);

    [[nodiscard]] const LoadedModel& model() const { return *model_; }
    [[nodiscard]] GenerationLoop& loop() { return *loop_; }
    [[nodiscard]] const LoopLimits& limits() const { return limits_; }
    [[nodiscard]] Sequence& sequence() { return runner_->sequence(); }
    [[nodiscard]] const Sequence& sequence() const { return runner_->sequence(); }
    [[nodiscard]] PrefixStore& prefixes() { return *prefixes_; }
    /// Samples by other options from now on; learnt and cached state stays. The next text must be begun in loop()
    /// before its next step(). Throws RequestError if an option is out of range; nothing has changed then.
    void resample(const SamplerOptions& sampling);
    /// Returns the tokens that each source has offered and that were accepted since the start.
    [[nodiscard]] SourceTotals sources() const;
    /// Separates the streaming figures of the prompt from those of decoding: call before the loop decodes.
    void start_clock();
    /// Saves what drafting has learnt, as complete() does; for long runs.
    void keep_tables() const { drafter_->save(); }
    /// Call at the end of the run: saves what drafting has learnt, reports its back-off as a detail, and fills
    /// `figures`.
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
    StreamSnapshot before_{};  // what streamed before start_
};

/// Returns the tokens that end a text: those of the model's files, and those that the vocabulary names (</s>,
/// <|eot_id|>, ...), each once.
[[nodiscard]] std::vector<TokenId> all_end_tokens(const GenerationDefaults& defaults, const Tokenizer& tokenizer);

}  // namespace slipstream::tools
