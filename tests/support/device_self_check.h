// The self-check of a target on one device, with the Forward that computes its passes.
#pragma once

#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/ranks/rank_target.h"

namespace slipstream {

struct PlainPasses {
    PlainPasses(const Model& model, KvCache& cache, PassStream* pass, std::int64_t max_tokens)
        : forward(model, check_forward_limits(max_tokens), pass), plain(forward, cache) {}
    Forward forward;
    RankTarget plain;
};

class DeviceSelfCheck : private PlainPasses, public SelfCheck {
public:
    /// `pass` as for Forward; passes have up to `max_tokens` tokens. `model` and `cache` must outlive this object.
    DeviceSelfCheck(const Model& model, KvCache& cache, PassStream* pass = nullptr,
                    std::int64_t max_tokens = kPrefillChunkTokens)
        : PlainPasses(model, cache, pass, max_tokens), SelfCheck(plain) {}
};

}  // namespace slipstream
