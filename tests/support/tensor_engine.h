// A model over several CPU devices, its matrices split among them, and all that a text over them needs.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/host_collective.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/tensor_split.h"
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
        std::vector<Rank> of_target;
        std::vector<Rank> of_plain;
        std::vector<KvCache*> caches;
        for (std::size_t i = 0; i < shards.size(); ++i) {
            ranks.push_back(
                std::make_unique<RankEngine>(files, shards[i], streams, *on[i], ring_bytes, &sums->rank(i)));
            RankEngine& rank = *ranks.back();
            of_target.push_back({rank.forward.get(), {}, shards[i].first_vocab, &sums->rank(i)});
            of_plain.push_back(of_target.back());
            of_plain.back().forward = rank.plain.get();
            caches.push_back(&rank.cache);
        }
        target = std::make_unique<RankTarget>(of_target, caches);
        plain = std::make_unique<RankTarget>(of_plain, caches);
    }
    std::vector<std::unique_ptr<RankDevice>> own;
    std::unique_ptr<HostCollective> sums;
    std::vector<std::unique_ptr<RankEngine>> ranks;
    std::unique_ptr<RankTarget> target;
    std::unique_ptr<RankTarget> plain;
};

}  // namespace slipstream
