// Single passes of several numbers of tokens, behind a filled cache.
#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/cache_fill.h"
#include "runtime/forward.h"
#include "tools/bench_runs.h"
#include "tools/bench_tokens.h"
#include "tools/console.h"
#include "tools/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::uint64_t kFillSeed = 1;

void check_pass_room(const BenchRequest& request, std::int64_t largest, std::int64_t context_tokens) {
    if (request.depth + largest > context_tokens)
        throw RequestError(
            fmt::format("--depth {} and a pass of {} need a context of {}; it is {}: raise --ctx, or "
                        "lower --depth or --passes",
                        request.depth, counted(largest, "token"), request.depth + largest, context_tokens));
}

double timed_pass(Forward& forward, KvCache& cache, std::span<const TokenId> tokens) {
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back()));
        rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto began = std::chrono::steady_clock::now();
    static_cast<void>(forward.run(cache, tokens, nodes, rows, {.cancel = &cancel_flag()}));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    throw_if_interrupted();
    cache.forget();
    return seconds;
}

}  // namespace

void run_passes(BenchResult& result, const BenchRequest& request, ServedModel& served, CommandContext& context) {
    const std::int64_t largest = *std::max_element(request.passes.begin(), request.passes.end());
    const ModelConfig& config = served.files->config();
    check_pass_room(request, largest, request.compute.context_tokens.value_or(config.context_tokens));
    load_and_measure(result, served, request, context);
    check_pass_room(request, largest, served.model->context_tokens());
    result.token_source = "seeded ids";
    result.depth = request.depth;

    KvCache cache(*served.device, served.model->kv_shape(), config.n_layers, request.depth + largest,
                  std::max(largest, kChunkTokens));
    Forward forward(*served.model, {.max_tokens = largest, .max_logit_rows = largest});
    const std::vector<TokenId> tokens = seeded_tokens(largest, config.vocab);
    ProgressBar bar(context.console, "bench");
    fill_cache(cache, forward.exec(), request.depth, kFillSeed, [&](std::int64_t n) {
        throw_if_interrupted();
        bar.update(static_cast<double>(n), static_cast<double>(request.depth),
                   fmt::format("cache filled to {} of {}", n, request.depth));
    });
    const WeightBytes weights = weight_bytes(served.model->weights());
    for (const std::int64_t n : request.passes)
        result.passes.push_back({.tokens = n,
                                 .seconds = {},
                                 .weight_bytes = weights.all(),
                                 .kv_bytes = kv_read_bytes(config, cache.shape(), request.depth, n)});
    for (std::int64_t round = 0; round <= request.repeat; ++round) {
        for (PassFigures& pass : result.passes) {
            const double seconds =
                timed_pass(forward, cache, std::span(tokens).first(static_cast<std::size_t>(pass.tokens)));
            if (round > 0) pass.seconds.push_back(seconds);  // round 0 warms up
        }
        bar.update(static_cast<double>(round + 1), static_cast<double>(request.repeat + 1),
                   fmt::format("{} of {} rounds", round + 1, request.repeat + 1));
    }
}

}  // namespace slipstream::tools
