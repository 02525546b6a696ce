// The pass-time curve at load: a few passes of guesses that nobody wants, timed.
#pragma once

#include "draft/control/pass_times.h"
#include "runtime/pass/forward.h"

namespace slipstream::draft {

/// Times passes of 1, 2, 4, 8, ... nodes below the end of `cache` (which has room for them and no nodes; none stay),
/// up to 8 nodes several times, then more nodes, and puts the best of each into `times`; ends when `max_seconds` are
/// over, after one pass of 1 at the earliest.
/// Passes stay within forward.limits() and the cache's context. `needs`: what passes will be asked for of logits
/// (LogitRequest); null: whole rows.
void measure_passes(PassTimes& times, Forward& forward, KvCache& cache, double max_seconds,
                    const LogitRequest* needs = nullptr);

}  // namespace slipstream::draft
