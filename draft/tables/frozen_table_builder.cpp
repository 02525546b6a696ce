#include "draft/tables/frozen_table_builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "draft/sources/cacheback_options.h"
#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

// Which part of the leaders a leader belongs to: any fixed function that spreads them.
std::size_t part_of(std::span<const TokenId> leader, std::size_t n_parts) {
    std::uint64_t state = 0;
    for (const TokenId token : leader) {
        state = (state ^ static_cast<std::uint32_t>(token)) * 0xd6e8feb86659fd93ULL;
        state ^= state >> 32;
    }
    return state % n_parts;
}

std::size_t setting(std::int64_t value) {
    return static_cast<std::size_t>(value);
}

}  // namespace

FrozenTableBuilder::FrozenTableBuilder(const CachebackOptions& options, const FrozenTableKey& key,
                                       std::size_t max_sorted)
    : leader_tokens_(setting(options.leader_tokens)),
      follower_tokens_(setting(options.follower_tokens)),
      max_leaders_(setting(options.max_leaders)),
      max_followers_(setting(options.max_followers)),
      max_sorted_(max_sorted),
      key_(key) {
    check_cacheback_options(options);
    CHECK(max_sorted > 0);
}

void FrozenTableBuilder::add(std::span<const TokenId> document) {
    if (document.size() > kMaxTokens - tokens_.size())
        throw RequestError(fmt::format("the corpus has more than {} tokens; give less text", kMaxTokens));
    for (const TokenId token : document) CHECK(token >= 0 && token < key_.vocab, "token {} of {}", token, key_.vocab);
    tokens_.insert(tokens_.end(), document.begin(), document.end());
    document_ends_.push_back(tokens_.size());
    figures_.n_tokens = tokens_.size();
}

std::span<const TokenId> FrozenTableBuilder::leader_at(std::uint32_t window) const {
    return std::span(tokens_).subspan(window, leader_tokens_);
}

std::span<const TokenId> FrozenTableBuilder::follower_at(std::uint32_t window) const {
    return std::span(tokens_).subspan(window + leader_tokens_, follower_tokens_);
}

void FrozenTableBuilder::collect_windows(std::size_t part, std::size_t n_parts) {
    windows_.clear();
    const std::size_t length = leader_tokens_ + follower_tokens_;
    std::size_t begin = 0;
    for (const std::size_t end : document_ends_) {
        for (; begin + length <= end; ++begin) {
            const auto window = static_cast<std::uint32_t>(begin);
            if (n_parts == 1 || part_of(leader_at(window), n_parts) == part) windows_.push_back(window);
        }
        begin = end;
    }
}

// One leader, all of its windows, sorted: its followers by falling count, as far as they are kept.
void FrozenTableBuilder::keep_leader(std::span<const std::uint32_t> windows) {
    struct Counted {
        std::uint32_t window;
        std::uint32_t count;
    };
    std::vector<Counted> counted;
    for (const std::uint32_t window : windows) {
        if (counted.empty() || !std::ranges::equal(follower_at(counted.back().window), follower_at(window)))
            counted.push_back({window, 0});
        ++counted.back().count;
    }
    // Stable: equal counts stay in the order of their ids.
    std::ranges::stable_sort(counted, [](const Counted& a, const Counted& b) { return a.count > b.count; });
    if (counted.size() > max_followers_) counted.resize(max_followers_);
    leaders_.push_back({.window = windows.front(),
                        .n_followers = static_cast<std::uint32_t>(counted.size()),
                        .count = windows.size(),
                        .first_follower = followers_.size()});
    for (const Counted& follower : counted) followers_.push_back(follower.window);
}

void FrozenTableBuilder::count_part() {
    const std::size_t length = leader_tokens_ + follower_tokens_;
    const auto content = [&](std::uint32_t window) { return std::span(tokens_).subspan(window, length); };
    std::ranges::sort(windows_, [&](std::uint32_t a, std::uint32_t b) {
        return std::ranges::lexicographical_compare(content(a), content(b));
    });
    for (auto begin = windows_.begin(); begin != windows_.end();) {
        const auto end = std::find_if_not(begin, windows_.end(), [&](std::uint32_t window) {
            return std::ranges::equal(leader_at(window), leader_at(*begin));
        });
        keep_leader({begin, end});
        begin = end;
    }
}

// The most frequent leaders, ties to the lower ids; followers of the others are dropped.
void FrozenTableBuilder::keep_most_frequent(std::size_t n_leaders) {
    if (leaders_.size() <= n_leaders) return;
    std::ranges::sort(leaders_, [&](const Leader& a, const Leader& b) {
        if (a.count != b.count) return a.count > b.count;
        return std::ranges::lexicographical_compare(leader_at(a.window), leader_at(b.window));
    });
    leaders_.resize(n_leaders);
    std::vector<std::uint32_t> kept;
    for (Leader& leader : leaders_) {
        const auto first = followers_.begin() + static_cast<std::ptrdiff_t>(leader.first_follower);
        leader.first_follower = kept.size();
        kept.insert(kept.end(), first, first + leader.n_followers);
    }
    followers_ = std::move(kept);
}

TableSection FrozenTableBuilder::build(const std::function<void(double, double)>& on_progress) {
    leaders_.clear();
    followers_.clear();
    const std::size_t n_parts = ceil_div(std::max<std::size_t>(tokens_.size(), 1), max_sorted_);
    for (std::size_t part = 0; part < n_parts; ++part) {
        if (on_progress) on_progress(static_cast<double>(part), static_cast<double>(n_parts));
        collect_windows(part, n_parts);
        count_part();
        // Twice as many as are wanted may stand: then each is moved once on average.
        if (leaders_.size() / 2 >= max_leaders_) keep_most_frequent(max_leaders_);
    }
    windows_ = {};
    keep_most_frequent(max_leaders_);
    if (leaders_.empty())
        throw RequestError(fmt::format("no text has {} tokens, which a table of these settings needs; give more text",
                                       leader_tokens_ + follower_tokens_));
    std::ranges::sort(leaders_, [&](const Leader& a, const Leader& b) {
        return std::ranges::lexicographical_compare(leader_at(a.window), leader_at(b.window));
    });
    std::vector<TokenId> leaders, followers;
    std::vector<std::uint32_t> first{0};
    leaders.reserve(leaders_.size() * leader_tokens_);
    followers.reserve(followers_.size() * follower_tokens_);
    for (const Leader& leader : leaders_) {
        const auto ids = leader_at(leader.window);
        leaders.insert(leaders.end(), ids.begin(), ids.end());
        for (std::size_t i = 0; i < leader.n_followers; ++i) {
            const auto more = follower_at(followers_[leader.first_follower + i]);
            followers.insert(followers.end(), more.begin(), more.end());
        }
        first.push_back(first.back() + leader.n_followers);
    }
    figures_ = {.n_tokens = tokens_.size(), .n_leaders = leaders_.size(), .n_followers = followers_.size()};
    TableSection section{.name = std::string(kFrozenTableSection), .fields = {}};
    section.fields.u32(static_cast<std::uint32_t>(leader_tokens_));
    section.fields.u32(static_cast<std::uint32_t>(follower_tokens_));
    section.fields.u64(static_cast<std::uint64_t>(key_.vocab));
    section.fields.u64(key_.tokenizer_fingerprint);
    section.fields.i32s(leaders);
    section.fields.u32s(first);
    section.fields.i32s(followers);
    if (on_progress) on_progress(1.0, 1.0);
    return section;
}

}  // namespace slipstream::draft
