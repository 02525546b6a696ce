#include "draft/control/measure_passes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "draft/stopwatch.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr int kRounds = 4;
constexpr std::int64_t kFew = 8;  // nodes up to here are timed in every round: most trees are small
constexpr int kRepeats = 2;       // of more nodes

}  // namespace

void measure_passes(PassTimes& times, Forward& forward, KvCache& cache, double max_seconds, const LogitRequest* needs) {
    CHECK(cache.n_nodes() == 0, "{} nodes", cache.n_nodes());
    const std::int64_t most = std::min({times.max_nodes(), forward.limits().max_tokens, forward.limits().max_logit_rows,
                                        cache.max_nodes(), cache.context_tokens() - cache.n_committed()});
    struct Size {
        std::int64_t n;
        double best = std::numeric_limits<double>::infinity();
    };
    std::vector<Size> sizes;
    for (std::int64_t n = 1; n <= most; n = n < most ? std::min(n < 4 ? n + 1 : 2 * n, most) : n + 1)
        sizes.push_back({.n = n});
    std::vector<TokenId> tokens;
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> logit_tokens;
    const Clock::time_point began = Clock::now();
    const auto time_pass = [&](Size& size) {
        tokens.assign(static_cast<std::size_t>(size.n), 0);
        nodes.clear();
        // All next to each other: how deep a tree is makes no difference to speak of.
        for (std::int64_t i = 0; i < size.n; ++i) nodes.push_back(cache.add_node(kCommittedTip));
        logit_tokens.resize(static_cast<std::size_t>(size.n));
        std::iota(logit_tokens.begin(), logit_tokens.end(), 0);
        const double before = seconds_since(began);
        if (needs != nullptr) {
            static_cast<void>(forward.run(cache, tokens, nodes, logit_tokens, *needs, {}));
        } else {
            static_cast<void>(forward.run(cache, tokens, nodes, logit_tokens));
        }
        size.best = std::min(size.best, seconds_since(began) - before);
        cache.forget();
        return seconds_since(began) <= max_seconds;
    };
    // Small sizes in rounds, so that a slow moment of the machine meets all of them alike, and none every time.
    const auto time_all = [&] {
        for (int round = 0; round < kRounds; ++round)
            for (Size& size : sizes)
                if (size.n <= kFew && !time_pass(size)) return;
        for (Size& size : sizes) {
            // The first pass of a size goes op by op and the second captures: only a third is what passes will cost.
            const bool graph = forward.graphs() != nullptr && size.n <= kMostGraphTokens;
            for (int repeat = 0; size.n > kFew && repeat < kRepeats + (graph ? 1 : 0); ++repeat)
                if (!time_pass(size)) return;
        }
    };
    time_all();
    for (const Size& size : sizes)
        if (std::isfinite(size.best)) times.add(size.n, size.best);
}

}  // namespace slipstream::draft
