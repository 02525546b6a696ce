#include "runtime/model/item_memory.h"

#include <string>

#include <fmt/format.h>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

std::string item_name(const WeightItem& item, bool is_head) {
    return is_head ? std::string("the LM head") : fmt::format("the weights of layer {}", item.layer);
}

}  // namespace

// Allocates one buffer for each run of resident items of a layer, so that a layer that is resident as a whole is one
// allocation; one pinned buffer for the experts of a layer that stream, in ascending order, and one for each other item
// that streams.
ItemMemory::ItemMemory(Device& device, std::span<const WeightItem> items, const WeightPlacement& placement,
                       MemoryTag tag, const ItemMemory* base, const std::vector<bool>& own)
    : own_(own), streams_(placement.streams), data_(items.size(), nullptr) {
    if (own_.empty()) own_.assign(items.size(), true);
    if (streams_.empty()) streams_.assign(items.size(), false);
    CHECK(streams_.size() == items.size() && own_.size() == items.size(), "{} items placed, {} own, {} are there",
          streams_.size(), own_.size(), items.size());
    const auto n = static_cast<std::int32_t>(items.size());
    const auto of = [&](std::int32_t i) -> const WeightItem& { return items[i]; };
    for (std::int32_t i = 0; i < n; ++i) {
        if (is_own(i)) continue;
        CHECK(base != nullptr, "item {} has no owner", i);
        data_[i] = base->data(i);
        streams_[i] = base->streams(i);
    }
    const auto name = [&](std::int32_t i) { return item_name(of(i), of(i).layer == items.back().layer); };
    for (std::int32_t i = 0; i < n; ++i) {
        if (streams(i)) streamed_bytes_ += of(i).bytes;
        if (data(i) != nullptr) continue;
        if (streams(i)) {
            CHECK(placement.arena != nullptr);
            const auto shares_buffer = [&](std::int32_t item) {
                return item == i ||
                       (of(i).expert != kNoExpert && of(item).expert != kNoExpert && is_own(item) && streams(item));
            };
            std::size_t bytes = 0;
            std::int32_t end = i;
            for (; end < n && of(end).layer == of(i).layer; ++end)
                if (shares_buffer(end)) bytes += of(end).bytes;
            std::byte* at = streamed_.emplace_back(placement.arena->allocate(bytes, name(i))).data();
            for (std::int32_t item = i; item < end; ++item) {
                if (!shares_buffer(item)) continue;
                data_[item] = at;
                at += of(item).bytes;
            }
            continue;
        }
        std::size_t bytes = 0;
        std::int32_t end = i;
        for (; end < n && is_own(end) && !streams(end) && of(end).layer == of(i).layer; ++end) bytes += of(end).bytes;
        std::byte* at = resident_.emplace_back(device.allocate(bytes, tag, name(i))).data();
        for (std::int32_t item = i; item < end; ++item) {
            data_[item] = at;
            at += of(item).bytes;
        }
    }
}

}  // namespace slipstream
