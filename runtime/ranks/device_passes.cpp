#include "runtime/ranks/device_passes.h"

#include "kernels/base/check.h"

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

bool DevicePasses::run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) {
    const TargetPass& asked = *pass.pass;
    pass.logits[0] =
        forward_->run_by_layer(*caches[0], begin, kPrefillChunkTokens, asked.prompt, asked.tokens, asked.nodes,
                               asked.logit_tokens, *asked.needs, pass.control(), pass.hooks_of(0), asked.checkpoints);
    return !pass.logits[0].empty();
}

}  // namespace slipstream
