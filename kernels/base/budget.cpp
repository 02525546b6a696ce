#include "kernels/base/budget.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/size_text.h"

namespace slipstream {

std::string_view memory_tag_name(MemoryTag tag) {
    static constexpr std::array<std::string_view, kMemoryTagCount> kNames{"weights", "kv",          "ring",
                                                                          "draft",   "activations", "workspace"};
    return kNames[static_cast<std::size_t>(tag)];
}

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), tag_(other.tag_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    std::swap(tag_, other.tag_);
    return *this;
}

Reservation::~Reservation() {
    if (budget_ != nullptr) budget_->give_back(bytes_, tag_);
}

Budget::Budget(std::string owner, std::size_t limit_bytes) : owner_(std::move(owner)), limit_bytes_(limit_bytes) {}

Reservation Budget::reserve(std::size_t bytes, MemoryTag tag, std::string_view what) {
    const std::scoped_lock lock(mutex_);
    if (bytes > limit_bytes_ - used_bytes_) {
        throw OutOfBudget(fmt::format(
            "{}: {} needs {} ({}), but only {} of {} are left; use a larger --device-memory, a shorter --ctx "
            "or a smaller model",
            owner_, what, size_text(bytes), memory_tag_name(tag), size_text(limit_bytes_ - used_bytes_),
            size_text(limit_bytes_)));
    }
    used_bytes_ += bytes;
    used_by_tag_[static_cast<std::size_t>(tag)] += bytes;
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
    return {this, bytes, tag};
}

std::size_t Budget::used_bytes() const {
    const std::scoped_lock lock(mutex_);
    return used_bytes_;
}

std::size_t Budget::used_bytes(MemoryTag tag) const {
    const std::scoped_lock lock(mutex_);
    return used_by_tag_[static_cast<std::size_t>(tag)];
}

std::size_t Budget::peak_bytes() const {
    const std::scoped_lock lock(mutex_);
    return peak_bytes_;
}

void Budget::give_back(std::size_t bytes, MemoryTag tag) noexcept {
    const std::scoped_lock lock(mutex_);
    used_bytes_ -= bytes;
    used_by_tag_[static_cast<std::size_t>(tag)] -= bytes;
}

}  // namespace slipstream
