#include "kernels/cpu/copy_progress.h"

#include "kernels/cpu_faults.h"

namespace slipstream::cpu {

namespace {

constexpr int kSlices = 10;  // of the deadline

}  // namespace

void CopyProgress::begin(Clock::time_point due) {
    const std::scoped_lock lock(mutex_);
    ++n_begun_;
    due_ = due;
    under_way_ = true;
    given_up_ = false;
}

void CopyProgress::stand_still() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return given_up_ || stopped_; });
    given_up_ = true;
}

bool CopyProgress::end() {
    const std::scoped_lock lock(mutex_);
    under_way_ = false;
    return given_up_;
}

void CopyProgress::stop() {
    {
        const std::scoped_lock lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
}

std::uint64_t CopyProgress::overdue() const {
    const std::scoped_lock lock(mutex_);
    return under_way_ && Clock::now() > due_ ? n_begun_ : 0;
}

void CopyProgress::give_up(std::uint64_t copy) {
    {
        const std::scoped_lock lock(mutex_);
        if (!under_way_ || copy != n_begun_) return;
        given_up_ = true;
    }
    changed_.notify_all();
}

std::chrono::nanoseconds Patience::slice() const {
    return (progress_ != nullptr ? progress_->stall_after() : kStallAfter) / kSlices;
}

void Patience::slice_over() {
    const std::uint64_t copy = progress_ != nullptr ? progress_->overdue() : 0;
    n_slices_ = copy == copy_ ? n_slices_ + 1 : 0;
    copy_ = copy;
    if (copy != 0 && n_slices_ >= kSlices) progress_->give_up(copy);
}

}  // namespace slipstream::cpu
