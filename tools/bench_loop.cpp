#include "tools/bench_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/base/checked_math.h"
#include "tools/signals.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

BenchLoop::BenchLoop(const ServedModel& served, std::int64_t text_tokens, std::vector<TokenId> end_tokens)
    : config_(&served.model->config()),
      weights_(weight_bytes(served.model->weights())),
      end_tokens_(std::move(end_tokens)),
      cache_(*served.device, served.model->kv_shape(), config_->n_layers, text_tokens, scratch_nodes_for(1)),
      forward_(*served.model, forward_limits_for(1)),
      sampler_({.temperature = 0.0}, config_->vocab),
      loop_(forward_, cache_, sampler_, guesser_, {.budget = 1, .end_tokens = end_tokens_}) {}

// One pass; whether the text has ended.
bool BenchLoop::step(std::int64_t max_new_tokens) {
    const std::span<const TokenId> fresh = loop_.step(max_new_tokens, &cancel_flag());
    throw_if_interrupted();
    return fresh.empty() || std::find(end_tokens_.begin(), end_tokens_.end(), fresh.back()) != end_tokens_.end();
}

// What is read for positions [begin, end), fed in passes that end at multiples of `pass_tokens`; the last one of them
// has logits.
PhaseSample BenchLoop::reads(std::int64_t begin, std::int64_t end, std::int64_t pass_tokens) const {
    PhaseSample sample{.tokens = end - begin};
    for (std::int64_t at = begin; at < end;) {
        const std::int64_t border = std::min(round_up(at + 1, pass_tokens), end);
        sample.weight_bytes += weights_.layers;
        sample.kv_bytes += kv_read_bytes(*config_, cache_.shape(), at, border - at);
        at = border;
    }
    if (begin < end) sample.weight_bytes += weights_.head;
    return sample;
}

BenchLoop::Run BenchLoop::run(std::vector<TokenId> prompt, std::int64_t decode_tokens) {
    const std::int64_t n_cached = cache_.n_committed();
    const auto n_prompt = static_cast<std::int64_t>(prompt.size());
    const auto n_decoded = [&] { return static_cast<std::int64_t>(loop_.text().size()) - n_prompt - 1; };

    Clock::time_point began = Clock::now();
    loop_.begin(std::move(prompt));
    bool ended = step(1);
    const double prefill_seconds = seconds_since(began);
    began = Clock::now();
    while (!ended && n_decoded() < decode_tokens) ended = step(decode_tokens - n_decoded());
    const double decode_seconds = seconds_since(began);

    Run run{.prefill = reads(n_cached, n_prompt, kPrefillPieceTokens),
            .decode = reads(n_prompt, n_prompt + n_decoded(), 1)};
    run.prefill.seconds = prefill_seconds;
    run.decode.seconds = decode_seconds;
    run.decode.weight_bytes = static_cast<double>(run.decode.tokens) * weights_.all();  // each has logits
    return run;
}

}  // namespace slipstream::tools
