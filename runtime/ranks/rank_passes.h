// A pass through devices that share a model, however they do: one after the other where they have layers
// (layer_passes.h), at the same time where they have parts of matrices (tensor_passes.h). What KV it reads the caller
// says: caches (layers_target.h, tensor_target.h), or views of them (rank_view.h).
#pragma once

#include <span>

#include "runtime/cache/pass_kv.h"
#include "runtime/loop/target.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/pass/pass_hooks.h"

namespace slipstream {

class RankPasses {
public:
    virtual ~RankPasses() = default;
    /// A pass without a prompt over `kvs` [ranks], with `hooks` [ranks], or none; it returns when all of it is
    /// enqueued. Each rank's columns of the logits come into `parts` [ranks], which hold once the streams are
    /// synchronized. False where it was given up: what it streams is given up then, and where it throws. Throws
    /// RankFailed.
    [[nodiscard]] virtual bool run(std::span<PassKv* const> kvs, const TargetPass& pass,
                                   std::span<PassHooks* const> hooks, std::span<LogitRows> parts) = 0;
};

}  // namespace slipstream
