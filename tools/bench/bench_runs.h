// Runs a benchmark: one request, from opening the model to its figures. What each mode measures is described here, what
// the figures mean in bench_figures.h.
#pragma once

#include <string>

#include "tools/bench/bench_figures.h"
#include "tools/bench/bench_request.h"
#include "tools/bench/bench_session.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// Returns the bytes of weights that a pass over the model reads, summed over all devices, whether they are resident or
/// not.
[[nodiscard]] WeightBytes weight_bytes(const LoadedModel& model, std::int64_t n_tokens);

/// Returns "greedy", or temperature, filters, penalties and seed in words.
[[nodiscard]] std::string describe_sampling(const SamplerOptions& sampling);

/// Places the model and measures the machine's peaks on its first device; stores both in `result`. Call once per run,
/// after everything that can be checked without the model's devices.
[[nodiscard]] PlacedModel place_and_measure(BenchResult& result, OpenedModel opened, const ComputeOptions& compute,
                                            CommandContext& context);
/// Loads the model with room for `needs`; stores load time, placement and weight bytes in `result`.
[[nodiscard]] LoadedModel load_for_bench(BenchResult& result, PlacedModel placed, const RunNeeds& needs,
                                         CommandContext& context);

// The modes. All throw RequestError if the context is too short, Interrupted after a signal, and what loading throws.

/// Plain: decodes one prompt with each column (plain decoding and each --draft), end tokens ignored: one run to warm
/// up, then `repeat` measured runs. Each run starts from an empty KV cache or, if `session` is not null, after the
/// session's prompt, whose KV is kept.
void run_plain(BenchResult& result, const BenchRequest& request, OpenedModel opened, TextSession* session,
               CommandContext& context);

/// Prompts: one text per line of the file, with all its turns, raw or through the chat template; an end token ends a
/// turn. All lines are run `repeat` times, after the first line was run once to warm up.
void run_prompts(BenchResult& result, const BenchRequest& request, OpenedModel opened, CommandContext& context);

/// Passes: times passes of several numbers of tokens after a KV cache that was filled with seeded rows, not computed.
/// Each round runs all numbers in turn, so that slow changes of the machine affect all of them; one round warms up,
/// `repeat` rounds are measured. A pass is a chain after the last committed position, with logits for every token, and
/// is dropped afterwards.
void run_passes(BenchResult& result, const BenchRequest& request, OpenedModel opened, CommandContext& context);

/// Opens the request's model and runs its mode.
[[nodiscard]] BenchResult run_bench(const BenchRequest& request, CommandContext& context);

}  // namespace slipstream::tools
