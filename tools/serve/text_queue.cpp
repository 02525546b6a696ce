#include "tools/serve/text_queue.h"

#include <algorithm>
#include <utility>

namespace slipstream::tools {

bool TextQueue::add(std::shared_ptr<TextJob> job) {
    const std::lock_guard lock(mutex_);
    const auto n_alive =
        std::ranges::count_if(places_, [](const Place& place) { return !place.job->exchange->cancelled().load(); });
    if (closed_ || static_cast<std::size_t>(n_alive) >= most_waiting_) return false;
    places_.push_back({std::move(job)});
    return true;
}

void TextQueue::make_ready(const TextJob& job) {
    const std::lock_guard lock(mutex_);
    for (Place& place : places_)
        if (place.job.get() == &job) place.is_ready = true;
    changed_.notify_all();
}

void TextQueue::remove(const TextJob& job) {
    const std::lock_guard lock(mutex_);
    std::erase_if(places_, [&](const Place& place) { return place.job.get() == &job; });
    changed_.notify_all();
}

std::shared_ptr<TextJob> TextQueue::take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    const auto is_ready = [&] { return !places_.empty() && places_.front().is_ready; };
    if (!changed_.wait_for(lock, patience, is_ready)) return nullptr;
    std::shared_ptr<TextJob> job = std::move(places_.front().job);
    places_.pop_front();
    return job;
}

std::vector<std::shared_ptr<TextJob>> TextQueue::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    std::vector<std::shared_ptr<TextJob>> ready;
    for (Place& place : places_)
        if (place.is_ready) ready.push_back(std::move(place.job));
    std::erase_if(places_, [](const Place& place) { return place.is_ready; });
    return ready;
}

std::size_t TextQueue::n_waiting() const {
    const std::lock_guard lock(mutex_);
    return places_.size();
}

}  // namespace slipstream::tools
