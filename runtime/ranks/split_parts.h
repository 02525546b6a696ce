// Whole parts by share: of layers or kv heads, and rows of the LM head that go with them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/model_shard.h"

namespace slipstream {

/// How many of `n_parts` each rank has, by its share (> 0 each); the sum is n_parts. Throws Unsupported where a share
/// comes to less than one, of "layer" or whatever `what` calls it.
[[nodiscard]] std::vector<std::int64_t> whole_parts(std::int64_t n_parts, std::span<const double> shares,
                                                    std::string_view what);

/// Where each rank's part of `n_rows` ends, in the order of the ranks, where they have `parts` of something else: the
/// nearest multiple of `unit` below, at least one of them for each; the last one has the rest. Throws Unsupported where
/// there are too few, which names `what`.
[[nodiscard]] std::vector<std::int64_t> ends_in_proportion(std::int64_t n_rows, std::int64_t unit,
                                                           std::span<const std::int64_t> parts, std::string_view what);

/// Deals rows of the LM head out, in whole runs of 16. Throws Unsupported where the vocabulary is too small for that.
void deal_vocabulary(std::int64_t vocab, std::span<const std::int64_t> parts, std::vector<ModelShard>& shards);

}  // namespace slipstream
