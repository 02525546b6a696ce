#include "draft/measure_passes.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"

namespace slipstream::draft {

void measure_passes(PassTimes& times, Forward& forward, KvCache& cache, double max_seconds) {
    using Clock = std::chrono::steady_clock;
    CHECK(cache.n_nodes() == 0, "{} nodes", cache.n_nodes());
    const std::int64_t most = std::min({times.max_nodes(), forward.limits().max_tokens, forward.limits().max_logit_rows,
                                        cache.max_nodes(), cache.context_tokens() - cache.n_committed()});
    std::vector<TokenId> tokens;
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> logit_tokens;
    const Clock::time_point began = Clock::now();
    const auto spent = [began] { return std::chrono::duration<double>(Clock::now() - began).count(); };
    for (std::int64_t n = 1; n <= most; n = n < most ? std::min(2 * n, most) : n + 1) {
        double best = std::numeric_limits<double>::infinity();
        for (int repeat = 0; repeat < (n == 1 ? 3 : 2); ++repeat) {
            tokens.assign(static_cast<std::size_t>(n), 0);
            nodes.clear();
            // All next to each other: how deep a tree is makes no difference to speak of.
            for (std::int64_t i = 0; i < n; ++i) nodes.push_back(cache.add_node(kCommittedTip));
            logit_tokens.resize(static_cast<std::size_t>(n));
            std::iota(logit_tokens.begin(), logit_tokens.end(), 0);
            const double before = spent();
            static_cast<void>(forward.run(cache, tokens, nodes, logit_tokens));
            best = std::min(best, spent() - before);
            cache.forget();
            if (spent() > max_seconds) break;
        }
        times.add(n, best);
        if (spent() > max_seconds) return;
    }
}

}  // namespace slipstream::draft
