#include "runtime/ranks/device_passes.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"
#include "offload/host_memory.h"
#include "runtime/pass/error_context.h"
#include "runtime/ranks/pipelined_prefill.h"

namespace slipstream {

bool DevicePasses::run(std::span<PassKv* const> kvs, const RankPass& pass) {
    const TargetPass& asked = *pass.pass;
    CHECK(asked.prompt.empty() && kvs.size() == 1 && pass.logits.size() == 1);
    pass.logits[0] =
        forward_->enqueue(*kvs[0], asked.tokens, asked.nodes, asked.logit_tokens, asked.needs ? &*asked.needs : nullptr,
                          pass.control(), asked.phase, pass.hooks_of(0));
    return !pass.logits[0].empty() || (asked.logit_tokens.empty() && !pass.control().cancelled());
}

bool DevicePasses::takes_prompt(std::span<KvCache* const> caches, std::int64_t begin, std::int64_t end) const {
    return forward_->runs_by_layer(*caches[0], begin, end, kPrefillChunkTokens);
}

std::size_t DevicePasses::prompt_host_bytes(std::int64_t begin, std::int64_t end) const {
    return forward_->prompt_host_bytes({.begin = begin, .end = end, .chunk_tokens = kPrefillChunkTokens});
}

bool DevicePasses::takes_saved_prompt(std::span<KvCache* const> caches, std::int64_t begin, std::int64_t end) const {
    if (takes_prompt(caches, begin, end)) return true;
    return !forward_->streams(*caches[0]) && begin < end && end % kPrefillChunkTokens == 0 &&
           prompt_host_bytes(begin, end) <= available_host_bytes();
}

bool DevicePasses::run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) {
    if (!forward_->streams(*caches[0])) return run_resident_prompt(caches, begin, pass);
    const TargetPass& asked = *pass.pass;
    pass.logits[0] =
        forward_->run_by_layer(*caches[0], begin, kPrefillChunkTokens, asked.prompt, asked.tokens, asked.nodes,
                               asked.logit_tokens, *asked.needs, pass.control(), pass.hooks_of(0), asked.checkpoints);
    return !pass.logits[0].empty();
}

// Runs a prompt of a model that streams nothing, which has no arena and one buffer of hidden states: the steps that
// PipelinedPrefill makes for several devices need no more.
bool DevicePasses::run_resident_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) {
    Rank rank{.forward = forward_, .layers = std::vector<std::int64_t>(forward_->n_layers())};
    std::iota(rank.layers.begin(), rank.layers.end(), 0);
    std::vector<LayerOwner> owners;
    for (const std::int64_t layer : rank.layers) owners.push_back({.rank = 0, .layer = layer});
    PinnedArena arena({.limit_bytes = prompt_host_bytes(begin, begin + std::ssize(pass.pass->prompt)),
                       .page_lock = PageLock::Pageable});
    PipelinedPrefill prefill({&rank, 1}, owners, caches, arena, begin, pass);
    if (!prefill.run(pass.control())) return false;
    Forward::PromptSteps& steps = *prefill.steps().front();
    pass.logits[0] = at_layer(kLmHeadStage, [&] { return steps.logits(&*pass.pass->needs); });
    at_layer(kKvStage, [&] { steps.end(); });
    steps.complete();
    forward_->exec().stream.synchronize();  // before the hidden states leave the host
    return true;
}

}  // namespace slipstream
