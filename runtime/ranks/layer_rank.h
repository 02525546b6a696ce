// What one device has of a target whose layers are shared out, and how a failure there is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/indexed.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/forward.h"

namespace slipstream {

/// A pass failed on a device: which one, at which layer, what was on its way (weights, KV, rows) and why, whatever it
/// was (memory, a copy, a link that stands still, a kernel).
class RankFailed : public Error {
public:
    using Error::Error;
};

struct LayerRank {
    Forward* forward = nullptr;                 // over the model of that share; limits as those of the others
    KvCache* cache = nullptr;                   // of its layers; context and nodes as those of the others
    Indexed<std::int64_t> layers{};             // of the whole model, ascending
    std::int64_t first_vocab = 0, n_vocab = 0;  // rows of the LM head
};

/// Whose a layer of the whole model is.
struct LayerOwner {
    std::size_t rank = 0;
    std::int64_t layer = 0;  // of its own
};

/// Where a pass is that is at no layer.
inline constexpr std::int64_t kAtKv = -1;
inline constexpr std::int64_t kAtLmHead = -2;

/// What `call` throws is said of that device and `layer` of the whole model.
template <typename Call>
void on_rank(const LayerRank& rank, std::int64_t layer, const Call& call) {
    try {
        call();
    } catch (const std::exception& error) {
        const std::string place = layer == kAtKv       ? "KV"
                                  : layer == kAtLmHead ? "the LM head"
                                                       : fmt::format("layer {}", layer);
        throw RankFailed(fmt::format("{}, {}: {}", rank.forward->exec().device.name(), place, error.what()));
    }
}

}  // namespace slipstream
