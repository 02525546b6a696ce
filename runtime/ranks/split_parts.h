// Distributes whole parts by share: layers or kv heads, and the rows of the LM head that go with them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/model/model_shard.h"

namespace slipstream {

/// Returns how many of `n_parts` parts each rank gets, in proportion to its share (> 0 each, CHECKed); the sum is
/// n_parts. Throws Unsupported if a share is less than one part; `what` names a part in the message ("layer").
[[nodiscard]] std::vector<std::int64_t> whole_parts(std::int64_t n_parts, std::span<const double> shares,
                                                    std::string_view what);

/// Divides `n_rows` rows among ranks in proportion to their `parts`, and returns the end of each rank's range, in the
/// order of the ranks. Ends are rounded down to a multiple of `unit`, but each rank gets at least one unit; the last
/// rank has the rest. Throws Unsupported if there are too few rows; `what` names them in the message.
[[nodiscard]] std::vector<std::int64_t> ends_in_proportion(std::int64_t n_rows, std::int64_t unit,
                                                           std::span<const std::int64_t> parts, std::string_view what);

/// Sets the rows of the LM head in `shards`, in proportion to `parts` [ranks], in runs of 16. Throws Unsupported if the
/// vocabulary is too small for that.
void deal_vocabulary(std::int64_t vocab, std::span<const std::int64_t> parts, std::vector<ModelShard>& shards);

}  // namespace slipstream
