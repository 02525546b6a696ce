// DevicePasses: passes of a model that is on one device as a whole: no threads, no transfer of hidden rows, no
// combining of logits. Short passes may be launched as graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/ranks/rank_passes.h"

namespace slipstream {

class DevicePasses final : public RankPasses {
public:
    /// `forward` must outlive this object.
    explicit DevicePasses(Forward& forward) : forward_(&forward) {}

    [[nodiscard]] bool run(std::span<PassKv* const> kvs, const RankPass& pass) override;
    /// Returns whether positions [begin, end) can be computed layer by layer. Host memory for them comes from the arena
    /// of the forward's PassStream.
    [[nodiscard]] bool takes_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                    std::int64_t end) const override;
    /// Returns whether run_prompt() can go on with a saved prompt. If nothing streams, the host memory for it is taken
    /// from the system.
    [[nodiscard]] bool takes_saved_prompt(std::span<KvCache* const> caches, std::int64_t begin,
                                          std::int64_t end) const override;
    [[nodiscard]] bool run_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass) override;

private:
    [[nodiscard]] std::size_t prompt_host_bytes(std::int64_t begin, std::int64_t end) const;
    [[nodiscard]] bool run_resident_prompt(std::span<KvCache* const> caches, std::int64_t begin, const RankPass& pass);

    Forward* forward_;
};

}  // namespace slipstream
