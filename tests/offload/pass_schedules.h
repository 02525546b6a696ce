// Schedules for passes in tests: every pass has items of its own, whose bytes tell pass and index.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "offload/pass_prefetcher.h"

namespace slipstream {

/// Fills an item quickly with bytes that no other item of a test has at the same place, but by rare chance.
inline void fill_block(std::int64_t pass, std::int64_t index, std::vector<std::byte>& item) {
    static const std::vector<std::byte> kNoise = [] {
        std::vector<std::byte> noise((std::size_t{1} << 18) + 9973);
        std::mt19937 rng(1);
        for (std::byte& byte : noise) byte = static_cast<std::byte>(rng());
        return noise;
    }();
    const std::size_t shift = static_cast<std::size_t>(pass * 211 + index) % 9973;
    std::copy_n(kNoise.begin() + static_cast<std::ptrdiff_t>(shift), item.size(), item.begin());
}

class PassSchedules final : public ScheduleSource {
public:
    /// `sizes(pass)`: the items of a pass, counted in the order of asking; of at most 256 KiB.
    explicit PassSchedules(std::function<std::vector<std::size_t>(std::int64_t pass)> sizes)
        : sizes_(std::move(sizes)) {}

    void next_schedule(std::vector<TransferItem>& schedule) override {
        schedule.clear();
        const auto pass = std::ssize(blocks_);
        blocks_.emplace_back();
        for (const std::size_t bytes : sizes_(pass)) {
            auto item = std::make_unique<std::vector<std::byte>>(bytes);
            fill_block(pass, std::ssize(blocks_.back()), *item);
            schedule.push_back({.source = item->data(), .bytes = bytes});
            blocks_.back().push_back(std::move(item));
        }
    }

    [[nodiscard]] std::int64_t n_asked() const { return std::ssize(blocks_); }
    [[nodiscard]] std::int64_t n_items(std::int64_t pass) const { return std::ssize(blocks_[pass]); }
    [[nodiscard]] std::size_t item_bytes(std::int64_t pass, std::int64_t index) const {
        return blocks_[pass][index]->size();
    }
    [[nodiscard]] bool is_item(const std::byte* data, std::int64_t pass, std::int64_t index) const {
        const std::vector<std::byte>& item = *blocks_[pass][index];
        return std::equal(item.begin(), item.end(), data);
    }

private:
    std::function<std::vector<std::size_t>(std::int64_t)> sizes_;
    std::vector<std::vector<std::unique_ptr<std::vector<std::byte>>>> blocks_;  // of each pass; kept
};

/// Memory for a ring, 64-byte aligned.
class RingMemory {
public:
    explicit RingMemory(std::size_t bytes) : lines_(bytes / sizeof(Line) + 1), bytes_(bytes) {}
    [[nodiscard]] std::span<std::byte> span() { return {lines_[0].bytes, bytes_}; }

private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::vector<Line> lines_;
    std::size_t bytes_;
};

}  // namespace slipstream
