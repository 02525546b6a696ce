// A model over several CPU devices, its matrices split among them, and all that a text over them needs.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/host_collective.h"
#include "runtime/formats/model_files.h"
#include "runtime/ranks/tensor_split.h"
#include "runtime/ranks/tensor_target.h"
#include "tests/support/split_engine.h"

namespace slipstream {

struct TensorEngine {
    /// On devices of its own.
    TensorEngine(const ModelFiles& files, const std::vector<std::int64_t>& n_kv_heads, Streams streams,
                 const std::vector<CpuDeviceOptions>& options = {}) {
        for (std::size_t i = 0; i < n_kv_heads.size(); ++i)
            own.push_back(std::make_unique<RankDevice>(i < options.size() ? options[i] : CpuDeviceOptions{}));
        make_ranks(files, n_kv_heads, streams, own);
    }
    TensorEngine(const ModelFiles& files, const std::vector<std::int64_t>& n_kv_heads, Streams streams,
                 std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices) {
        make_ranks(files, n_kv_heads, streams, devices, ring_bytes);
    }
    void make_ranks(const ModelFiles& files, const std::vector<std::int64_t>& n_kv_heads, Streams streams,
                    const std::vector<std::unique_ptr<RankDevice>>& on,
                    std::size_t ring_bytes = RankEngine::kRingBytes) {
        const std::vector<ModelShard> shards = deal_heads(files.config(), files.weights(), n_kv_heads);
        std::vector<Device*> devices;
        for (const auto& each : on) devices.push_back(&each->device);
        const auto n_rows = static_cast<std::size_t>(
            std::max(forward_limits_for(RankEngine::kBudget).max_tokens, check_forward_limits().max_tokens));
        sums = std::make_unique<HostCollective>(devices, n_rows * row_bytes(DType::F32, files.config().d_model));
        std::vector<TensorRank> of_target;
        std::vector<TensorRank> of_plain;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            ranks.push_back(
                std::make_unique<RankEngine>(files, shards[i], streams, *on[i], ring_bytes, &sums->rank(i)));
            RankEngine& rank = *ranks.back();
            of_target.push_back({rank.forward.get(), &rank.cache, &sums->rank(i)});
            of_plain.push_back({rank.plain.get(), &rank.cache, &sums->rank(i)});
        }
        target = std::make_unique<TensorTarget>(of_target);
        plain = std::make_unique<TensorTarget>(of_plain);
    }
    std::vector<std::unique_ptr<RankDevice>> own;
    std::unique_ptr<HostCollective> sums;
    std::vector<std::unique_ptr<RankEngine>> ranks;
    std::unique_ptr<TensorTarget> target;
    std::unique_ptr<TensorTarget> plain;
};

}  // namespace slipstream
