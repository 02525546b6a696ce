// Rank: one of the devices that compute a model together; and how an error on it is reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/collective.h"
#include "runtime/pass/error_context.h"
#include "runtime/pass/forward.h"

namespace slipstream {

/// A pass failed on one of several devices. The message names the device, the layer, what was being transferred
/// (weights, KV, hidden rows, sums) and the cause: memory, a copy, a stalled link, a kernel.
class RankFailed : public Error {
public:
    using Error::Error;
};

/// A device with its shard of the model. Several ranks share a model in one of two ways: each has whole layers, or each
/// has a part of every matrix, and `collective` adds up the partial sums.
struct Rank {
    Forward* forward = nullptr;          // runs the model of the shard
    std::vector<std::int64_t> layers{};  // layers of the whole model that this rank has, ascending; empty: all
    std::int64_t first_vocab = 0;        // first row of the LM head; the number of rows is the shard's vocab
    Collective* collective = nullptr;    // sums over all ranks, as this rank calls them; null: no matrix is split
};

/// Which rank computes a layer of the whole model, and the layer's index within that rank.
struct LayerOwner {
    std::size_t rank = 0;
    std::int64_t layer = 0;
};

/// Returns [layers of the whole model]: the ranks that compute the layer and keep its KV, in the order of their kv
/// heads. One rank if whole layers are split, all ranks if matrices are. CHECKs that each layer has that many owners.
[[nodiscard]] std::vector<std::vector<LayerOwner>> layer_owners(std::span<const Rank> ranks);

/// Calls `call`. Rethrows an error as RankFailed, which names the device of `forward` and `layer` of the whole model
/// (or kKvStage, kLmHeadStage); a FormatError (weights that give no finite numbers) as one that names them.
/// CollectiveAborted passes unchanged, since then another rank has failed.
template <typename Call>
void on_rank(const Forward& forward, std::int64_t layer, const Call& call) {
    const auto named = [&](const std::exception& error) {
        return fmt::format("{}, {}: {}", forward.model().device().name(), pass_place(layer), error.what());
    };
    try {
        call();
    } catch (const CollectiveAborted&) {
        throw;
    } catch (const FormatError& error) {
        throw FormatError(named(error));
    } catch (const std::exception& error) {
        throw RankFailed(named(error));
    }
}

/// Calls `call`. Rethrows an error as above, with the device of ranks[rank] and `layer`. If there is only
/// one rank, the error names `layer` but no device (at_layer()).
template <typename Call>
void on_rank(std::span<const Rank> ranks, std::size_t rank, std::int64_t layer, const Call& call) {
    if (ranks.size() == 1) {
        at_layer(layer, call);
    } else {
        on_rank(*ranks[rank].forward, layer, call);
    }
}

}  // namespace slipstream
