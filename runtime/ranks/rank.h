// What one of several devices has of a target, and how a failure there is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/collective.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/error_context.h"
#include "runtime/pass/forward.h"

namespace slipstream {

/// A pass failed on a device: which one, at which layer, what was on its way (weights, KV, rows, sums) and why,
/// whatever it was (memory, a copy, a link that stands still, a kernel).
class RankFailed : public Error {
public:
    using Error::Error;
};

/// Limits, context and nodes are those of the others.
struct Rank {
    Forward* forward = nullptr;  // over the model of its shard
    KvCache* cache = nullptr;    // of its layers, or of its kv heads
};

/// The same where whole layers are shared out.
struct LayerRank {
    Forward* forward = nullptr;
    KvCache* cache = nullptr;
    std::vector<std::int64_t> layers{};         // of the whole model, ascending
    std::int64_t first_vocab = 0, n_vocab = 0;  // rows of the LM head
};

/// What all of them have, of ranks that have more.
template <typename Own>
[[nodiscard]] std::vector<Rank> ranks_of(const std::vector<Own>& ranks) {
    std::vector<Rank> all;
    all.reserve(ranks.size());
    for (const Own& rank : ranks) all.push_back({rank.forward, rank.cache});
    return all;
}

/// Whose a layer of the whole model is.
struct LayerOwner {
    std::size_t rank = 0;
    std::int64_t layer = 0;  // of its own
};

/// What `call` throws is said of the device of `forward` and of `layer` of the whole model; CollectiveAborted, which is
/// another one's failure, goes on as it is.
template <typename Call>
void on_rank(const Forward& forward, std::int64_t layer, const Call& call) {
    try {
        call();
    } catch (const CollectiveAborted&) {
        throw;
    } catch (const std::exception& error) {
        throw RankFailed(fmt::format("{}, {}: {}", forward.model().device().name(), pass_place(layer), error.what()));
    }
}

}  // namespace slipstream
