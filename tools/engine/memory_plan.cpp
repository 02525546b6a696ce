#include "tools/engine/memory_plan.h"

#include <algorithm>
#include <vector>

#include "kernels/base/checked_math.h"
#include "kernels/rank_sums.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/model/model.h"
#include "runtime/plan/model_plan.h"
#include "runtime/ranks/view_passes.h"

namespace slipstream::tools {

RunNeeds generation_needs(std::int64_t budget, std::int64_t text_tokens, CheckPasses check) {
    RunNeeds needs{{.text_tokens = text_tokens,
                    .forward = forward_limits_for(budget),
                    .scratch_nodes = scratch_nodes_for(budget)}};
    if (check == CheckPasses::Yes) {
        needs.scratch_nodes = SelfCheck::scratch_nodes_for(budget);
        needs.check_tokens = kPrefillChunkTokens;
    }
    return needs;
}

bool shrink_check(RunNeeds& needs) {
    constexpr std::int64_t kFewest = 8;
    if (needs.check_tokens <= kFewest) return false;
    needs.check_tokens = std::max(needs.check_tokens / 4, kFewest);
    return true;
}

namespace {

// Returns the device memory of a KV view, its scores, and the passes over it.
std::size_t view_bytes(const ModelConfig& config, const KvShape& kv, std::int64_t text_tokens, const ViewNeeds& view) {
    return KvView::device_bytes(kv, config.n_layers, view.room()) + ViewBuilder::device_bytes(config, text_tokens) +
           ViewPasses::device_bytes(config, view.max_nodes);
}

}  // namespace

// Includes the passes of the self-check and those over a KV view.
std::size_t sum_bytes(const ModelConfig& config, const RunNeeds& needs) {
    const std::int64_t n_rows =
        std::max({needs.forward.max_tokens, needs.check_tokens, needs.view ? kMostViewRows : std::int64_t{0}});
    return n_rows * row_bytes(DType::F32, config.d_model);
}

ModelPlanRequest memory_request(const MemoryRequest& request) {
    const ModelConfig& config = *request.config;
    const RunNeeds& needs = request.needs;
    const KvShape kv{config.n_kv_heads, config.head_dim, request.kv_dtype};
    const std::size_t plain = Forward::device_bytes(config, needs.forward, Forward::Streaming::No);
    const std::size_t scratch = KvCache::device_bytes(kv, config.n_layers, 0, needs.scratch_nodes);
    const std::vector<std::int64_t> no_chunks(config.n_layers, 0);
    const std::size_t tails =
        KvCache::device_bytes(kv, config.n_layers, request.text_tokens, needs.scratch_nodes, no_chunks) - scratch;
    const std::size_t check =
        needs.check_tokens > 0
            ? Forward::device_bytes(config, check_forward_limits(needs.check_tokens), Forward::Streaming::Yes)
            : 0;
    const std::size_t sums = rank_sums_bytes(request.summing.kind, request.summing.n, sum_bytes(config, needs));
    const std::size_t view = needs.view ? view_bytes(config, kv, request.text_tokens, *needs.view) : 0;
    return {.config = request.config,
            .weights = request.weights,
            .kv_dtype = request.kv_dtype,
            .context_tokens = request.text_tokens,
            .fixed_bytes = request.taken_bytes + needs.other_bytes + check + sums + view + plain + scratch +
                           Model::small_tensor_bytes(*request.weights),
            .kv_tail_bytes = tails,
            .streaming_bytes = Forward::device_bytes(config, needs.forward, Forward::Streaming::Yes) - plain,
            .weights_stay = needs.view.has_value()};
}

}  // namespace slipstream::tools
