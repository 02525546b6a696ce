#include "draft/tables/frozen_table_builder.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "draft/tables/suffix_sort.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

// A leader or follower and how often it occurs.
struct Counted {
    std::uint32_t window;  // position of a window in which the leader or follower occurs
    std::uint64_t count = 0;
};
struct Leader : Counted {
    std::size_t first_follower = 0;  // index; the leader's followers are consecutive
    std::size_t n_followers = 0;
};

// The windows of LL + FL tokens in the documents: a leader, then its follower.
class Windows {
public:
    Windows(std::span<const std::int32_t> tokens, const CachebackOptions& options, std::int32_t separator)
        : tokens_(tokens),
          n_leader_(options.leader_tokens),
          n_follower_(options.follower_tokens),
          separator_(separator) {}

    [[nodiscard]] std::span<const TokenId> leader(std::uint32_t window) const {
        return tokens_.subspan(window, n_leader_);
    }
    [[nodiscard]] std::span<const TokenId> follower(std::uint32_t window) const {
        return tokens_.subspan(window + n_leader_, n_follower_);
    }
    // Returns true if a whole window starts at `at`, inside one document.
    [[nodiscard]] bool is_one(std::uint32_t at) const {
        const std::size_t length = n_leader_ + n_follower_;
        return at + length <= tokens_.size() && std::ranges::count(tokens_.subspan(at, length), separator_) == 0;
    }

private:
    std::span<const std::int32_t> tokens_;
    std::size_t n_leader_, n_follower_;
    std::int32_t separator_;
};

// Keeps the `n` most frequent leaders, ties to the earlier ones, in their old order.
void keep_most_frequent(std::vector<Leader>& leaders, std::size_t n) {
    if (leaders.size() <= n) return;
    std::ranges::stable_sort(leaders, std::ranges::greater{}, &Leader::count);
    leaders.resize(n);
    std::ranges::sort(leaders, {}, &Leader::first_follower);
}

void append(std::vector<TokenId>& to, std::span<const TokenId> tokens) {
    to.insert(to.end(), tokens.begin(), tokens.end());
}

}  // namespace

BuiltFrozenTable build_frozen_table(const CachebackOptions& options, const Documents& documents,
                                    std::uint64_t tokenizer_fingerprint,
                                    const std::function<void(double, double)>& on_progress) {
    check_cacheback_options(options);
    if (on_progress) on_progress(0.0, 1.0);
    const Windows windows(documents.tokens(), options, documents.vocab());
    std::vector<Leader> leaders;
    std::vector<Counted> followers;
    for (const std::uint32_t window : suffix_array(documents.tokens(), on_progress)) {
        if (!windows.is_one(window)) continue;
        if (leaders.empty() || !std::ranges::equal(windows.leader(leaders.back().window), windows.leader(window)))
            leaders.push_back({{window}, followers.size(), 0});
        Leader& leader = leaders.back();
        if (leader.n_followers == 0 ||
            !std::ranges::equal(windows.follower(followers.back().window), windows.follower(window))) {
            followers.push_back({window});
            ++leader.n_followers;
        }
        ++leader.count;
        ++followers.back().count;
    }
    if (leaders.empty())
        throw RequestError(fmt::format("no text has {} tokens, which a table of these settings needs; give more text",
                                       options.leader_tokens + options.follower_tokens));
    keep_most_frequent(leaders, static_cast<std::size_t>(options.max_leaders));
    std::vector<TokenId> leader_tokens, follower_tokens;
    std::vector<std::uint32_t> first{0};
    for (const Leader& leader : leaders) {
        const auto own = std::span(followers).subspan(leader.first_follower, leader.n_followers);
        // The sort is stable: followers with equal counts stay in the order of their ids.
        std::ranges::stable_sort(own, std::ranges::greater{}, &Counted::count);
        const std::size_t n = std::min(own.size(), static_cast<std::size_t>(options.max_followers));
        append(leader_tokens, windows.leader(leader.window));
        for (const Counted& follower : own.first(n)) append(follower_tokens, windows.follower(follower.window));
        first.push_back(first.back() + static_cast<std::uint32_t>(n));
    }
    BuiltFrozenTable built{.section = {.name = std::string(kFrozenTableSection), .fields = {}},
                           .n_leaders = leaders.size(),
                           .n_followers = first.back()};
    TableWriter& fields = built.section.fields;
    fields.u32(static_cast<std::uint32_t>(options.leader_tokens));
    fields.u32(static_cast<std::uint32_t>(options.follower_tokens));
    fields.u64(static_cast<std::uint64_t>(documents.vocab()));
    fields.u64(tokenizer_fingerprint);
    fields.i32s(leader_tokens);
    fields.u32s(first);
    fields.i32s(follower_tokens);
    if (on_progress) on_progress(1.0, 1.0);
    return built;
}

}  // namespace slipstream::draft
