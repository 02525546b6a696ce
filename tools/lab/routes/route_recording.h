// Records the routes of a text: a model runs over it, and what each token chooses in each layer is noted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"
#include "runtime/ranks/model_runner.h"
#include "tools/lab/routes/route_trace.h"

namespace slipstream::tools {

/// Most tokens of a pass.
inline constexpr std::int64_t kRoutePassTokens = 64;

/// A rank of the runner: its shard, and the layers of the whole model that it has; empty: all.
struct RoutedRank {
    const ModelConfig* config = nullptr;
    std::vector<std::int64_t> layers{};
};

/// Feeds `tokens` to the first sequence of `runner`, which is empty, and commits them; returns what they chose. That
/// does not depend on where the model lies. It must have experts (CHECKed). Calls on_progress(n) after the first n
/// tokens. Throws Interrupted after a signal.
[[nodiscard]] RouteTrace record_routes(ModelRunner& runner, std::span<const RoutedRank> ranks,
                                       std::span<const TokenId> tokens,
                                       const std::function<void(std::int64_t)>& on_progress);

}  // namespace slipstream::tools
