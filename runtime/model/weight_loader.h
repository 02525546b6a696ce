// Brings matrices out of mapped model files into their items, packed for the device, with several threads: some read
// ahead (bring the pages in), one at a time packs with the device's own threads, and file pages are given up behind it.
// So a model is in memory once, and loading is bounded by the disk.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weight_source.h"

namespace slipstream {

/// Most bytes of the files that are read and not yet packed, in memory beside the destinations (more only where 16 rows
/// take more; where weights are rounded, their Q8_0 blocks come on top until the pages are given up).
inline constexpr std::size_t kLoadWindowBytes = std::size_t{128} << 20;

struct WeightLoadRequest {
    const WeightSource* source = nullptr;
    const ModelWeights* weights = nullptr;  // views into the memory of `source`
    std::span<const WeightItem> items;
    std::span<std::byte* const> destinations;  // [items]: item.bytes of memory, 64-byte aligned: the device's, or
    const std::vector<bool>* in_host_memory = nullptr;  // [items]: the host's where true; null: the device's all
    int n_readers = 2;  // threads that read ahead, >= 1; rounding is theirs, so as many as there are cores then
    /// Called on the calling thread with bytes of the files done and in all; may throw to give up.
    std::function<void(std::size_t, std::size_t)> on_progress;
};

/// Returns when every item is complete. Throws IoError (a file cut short meanwhile, a disk that fails), or what
/// on_progress threw; all threads have ended then.
void load_weight_items(Device& device, const WeightLoadRequest& request);

}  // namespace slipstream
