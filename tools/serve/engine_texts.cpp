#include "tools/serve/engine_texts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace slipstream::tools {

namespace {

// Records log probabilities while it lives.
class RecordsLogprobs {
public:
    RecordsLogprobs(TextGenerator& generator, LogprobRecord* record) : generator_(generator) {
        generator_.record_logprobs(record);
    }
    ~RecordsLogprobs() { generator_.record_logprobs(nullptr); }
    RecordsLogprobs(const RecordsLogprobs&) = delete;
    RecordsLogprobs& operator=(const RecordsLogprobs&) = delete;

private:
    TextGenerator& generator_;
};

}  // namespace

EngineTexts::EngineTexts(const GeneratorOptions& options, OpenedModel opened, const Tokenizer& tokenizer,
                         const SamplerOptions& sampling, const EngineCallbacks& callbacks)
    : tokenizer_(tokenizer),
      end_tokens_(all_end_tokens(opened.files().generation_defaults(), tokenizer)),
      sampling_(sampling),
      generator_(options, std::move(opened), sampling, end_tokens_, callbacks) {}

TextOutcome EngineTexts::generate(const TextTask& task, const TextTaskCallbacks& callbacks) {
    check_tokens(task.prompt.tokens, generator_.model().config());
    SamplerOptions sampling = task.ignore_end ? without_end_tokens(task.sampling, end_tokens_) : task.sampling;
    if (sampling != sampling_) {
        generator_.resample(sampling);
        sampling_ = std::move(sampling);
    }
    TextOutcome outcome;
    std::int64_t n_passes = 0;
    LogprobRecord record{.n_best = task.n_logprobs.value_or(0)};
    const RecordsLogprobs recording(generator_, task.n_logprobs ? &record : nullptr);
    outcome.reused_tokens = generator_.start(task.prompt.tokens);
    callbacks.on_start(outcome.reused_tokens);
    outcome.result = generator_.generate(tokenizer_, task.prompt.start, task.text,
                                         {.on_prefill = callbacks.on_prefill,
                                          .on_text = callbacks.on_text,
                                          .on_commit =
                                              [&](std::span<const TokenId> tokens) {
                                                  ++n_passes;
                                                  // A pass may have committed more tokens than the text has.
                                                  const std::span<const TokenLogprob> logged = record.tokens;
                                                  const std::size_t n = std::min(tokens.size(), logged.size());
                                                  callbacks.on_commit(tokens, logged.first(n));
                                                  record.tokens.clear();
                                              },
                                          .cancel = callbacks.cancel});
    // Each pass has a node that is no draft token, and yields a token that is none.
    const double n_nodes = outcome.result.budget_mean * static_cast<double>(n_passes);
    outcome.draft_tokens = std::llround(n_nodes) - n_passes;
    outcome.draft_accepted = std::ssize(outcome.result.tokens) - n_passes;
    return outcome;
}

}  // namespace slipstream::tools
