#include "draft/sources/cacheback.h"

#include <algorithm>
#include <array>
#include <utility>

#include "draft/sources/best_proposals.h"
#include "draft/tables/cacheback_options.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::uint32_t kNone = LruTable::kNone;
// Most followers of one leader that are read for a list of proposals: older ones add little.
constexpr std::size_t kMaxVisits = 16;
constexpr std::size_t kFirstPlaces = 1024;  // cursors for which memory is reserved at first
constexpr std::size_t kNRankBuckets = 6;
constexpr std::array<std::uint8_t, 9> kRankBuckets{0, 1, 2, 3, 3, 4, 4, 4, 4};

constexpr std::array<float, kMaxVisits> kWeights = [] {
    std::array<float, kMaxVisits> weights{};
    for (std::size_t i = 0; i < kMaxVisits; ++i) weights[i] = 1.0F / static_cast<float>(i + 1);
    return weights;
}();

// A kind of list of proposals. `first_bin`: the first of its kNRankBuckets calibration bins. `ignorance`: the weight of
// all tokens that were not seen, in units of the newest follower's weight. The values put probabilities near the
// measured acceptance (recorded Vicuna-7B answers to Spec-Bench, the dynamic table reset for each prompt, the frozen
// table made of three novels); calibration corrects the rest.
struct ListKind {
    std::uint16_t first_bin;
    float ignorance;
};
constexpr ListKind kDynamicInside{0, 1.0F};
constexpr ListKind kDynamicStart{kNRankBuckets, 3.0F};
constexpr ListKind kFrozenInside{2 * kNRankBuckets, 16.0F};
constexpr ListKind kFrozenStart{3 * kNRankBuckets, 16.0F};
constexpr std::uint16_t kNBins = 4 * kNRankBuckets;

LruTableShape table_shape(const CachebackOptions& options) {
    check_cacheback_options(options);
    return {.leader_tokens = static_cast<std::size_t>(options.leader_tokens),
            .follower_tokens = static_cast<std::size_t>(options.follower_tokens),
            .max_leaders = static_cast<std::size_t>(options.max_leaders),
            .max_followers = static_cast<std::size_t>(options.max_followers)};
}

/// Returns the first follower, from `from` on, that begins with `prefix` and continues with `token`; kNone if there is
/// none among the first kMaxVisits.
template <typename Table>
std::uint32_t find_follower(const Table& table, std::uint32_t from, std::span<const TokenId> prefix, TokenId token) {
    for (std::size_t visit = 0; from != kNone && visit < kMaxVisits; from = table.next_follower(from), ++visit) {
        const auto follower = table.follower(from);
        if (follower[prefix.size()] == token && std::ranges::equal(follower.first(prefix.size()), prefix)) return from;
    }
    return kNone;
}

}  // namespace

// The proposals that propose() collects: distinct tokens. Lists are added in order of reliability.
class Cacheback::Candidates {
public:
    /// Adds the tokens at index `n_matched` of all followers, from `from` on, that begin with the first `n_matched`
    /// tokens of the follower `from`. Reads at most kMaxVisits followers; adds nothing if `from` is kNone.
    template <typename Table>
    void add_list(const Table& table, std::uint32_t from, std::size_t n_matched, const ListKind& kind) {
        if (from == kNone) return;
        const auto prefix = table.follower(from).first(n_matched);
        const std::size_t begin = n_;
        float total = kind.ignorance;
        for (std::size_t visit = 0; from != kNone && visit < kMaxVisits; from = table.next_follower(from), ++visit) {
            const auto follower = table.follower(from);
            if (!std::ranges::equal(follower.first(n_matched), prefix)) continue;
            total += kWeights[visit];
            add(begin, follower[n_matched], kWeights[visit]);
        }
        close_list(begin, total, kind);
    }
    [[nodiscard]] std::span<const Proposal> all() const { return {entries_.data(), n_}; }

private:
    void add(std::size_t begin, TokenId token, float weight) {
        for (std::size_t i = begin; i < n_; ++i) {
            if (entries_[i].token != token) continue;
            entries_[i].probability += weight;
            return;
        }
        if (n_ < entries_.size()) entries_[n_++] = {.token = token, .probability = weight};
    }
    // Turns the list's weights into probabilities. A token that an earlier list already proposed is merged into that
    // proposal by noisy-or: either list may be right.
    void close_list(std::size_t begin, float total, const ListKind& kind) {
        std::size_t end = begin;
        for (std::size_t i = begin; i < n_; ++i) {
            Proposal entry = entries_[i];
            entry.probability /= total;
            const std::size_t rank = i - begin;
            entry.bin = static_cast<std::uint16_t>(
                kind.first_bin + (rank < kRankBuckets.size() ? kRankBuckets[rank] : kNRankBuckets - 1));
            const auto known = std::find_if(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(begin),
                                            [&](const Proposal& other) { return other.token == entry.token; });
            if (known != entries_.begin() + static_cast<std::ptrdiff_t>(begin)) {
                known->probability += (1.0F - known->probability) * entry.probability;
            } else {
                entries_[end++] = entry;
            }
        }
        n_ = end;
    }

    std::array<Proposal, kMaxCandidates> entries_;
    std::size_t n_ = 0;
};

