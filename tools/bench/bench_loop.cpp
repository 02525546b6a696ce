#include "tools/bench/bench_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/base/checked_math.h"
#include "tools/bench/bench_runs.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

BenchLoop::BenchLoop(const LoadedModel& model, ModelRunner& runner, EngineDrafter& drafter, BenchLoopOptions options)
    : config_(&model.config()),
      model_(&model),
      proposer_(&drafter.proposer()),
      limits_{drafter.budget(), std::move(options.end_tokens)},
      sequence_(&runner.sequence()),
      prefixes_(*sequence_),
      sampler_(std::make_unique<Sampler>(options.sampling, config_->vocab)),
      verifier_(drafter.make_verifier(*sampler_)) {}

void BenchLoop::restart(std::int64_t n_kept) {
    sequence_->keep_computed(std::min(n_kept, sequence_->n_computed()));
    restarted_ = true;
}

void BenchLoop::trace_with(TraceFile& trace, std::string_view track) {
    trace_ = &trace;
    track_ = trace.add_track(track);
}

// Runs one pass. Returns whether the text has ended.
bool BenchLoop::step(GenerationLoop& loop, std::int64_t max_new_tokens, const PromptProgress& on_progress) const {
    const std::span<const TokenId> fresh = loop.step(max_new_tokens, &cancel_flag(), on_progress);
    throw_if_interrupted();
    return fresh.empty() ||
           std::find(limits_.end_tokens.begin(), limits_.end_tokens.end(), fresh.back()) != limits_.end_tokens.end();
}

// Returns the tokens and bytes for positions [begin, end), if they are fed in passes that end at multiples of
// `pass_tokens`; only the last pass has logits.
PhaseSample BenchLoop::reads(std::int64_t begin, std::int64_t end, std::int64_t pass_tokens) const {
    PhaseSample sample{.tokens = end - begin};
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t border = std::min(round_up(at + 1, pass_tokens), end);
        sample.weight_bytes += weight_bytes(*model_, border - at).layers;
        sample.kv_bytes += kv_read_bytes(*config_, sequence_->target().shape().kv, at, border - at);
        at = border;
    }
    if (begin < end) sample.weight_bytes += weight_bytes(*model_, 1).head;
    return sample;
}

BenchLoop::Run BenchLoop::run(std::vector<TokenId> prompt, std::int64_t decode_tokens, const BenchProgress& progress) {
    const auto n_prompt = static_cast<std::int64_t>(prompt.size());
    std::int64_t n_known = 0;  // tokens that the proposer knows already; loop.begin() passes it the whole prompt
    if (restarted_) {
        sequence_->keep_computed(std::min(sequence_->n_computed(), n_prompt - 1));
    } else {
        // A chat template may render earlier messages differently, and an answer may be tokenised differently.
        n_known = std::ranges::mismatch(text(), prompt).in2 - prompt.begin();
        prefixes_.reuse(prompt);
    }
    restarted_ = false;
    const std::int64_t n_cached = sequence_->n_computed();
    proposer_->observe({.text = std::span(prompt).first(n_known), .n_new = 0});
    GenerationLoop loop(*sequence_, *verifier_, *proposer_, limits_);
    if (trace_ != nullptr) loop.trace_with(*trace_, track_);
    const auto n_decoded = [&] { return static_cast<std::int64_t>(loop.text().size()) - n_prompt - 1; };

    Clock::time_point began = Clock::now();
    loop.begin(std::move(prompt));
    // The prompt counts as half of the work, whatever its length.
    bool ended = step(loop, 1, [&](std::int64_t done, std::int64_t total) {
        progress(0.5 * static_cast<double>(done) / static_cast<double>(total));
    });
    const double prefill_seconds = seconds_since(began);
    const double draft_before = loop.seconds().draft;
    Run run;
    began = Clock::now();
    while (!ended && n_decoded() < decode_tokens) {
        ended = step(loop, decode_tokens - n_decoded(), {});
        ++run.passes;
        run.nodes += loop.last_tree_size();
        progress(0.5 + 0.5 * static_cast<double>(n_decoded()) / static_cast<double>(decode_tokens));
    }
    const double decode_seconds = seconds_since(began);

    run.prefill = reads(n_cached, n_prompt, kPrefillChunkTokens);
    run.decode = reads(n_prompt, n_prompt + n_decoded(), 1);
    run.prefill.seconds = prefill_seconds;
    run.decode.seconds = decode_seconds;
    // Each pass of decoding has logits, so it reads the LM head, too.
    run.decode.weight_bytes = static_cast<double>(run.decode.tokens) * weight_bytes(*model_, 1).all();
    run.draft_seconds = loop.seconds().draft - draft_before;
    return run;
}

}  // namespace slipstream::tools
