#include "tools/engine/memory_plan.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/size_text.h"
#include "kernels/rank_sums.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/model/model.h"
#include "runtime/plan/expert_plan.h"
#include "runtime/plan/model_plan.h"
#include "runtime/ranks/view_passes.h"
#include "tools/base/amounts.h"

namespace slipstream::tools {

RunNeeds generation_needs(std::int64_t budget, std::int64_t text_tokens, CheckPasses check) {
    RunNeeds needs{{.text_tokens = text_tokens,
                    .forward = forward_limits_for(budget),
                    .scratch_nodes = scratch_nodes_for(budget)}};
    if (check == CheckPasses::Yes) {
        needs.scratch_nodes = SelfCheck::scratch_nodes_for(budget);
        needs.check_tokens = kPrefillChunkTokens;
        needs.forward.max_drafts = 2 * budget;  // the accepted path is computed a second time
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

// Returns the bytes of device memory of a KV view, its scores, and the passes over it.
std::size_t view_bytes(const ModelConfig& config, std::span<const KvLayout> kv, std::int64_t text_tokens,
                       const ViewNeeds& view) {
    return KvView::device_bytes(kv, view.room(config)) + ViewBuilder::device_bytes(config, text_tokens) +
           ViewPasses::device_bytes(config, view.max_nodes, view.options.type == ViewType::Q4);
}

}  // namespace

// Returns the bytes of the largest sum of any pass, those of the self-check and those over a KV view included.
std::size_t sum_bytes(const ModelConfig& config, const RunNeeds& needs) {
    const std::int64_t n_rows =
        std::max({needs.forward.max_tokens, needs.check_tokens, needs.view ? kMostViewRows : std::int64_t{0}});
    return n_rows * row_bytes(DType::F32, config.d_model);
}

namespace {

struct MemoryParts {
    DeviceMemory fixed;               // needed in any case: without resident items and ring
    std::size_t kv_tail_bytes = 0;    // needed if KV streams
    std::size_t streaming_bytes = 0;  // activations that are needed if anything streams
};

struct ForwardBytes {
    std::size_t activations = 0;
    std::size_t logits = 0;
};

// Returns what a Forward takes. Logits share memory with what the layers use; here they have what they take beyond it.
ForwardBytes forward_bytes(const ModelConfig& config, ForwardLimits limits, Forward::Streaming streaming) {
    const std::size_t all = Forward::device_bytes(config, limits, streaming);
    limits.max_logit_rows = 0;
    const std::size_t activations = Forward::device_bytes(config, limits, streaming);
    return {activations, all - activations};
}

MemoryParts memory_parts(const MemoryRequest& request) {
    const ModelConfig& config = *request.config;
    const RunNeeds& needs = request.needs;
    const std::vector<KvLayout> kv = config.kv_layouts(request.kv_dtype);
    const ForwardBytes plain = forward_bytes(config, needs.forward, Forward::Streaming::No);
    const std::vector<std::int64_t> no_chunks(config.n_layers(), 0);
    MemoryParts parts;
    DeviceMemory& fixed = parts.fixed;
    fixed.weights = Model::small_tensor_bytes(*request.weights);
    fixed.kv =
        RecurrentStates::bytes(kv, needs.forward.max_drafts > 0 ? needs.forward.max_drafts : needs.scratch_nodes);
    fixed.kv_scratch = KvCache::device_bytes(kv, 0, needs.scratch_nodes, {}, {}, needs.forward.max_drafts) - fixed.kv;
    fixed.logits = plain.logits;
    fixed.activations = plain.activations;
    if (needs.check_tokens > 0) {
        const ForwardLimits check = check_forward_limits(needs.check_tokens, needs.forward.max_drafts);
        const ForwardBytes of_check = forward_bytes(config, check, Forward::Streaming::Yes);
        fixed.logits += of_check.logits;
        fixed.activations += of_check.activations;
    }
    fixed.draft = request.taken.draft_bytes;
    fixed.views = needs.view ? view_bytes(config, kv, request.text_tokens, *needs.view) : 0;
    fixed.workspace = request.taken.workspace_bytes;
    fixed.sums = rank_sums_bytes(request.summing.kind, request.summing.n, sum_bytes(config, needs));
    fixed.other = needs.other_bytes;
    parts.kv_tail_bytes =
        KvCache::device_bytes(kv, request.text_tokens, needs.scratch_nodes, no_chunks, {}, needs.forward.max_drafts) -
        fixed.kv_scratch - fixed.kv;
    parts.streaming_bytes =
        Forward::device_bytes(config, needs.forward, Forward::Streaming::Yes) - plain.activations - plain.logits;
    return parts;
}

}  // namespace

std::vector<std::pair<std::string_view, std::size_t>> DeviceMemory::rows() const {
    return {{"weights", weights},
            {"kv", kv},
            {"kv_scratch", kv_scratch},
            {"ring", ring},
            {"activations", activations},
            {"logits", logits},
            {"draft", draft},
            {"views", views},
            {"experts", experts},
            {"workspace", workspace},
            {"sums", sums},
            {"other", other}};
}

std::string streamed_weights_text(const ResidencyPlan& plan, std::int64_t pass_tokens) {
    if (plan.streamed_weights_bytes == plan.most_streamed_weights_bytes)
        return fmt::format("{} of weights", size_text(plan.streamed_weights_bytes));
    return fmt::format("{} of weights (expected for passes of {}; at most {})", size_text(plan.streamed_weights_bytes),
                       counted(pass_tokens, "token"), size_text(plan.most_streamed_weights_bytes));
}

std::string expert_slots_text(const ExpertPlan& plan) {
    if (plan.n_slots == 0) return {};
    return plan.least_slots == plan.most_slots
               ? fmt::format("{} of {} experts of a layer", plan.most_slots, plan.layer_experts)
               : fmt::format("{} to {} of {} experts of a layer", plan.least_slots, plan.most_slots,
                             plan.layer_experts);
}

std::string_view hits_origin_text(const ExpertPlan& plan) {
    return plan.hits_are_counted ? "counted in earlier texts of this model"
                                 : "a prior from public traces; the text decides";
}

std::string no_slots_text(const ExpertPlan& plan, const std::string& fixed_note) {
    if (plan.n_experts == 0) return {};
    switch (plan.regime) {
        case ExpertRegime::Fit:
            return "all experts fit";
        case ExpertRegime::InSlots:
            return {};
        case ExpertRegime::OnCpu:
            return "experts on the device stay there, since none are copied (--experts)";
        case ExpertRegime::Fixed:
        case ExpertRegime::Stream:
            break;
    }
    return fixed_note.empty() ? "the device has no room for them" : fixed_note;
}

std::size_t DeviceMemory::used() const {
    std::size_t sum = 0;
    for (const auto& [name, bytes] : rows()) sum += bytes;
    return sum;
}

ModelPlanRequest memory_request(const MemoryRequest& request) {
    const MemoryParts parts = memory_parts(request);
    return {.config = request.config,
            .weights = request.weights,
            .kv_dtype = request.kv_dtype,
            .context_tokens = request.text_tokens,
            .fixed_bytes = parts.fixed.used(),
            .kv_tail_bytes = parts.kv_tail_bytes,
            .streaming_bytes = parts.streaming_bytes,
            .weights_stay = request.needs.view.has_value()};
}

DeviceMemory device_memory(const MemoryRequest& request, const ModelPlan& plan, std::size_t budget_bytes) {
    const MemoryParts parts = memory_parts(request);
    const ResidencyPlan& residency = plan.residency();
    DeviceMemory memory = parts.fixed;
    memory.weights += residency.resident_weights_bytes;
    memory.kv += residency.resident_kv_bytes + (residency.streamed_kv_bytes > 0 ? parts.kv_tail_bytes : 0);
    memory.experts = residency.slot_bytes;
    memory.ring = residency.ring_bytes;
    if (residency.regime != Regime::AllFits) memory.activations += parts.streaming_bytes;
    CHECK(memory.used() == residency.device_bytes, "{} bytes by purpose, {} in all", memory.used(),
          residency.device_bytes);
    if (budget_bytes != std::numeric_limits<std::size_t>::max()) memory.free = budget_bytes - memory.used();
    return memory;
}

}  // namespace slipstream::tools