Cacheback::Cacheback(const CachebackOptions& options, std::int64_t vocab, std::optional<FrozenTable> frozen)
    : options_(options),
      vocab_(vocab),
      dynamic_(table_shape(options)),
      frozen_(std::move(frozen)),
      tree_(options),
      n_context_(std::max(dynamic_.leader_tokens(), frozen_ ? frozen_->leader_tokens() : 0)) {
    places_.reserve(kFirstPlaces);
    contexts_.reserve(kFirstPlaces * n_context_);
}

std::uint16_t Cacheback::n_bins() const {
    return kNBins;
}

void Cacheback::observe(const Observation& observation) {
    forget_places();
    const std::size_t n = observation.text.size();
    // The first observed text is new as a whole.
    learn(observation.text, seen_any_ ? n - std::min(n, static_cast<std::size_t>(observation.n_new)) : 0);
    seen_any_ = true;
}

// Inserts one pair of leader and follower for each position of `text` after the first `n_known`: the LL + FL tokens
// that end there (LL: tokens of a leader, FL: of a follower).
void Cacheback::learn(std::span<const TokenId> text, std::size_t n_known) {
    const LruTableShape& shape = dynamic_.shape();
    const std::size_t window = shape.leader_tokens + shape.follower_tokens;
    for (std::size_t end = std::max(n_known + 1, window); end <= text.size(); ++end) {
        const auto pair = text.subspan(end - window, window);
        dynamic_.insert(pair.first(shape.leader_tokens), pair.last(shape.follower_tokens));
    }
}

void Cacheback::reset() {
    dynamic_.clear();
    forget_places();
    seen_any_ = false;
}

void Cacheback::forget_places() {
    places_.clear();
    contexts_.clear();
    root_ = kNowhere;
}

Cursor Cacheback::add_place(const Place& place) {
    places_.push_back(place);
    contexts_.resize(contexts_.size() + n_context_);
    return places_.size() - 1;
}

std::span<TokenId> Cacheback::context(Cursor cursor) {
    return std::span(contexts_).subspan(cursor * n_context_, n_context_);
}

template <typename Table>
Cacheback::Spot Cacheback::spot_behind(const Table& table, const Spot& spot, TokenId token,
                                       std::span<const TokenId> context) const {
    Spot next{.leader = table.find(context.last(table.leader_tokens()))};
    // Continues inside the follower, or enters a follower of the previous leader.
    if (spot.follower != kNone) {
        const auto tokens = table.follower(spot.follower);
        if (spot.n_matched + 1 < tokens.size())
            next.follower = find_follower(table, spot.follower, tokens.first(spot.n_matched), token);
        next.n_matched = spot.n_matched + 1;
    }
    if (next.follower == kNone && spot.leader != kNone) {
        const std::uint32_t first = table.first_follower(spot.leader);
        if (table.follower(first).size() > 1) next.follower = find_follower(table, first, {}, token);
        next.n_matched = 1;
    }
    return next;
}

// Returns the cursor at the end of `text`. Walks over the last FL - 1 tokens of `text` (FL: tokens of a follower), so
// that the root may be inside a follower too.
Cursor Cacheback::root(std::span<const TokenId> text) {
    CHECK(!text.empty());
    if (root_ != kNowhere) return root_;
    const std::size_t n_inside = std::min(dynamic_.shape().follower_tokens, text.size()) - 1;
    const auto before = text.first(text.size() - n_inside);
    root_ = add_place({});
    const std::span<TokenId> tokens = context(root_);
    std::ranges::fill(tokens, -1);  // positions before the start of the sequence
    std::ranges::copy(before.last(std::min(before.size(), n_context_)),
                      tokens.end() - static_cast<std::ptrdiff_t>(std::min(before.size(), n_context_)));
    Place& place = places_.back();
    place.dynamic.leader = dynamic_.find(tokens.last(dynamic_.leader_tokens()));
    if (frozen_) place.frozen.leader = frozen_->find(tokens.last(frozen_->leader_tokens()));
    for (const TokenId token : text.last(n_inside)) root_ = advance(root_, token);
    return root_;
}

Cursor Cacheback::advance(Cursor cursor, TokenId token) {
    const Place before = places_[cursor];
    const Cursor next = add_place({});
    const std::span<TokenId> tokens = context(next);
    std::ranges::copy(context(cursor).subspan(1), tokens.begin());
    tokens.back() = token;
    places_[next].dynamic = spot_behind(dynamic_, before.dynamic, token, tokens);
    if (frozen_) places_[next].frozen = spot_behind(*frozen_, before.frozen, token, tokens);
    return next;
}

std::size_t Cacheback::propose(Cursor cursor, std::int64_t position, const PathNoise& noise, std::span<Proposal> out) {
    const auto& [dynamic, frozen] = places_[cursor];
    Candidates found;
    found.add_list(dynamic_, dynamic.follower, dynamic.n_matched, kDynamicInside);
    if (dynamic.leader != kNone) found.add_list(dynamic_, dynamic_.first_follower(dynamic.leader), 0, kDynamicStart);
    if (frozen_) {
        found.add_list(*frozen_, frozen.follower, frozen.n_matched, kFrozenInside);
        if (frozen.leader != kNone) found.add_list(*frozen_, frozen_->first_follower(frozen.leader), 0, kFrozenStart);
    }
    return take_best(found.all(), position, noise, out);
}

void Cacheback::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    tree_.grow(tree, request, dynamic_, frozen_ ? &*frozen_ : nullptr);
}

std::size_t Cacheback::memory_bytes() const {
    return dynamic_.memory_bytes() + places_.capacity() * sizeof(Place) + contexts_.capacity() * sizeof(TokenId);
}

}  // namespace slipstream::draft
