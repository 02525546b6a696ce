// How a pass runs through the ranks of a model: on one device (device_passes.h), one rank after the other where each
// has whole layers (layer_passes.h), or all at the same time where each has a part of every matrix (tensor_passes.h).
// The caller says which KV the pass reads: the caches of a text (rank_target.h) or KV views (view_passes.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/cache/pass_kv.h"
#include "runtime/loop/target.h"
#include "runtime/pass/logit_rows.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/ranks/rank.h"

namespace slipstream {

/// A pass on all ranks. `hooks` [ranks], or none.
struct RankPass {
    const TargetPass* pass = nullptr;
    std::span<PassHooks* const> hooks{};
    std::span<LogitRows> logits{};  // [ranks], out: each rank's columns; valid once the streams are synchronized

    [[nodiscard]] PassHooks* hooks_of(std::size_t rank) const { return hooks.empty() ? nullptr : hooks[rank]; }
    [[nodiscard]] const PassControl& control() const;
};

class RankPasses {
public:
    virtual ~RankPasses() = default;
    /// Runs a pass without a prompt over `kvs` [ranks]; returns when all of it is enqueued. False where it was
    /// cancelled. Where it is cancelled or throws, the rest of the transfer schedule is dropped. Several ranks throw
    /// RankFailed.
    [[nodiscard]] virtual bool run(std::span<PassKv* const> kvs, const RankPass& pass) = 0;
    /// Whether prompt positions [begin, end) can be computed layer by layer, together with the pass that follows them.
    [[nodiscard]] virtual bool takes_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                            std::int64_t end) const = 0;
    /// The same as run() with the prompt of the pass before it, from position `begin`: takes_prompt() is true, and the
    /// positions are reserved in `caches` [ranks]. The prompt is committed when this returns true; else the caller
    /// rolls the caches back.
    [[nodiscard]] virtual bool run_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                          const RankPass& pass) = 0;
};

/// The passes of these ranks, all of one kind. `arena` is for the hidden states of prompts; null: prompts go chunk by
/// chunk. What `ranks` point to, and `arena`, outlive the passes. Throws OutOfBudget where the system starts no more
/// threads.
[[nodiscard]] std::unique_ptr<RankPasses> make_rank_passes(const std::vector<Rank>& ranks,
                                                           PinnedArena* arena = nullptr);

}  // namespace slipstream
