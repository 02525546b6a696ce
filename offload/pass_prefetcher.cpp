#include "offload/pass_prefetcher.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

PassPrefetcher::PassPrefetcher(TransferRing& ring, ScheduleSource& source, std::int64_t max_items)
    : ring_(&ring), source_(&source), max_items_(max_items) {
    CHECK(max_items >= 0, "schedules of at most {} items", max_items);
    current_.reserve(max_items);
    next_.reserve(max_items);
}

void PassPrefetcher::ask_for_next() {
    source_->next_schedule(next_);
    CHECK(std::ssize(next_) <= max_items_, "a schedule of {} items, at most {} are allowed", next_.size(), max_items_);
    next_is_frozen_ = true;
    next_fits_ = std::all_of(next_.begin(), next_.end(),
                             [this](const TransferItem& item) { return item.bytes <= ring_->region_bytes(); });
    n_next_copied_ = 0;
}

void PassPrefetcher::begin_pass(Stream& compute) {
    CHECK(!running_, "a pass begins before the previous one has ended");
    if (!next_is_frozen_) ask_for_next();
    if (!next_fits_) {
        next_is_frozen_ = false;
        const auto largest = std::max_element(next_.begin(), next_.end(),
                                              [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
        throw OutOfBudget(
            fmt::format("an item of {} bytes must be copied to the device, but its transfer ring holds only {}; use a "
                        "larger --device-memory or --ring",
                        largest->bytes, ring_->region_bytes()));
    }
    std::swap(current_, next_);
    first_number_ = ring_->next_number() - n_next_copied_;
    n_copied_ = std::exchange(n_next_copied_, 0);
    n_released_ = 0;
    next_is_frozen_ = false;
    running_ = true;
    try {
        copy_ahead();
    } catch (...) {
        failure_told_ = true;
        rewind(compute);
        throw;
    }
}

void PassPrefetcher::copy_ahead() {
    for (; n_copied_ < std::ssize(current_); ++n_copied_) {
        const TransferItem& item = current_[n_copied_];
        if (!ring_->has_room(item.bytes)) return;
        ring_->push(item);
    }
    if (!next_is_frozen_) {
        if (!ring_->has_room(current_.empty() ? 1 : current_.front().bytes)) return;
        ask_for_next();
    }
    if (!next_fits_) return;
    for (; n_next_copied_ < std::ssize(next_); ++n_next_copied_) {
        const TransferItem& item = next_[n_next_copied_];
        if (!ring_->has_room(item.bytes)) return;
        ring_->push(item);
    }
}

const std::byte* PassPrefetcher::acquire(std::int64_t index, Stream& compute) {
    CHECK(running_ && index >= n_released_ && index < n_copied_, "item {} of a pass of {}: {} are released, {} copied",
          index, n_items(), n_released_, n_copied_);
    try {
        return ring_->acquire(first_number_ + index, compute);
    } catch (...) {
        failure_told_ = true;
        throw;
    }
}

void PassPrefetcher::release(std::int64_t index, Stream& compute) {
    CHECK(running_ && index == n_released_ && index < n_copied_,
          "release of item {} of a pass of {}: {} are released, {} copied", index, n_items(), n_released_, n_copied_);
    ring_->release(first_number_ + index, compute);
    ++n_released_;
    copy_ahead();
}

void PassPrefetcher::end_pass() {
    CHECK(running_ && n_released_ == n_items(), "a pass of {} items ends with {} released", n_items(), n_released_);
    running_ = false;
}

void PassPrefetcher::rewind(Stream& compute) {
    running_ = false;
    next_is_frozen_ = false;
    const bool told = std::exchange(failure_told_, false);
    try {
        ring_->drop_all(compute);
    } catch (...) {
        if (!told) throw;
    }
}

std::int64_t PassPrefetcher::n_items() const {
    return running_ ? std::ssize(current_) : 0;
}

}  // namespace slipstream
