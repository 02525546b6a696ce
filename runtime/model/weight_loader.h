// Copies matrices from mapped model files to their items, packed for the device, with several threads: some read ahead
// (bring the pages in), one at a time packs with the device's own threads, and file pages are released once they are
// packed. So a model is in memory once, and loading is bounded by the disk.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weight_source.h"

namespace slipstream {

/// Limits the bytes of the files that are read and not yet packed, which need memory besides the destinations, however
/// fast the disk is. It is exceeded only if 16 rows take more; if weights are rounded, their Q8_0 blocks are added
/// until the pages are released.
inline constexpr std::size_t kLoadWindowBytes = std::size_t{128} << 20;

struct WeightLoadRequest {
    const WeightSource* source = nullptr;
    const ModelWeights* weights = nullptr;  // views into the memory of `source`
    std::span<const WeightItem> items;
    std::span<std::byte* const> destinations;  // [items]: item.bytes of memory each, 64-byte aligned
    /// [items]: whether the destination is in host memory; null: none is.
    const std::vector<bool>* in_host_memory = nullptr;
    /// Threads that read ahead, >= 1. If weights must be rounded, these threads do it: use as many as there are cores.
    int n_readers = 2;
    /// Called on the calling thread with the bytes of the files done and in total; may throw, which ends the loading.
    std::function<void(std::size_t, std::size_t)> on_progress;
};

/// Loads the items. Returns when every item is complete. Throws IoError (a file that was cut short meanwhile, a disk
/// that fails), or what on_progress threw; all threads have ended then.
void load_weight_items(Device& device, const WeightLoadRequest& request);

}  // namespace slipstream
