#include "tools/serve/engine_texts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

namespace slipstream::tools {

namespace {

// Guard: until it is destroyed, the generator appends log probabilities to `record` (null: records none).
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

// Guard: until it is destroyed, the generator calls `on_pass` after each pass.
class ReportsPasses {
public:
    ReportsPasses(TextGenerator& generator, std::function<void(const Observation&)> on_pass) : generator_(generator) {
        generator_.report_passes(std::move(on_pass));
    }
    ~ReportsPasses() { generator_.report_passes({}); }
    ReportsPasses(const ReportsPasses&) = delete;
    ReportsPasses& operator=(const ReportsPasses&) = delete;

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
    links_at_ = std::chrono::steady_clock::now();
    links_ = generator_.links();
    std::optional<ReportsPasses> reporting;
    if (callbacks.on_pass)
        reporting.emplace(generator_, [this, &callbacks](const Observation& pass) { report(pass, callbacks); });
    outcome.reused_tokens = generator_.start(task.prompt.tokens);
    callbacks.on_start(outcome.reused_tokens);
    outcome.result = generator_.generate(tokenizer_, task.prompt.start, task.text,
                                         {.on_prefill = callbacks.on_prefill,
                                          .on_text = callbacks.on_text,
                                          .on_commit =
                                              [&](std::span<const TokenId> tokens) {
                                                  ++n_passes;
                                                  // The pass may have committed tokens past the end of the text.
                                                  const std::span<const TokenLogprob> logged = record.tokens;
                                                  const std::size_t n = std::min(tokens.size(), logged.size());
                                                  callbacks.on_commit(tokens, logged.first(n));
                                                  record.tokens.clear();
                                              },
                                          .cancel = callbacks.cancel});
    // Each pass has one node that is not a draft token (the last token before it), and yields one token that was not
    // drafted.
    const double n_nodes = outcome.result.budget_mean * static_cast<double>(n_passes);
    outcome.draft_tokens = std::llround(n_nodes) - n_passes;
    outcome.draft_accepted = std::ssize(outcome.result.tokens) - n_passes;
    return outcome;
}

void EngineTexts::report(const Observation& pass, const TextTaskCallbacks& callbacks) {
    callbacks.on_pass({.n_nodes = pass.tree->size(),
                       .n_tokens = pass.n_new,
                       .seconds = pass.pass_seconds,
                       .tree = [this, &pass] { return tree_of(pass); },
                       .link_busy = [this] { return link_busy(); }});
}

PassTree EngineTexts::tree_of(const Observation& pass) {
    const TokenTree& tree = *pass.tree;
    PassTree reported{.sampled = pass.text.back()};
    const SourceTotals sources = generator_.sources();
    for (const SourceTotal& source : sources.totals()) reported.sources.push_back(source.name);
    reported.nodes.reserve(static_cast<std::size_t>(tree.size()));
    for (const TreeNode node : tree.nodes())
        reported.nodes.push_back(
            {.token = tree.token(node), .parent = tree.parent(node).index, .sources = generator_.sources_of(node)});
    for (const TreeNode node : pass.accepted) reported.nodes[node.index].accepted = true;
    return reported;
}

std::vector<double> EngineTexts::link_busy() {
    const auto now = std::chrono::steady_clock::now();
    std::vector<LinkFigures> links = generator_.links();
    const double seconds = std::chrono::duration<double>(now - std::exchange(links_at_, now)).count();
    std::vector<double> busy;
    for (std::size_t i = 0; i < links.size(); ++i) {
        const double before = i < links_.size() ? links_[i].busy_seconds : 0.0;
        busy.push_back(seconds > 0.0 ? std::clamp((links[i].busy_seconds - before) / seconds, 0.0, 1.0) : 0.0);
    }
    links_ = std::move(links);
    return busy;
}

std::vector<double> EngineTexts::prompt_link_busy() {
    return generator_.model().devices().size() == 1 ? link_busy() : std::vector<double>{};
}

}  // namespace slipstream::tools
