// The measuring itself: one request, from opening the model to figures. What each mode times is written here; what the
// figures mean, in bench_figures.h.
#pragma once

#include "tools/bench/bench_figures.h"
#include "tools/bench/bench_request.h"
#include "tools/bench/bench_session.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// What a pass over the model reads, wherever it lies.
[[nodiscard]] WeightBytes weight_bytes(const LoadedModel& model);

/// Places the model, and measures the machine's peaks on its device; both go into the result. Called once a run, after
/// everything that can be checked without them.
[[nodiscard]] PlacedModel place_and_measure(BenchResult& result, OpenedModel opened, const BenchRequest& request,
                                            CommandContext& context);
/// Loads the model for these needs.
[[nodiscard]] LoadedModel load_for_bench(BenchResult& result, PlacedModel placed, const RunNeeds& needs,
                                         CommandContext& context);

// The modes. RequestError where the context is too short, Interrupted after a signal,
// and what loading throws.

/// The loop without guesses, greedy, end tokens ignored: one run of prefill and decode to warm up, then `repeat` of
/// them, each from an empty cache, or behind the prompt of `session` (null: none), whose KV is kept.
void run_plain(BenchResult& result, const BenchRequest& request, OpenedModel opened, TextSession* session,
               CommandContext& context);

/// Each line's turns in one text, raw, `repeat` times over all of them, the first line once before to warm up. End
/// tokens end a turn.
void run_prompts(BenchResult& result, const BenchRequest& request, OpenedModel opened, CommandContext& context);

/// Behind a cache that is filled, not computed: all numbers of tokens in turn, one round to warm up and then `repeat`
/// rounds, so that whatever drifts hits all alike. A pass is a chain below the last committed position with logits for
/// every token, dropped afterwards.
void run_passes(BenchResult& result, const BenchRequest& request, OpenedModel opened, CommandContext& context);

/// Views of the KV on the text of a file or of `session`, all fed the same tokens whatever they choose; see
/// bench_views.h.
void run_views(BenchResult& result, const BenchRequest& request, OpenedModel opened, TextSession* session,
               CommandContext& context);

/// Opens the request's model and runs its mode.
[[nodiscard]] BenchResult run_bench(const BenchRequest& request, CommandContext& context);

}  // namespace slipstream::tools
