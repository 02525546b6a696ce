#include "tools/serve/text_queue.h"

#include <algorithm>
#include <utility>

namespace slipstream::tools {

bool TextQueue::add(std::shared_ptr<TextJob> job) {
    const std::lock_guard lock(mutex_);
    if (closed_ || n_alive() >= most_waiting_) return false;
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

template <typename Condition>
std::vector<std::shared_ptr<TextJob>> TextQueue::take_ready_if(Condition is_taken) {
    std::vector<std::shared_ptr<TextJob>> taken;
    std::erase_if(places_, [&](const Place& place) {
        if (!place.is_ready || !is_taken(place)) return false;
        taken.push_back(place.job);
        return true;
    });
    if (!taken.empty()) changed_.notify_all();
    return taken;
}

std::vector<std::shared_ptr<TextJob>> TextQueue::take_left() {
    const std::lock_guard lock(mutex_);
    return take_ready_if([](const Place& place) { return place.is_left(); });
}

std::vector<std::shared_ptr<TextJob>> TextQueue::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    return take_ready_if([](const Place& /*place*/) { return true; });
}

std::size_t TextQueue::n_waiting() const {
    const std::lock_guard lock(mutex_);
    return n_alive();
}

std::size_t TextQueue::n_alive() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(places_, [](const Place& place) { return !place.is_left(); }));
}

}  // namespace slipstream::tools
