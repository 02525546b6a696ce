// A model whose matrices are split among several CPU devices, with a runner.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/split_engine.h"

namespace slipstream {

/// `parts`: number of kv heads of each device; otherwise as SplitEngine.
struct TensorEngine : SplitEngine {
    TensorEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                 const std::vector<CpuDeviceOptions>& options = {})
        : SplitEngine(files, SplitKind::Tensor, parts, streams, options, kRingBytes) {}
    TensorEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                 std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices,
                 WindowedKv windowed_kv = WindowedKv::Whole, std::int64_t context_tokens = kContext)
        : SplitEngine(windowed_kv, context_tokens) {
        make(files, SplitKind::Tensor, parts, streams, ring_bytes, devices);
    }
};

}  // namespace slipstream
