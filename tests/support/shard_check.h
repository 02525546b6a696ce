// Checks that the shards of a model compute what the whole model computes, on any device: matrices that are split by
// rows give the same bits, matrices that are split by columns give the same sum up to rounding.
#pragma once

#include "kernels/device.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model_shard.h"

namespace slipstream {

/// Loads `files` onto `device` as a whole and as `shards` (in order, covering the whole model), and compares the
/// products of every matrix with a few random vectors. Differences are gtest failures.
void expect_shards_make_the_whole(Device& device, const ModelFiles& files, std::span<const ModelShard> shards);

}  // namespace slipstream
