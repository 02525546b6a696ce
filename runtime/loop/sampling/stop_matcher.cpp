#include "runtime/loop/sampling/stop_matcher.h"

#include <algorithm>

namespace slipstream {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) : nodes_(1) {
    for (const std::string& stop : stops) add(stop);
    link();
}

std::uint32_t StopMatcher::child(std::uint32_t node, unsigned char byte) const {
    for (const auto& [label, target] : nodes_[node].children)
        if (label == byte) return target;
    return 0;
}

std::uint32_t StopMatcher::advance(std::uint32_t node, unsigned char byte) const {
    while (true) {
        const std::uint32_t next = child(node, byte);
        if (next != 0 || node == 0) return next;
        node = nodes_[node].fallback;
    }
}

void StopMatcher::add(std::string_view stop) {
    std::uint32_t node = 0;
    for (const char c : stop) {
        const auto byte = static_cast<unsigned char>(c);
        std::uint32_t next = child(node, byte);
        if (next == 0) {
            next = static_cast<std::uint32_t>(nodes_.size());
            nodes_.push_back({.children = {}, .depth = nodes_[node].depth + 1});
            nodes_[node].children.emplace_back(byte, next);
        }
        node = next;
    }
    nodes_[node].match_length = nodes_[node].depth;  // an empty stop leaves 0 at the root
}

/// Sets fallbacks in order of depth: a node's fallback is always shallower, so it is already complete.
void StopMatcher::link() {
    std::vector<std::uint32_t> queue = {0};
    for (std::size_t i = 0; i < queue.size(); ++i) {
        const std::uint32_t node = queue[i];
        for (const auto& [byte, target] : nodes_[node].children) {
            nodes_[target].fallback = node == 0 ? 0 : advance(nodes_[node].fallback, byte);
            if (nodes_[target].match_length == 0)
                nodes_[target].match_length = nodes_[nodes_[target].fallback].match_length;
            queue.push_back(target);
        }
    }
}

std::string_view StopMatcher::push(std::string_view text) {
    out_.clear();
    if (matched_) return out_;
    held_ += text;
    for (std::size_t i = held_.size() - text.size(); i < held_.size(); ++i) {
        state_ = advance(state_, static_cast<unsigned char>(held_[i]));
        if (nodes_[state_].match_length == 0) continue;
        matched_ = true;
        const std::size_t begin = i + 1 - nodes_[state_].match_length;
        out_.assign(held_, 0, begin);
        matched_stop_.assign(held_, begin, nodes_[state_].match_length);
        held_.clear();
        return out_;
    }
    const std::size_t shown = held_.size() - nodes_[state_].depth;
    out_.assign(held_, 0, shown);
    held_.erase(0, shown);
    return out_;
}

std::string_view StopMatcher::finish() {
    out_ = matched_ ? std::string() : held_;
    held_.clear();
    state_ = 0;
    return out_;
}

}  // namespace slipstream
