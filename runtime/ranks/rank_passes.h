// RankPasses: how a pass runs through the ranks of a model. On one device (device_passes.h); one rank after the other
// if each has whole layers (layer_passes.h); all at the same time if each has a part of every matrix (tensor_passes.h).
// The caller chooses which KV the pass reads: the caches of a sequence (rank_target.h) or KV views (view_passes.h).
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

/// A pass on all ranks. `hooks` is [ranks] or empty.
struct RankPass {
    const TargetPass* pass = nullptr;
    std::span<PassHooks* const> hooks{};
    std::span<LogitRows> logits{};  // [ranks], out: columns of each rank; valid once the streams are synchronized

    [[nodiscard]] PassHooks* hooks_of(std::size_t rank) const { return hooks.empty() ? nullptr : hooks[rank]; }
    [[nodiscard]] const PassControl& control() const;
};

class RankPasses {
public:
    virtual ~RankPasses() = default;
    /// Runs a pass without a prompt over `kvs` [ranks]; returns when all of it is enqueued. Returns false if it was
    /// cancelled. If it is cancelled or throws, the rest of the transfer schedule is dropped. With several ranks,
    /// errors are thrown as on_rank() does (rank.h).
    [[nodiscard]] virtual bool run(std::span<PassKv* const> kvs, const RankPass& pass) = 0;
    /// Whether prompt positions [begin, end) can be computed layer by layer, together with the pass that follows them.
    [[nodiscard]] virtual bool takes_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                            std::int64_t end) const = 0;
    /// Whether run_prompt() can go on with a saved prompt of these positions (Target::takes_saved_prompt()).
    [[nodiscard]] virtual bool takes_saved_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                                  std::int64_t end) const {
        return takes_prompt(caches, begin, end);
    }
    /// Computes the prompt of `pass`, from position `begin` on, and then the pass. Requires that takes_prompt(), or
    /// takes_saved_prompt() for a saved prompt, is true and that the positions are reserved in `caches` [ranks].
    /// Returns true when all of it is enqueued; the prompt is then committed. Returns false if it was cancelled; then,
    /// and if it throws (as run()), the caller must roll the caches back.
    [[nodiscard]] virtual bool run_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                          const RankPass& pass) = 0;
};

/// Returns passes for these ranks. `arena` holds the hidden states of prompts on several ranks; null: prompts are fed
/// prefill chunk by prefill chunk. `arena` and what `ranks` point to must outlive the passes. Throws OutOfBudget if the
/// system starts no more threads.
[[nodiscard]] std::unique_ptr<RankPasses> make_rank_passes(const std::vector<Rank>& ranks,
                                                           PinnedArena* arena = nullptr);

}  // namespace slipstream
