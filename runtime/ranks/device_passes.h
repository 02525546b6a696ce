// Passes of a model that one device has whole: no thread, no copy of hidden rows, no gathering of logits; short passes
// may be launched as graphs.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/ranks/rank_passes.h"

namespace slipstream {

class DevicePasses final : public RankPasses {
public:
    /// `forward` outlives this.
    explicit DevicePasses(Forward& forward) : forward_(&forward) {}

    [[nodiscard]] bool run(std::span<PassKv* const> kvs, const RankPass& pass) override;
    /// The arena is that of the forward's PassStream.
    [[nodiscard]] bool takes_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                    std::int64_t end) const override;
    [[nodiscard]] bool run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) override;

private:
    Forward* forward_;
};

}  // namespace slipstream
