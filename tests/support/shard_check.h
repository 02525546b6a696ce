// What shares of a model compute, put together again, on any device: matrices cut by rows make the bits of the whole,
// matrices cut by columns its sum.
#pragma once

#include "kernels/device.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model_shard.h"

namespace slipstream {

/// Loads `files` whole and in `shares` (which cover it, in order) onto `device`, and compares every matrix's product
/// with a few random vectors. Failures are gtest's.
void expect_shards_make_the_whole(Device& device, const ModelFiles& files, std::span<const ModelShard> shards);

}  // namespace slipstream
