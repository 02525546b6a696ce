#include "draft/sources/corpus.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "draft/sources/best_proposals.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::uint16_t kRanks = 3;        // kinds of ranks
constexpr std::int32_t kShapeTokens = 64;  // most draft tokens of the own tree
constexpr std::uint32_t kShapeDepth = 10;  // greatest depth of the own tree

// Buckets of the length of a match: the longest match of each, in tokens.
constexpr std::array kLongestOfBucket = {2U, 3U, 5U, 8U, 15U, CorpusSource::kMaxMatch};
// Doubt about a match, in occurrences of the match in the corpus, by the bucket of its length: with n occurrences, a
// follower's share of them counts n / (n + doubt). Our values.
constexpr std::array kDoubtOfBucket = {4.0F, 2.0F, 1.0F, 0.5F, 0.25F, 0.1F};

// Heap order: best score first; ties to the earlier node of the tree, then to the lower token.
struct LaterBranch {
    template <typename Branch>
    bool operator()(const Branch& a, const Branch& b) const {
        return std::tie(a.score, b.parent, b.token) < std::tie(b.score, a.parent, a.token);
    }
};

std::uint16_t length_bucket(std::uint32_t length) {
    return static_cast<std::uint16_t>(std::ranges::lower_bound(kLongestOfBucket, length) - kLongestOfBucket.begin());
}

}  // namespace

CorpusSource::CorpusSource(const CorpusOptions& options)
    : file_(options.path, options.vocab, options.tokenizer_fingerprint) {
    reset();
}

std::uint16_t CorpusSource::n_bins() const {
    return kLongestOfBucket.size() * kRanks;
}

void CorpusSource::reset() {
    recent_.clear();
    n_text_ = 0;
    nodes_.assign(1, Node{});
    continuation_.reset();
}

void CorpusSource::observe(const Observation& observation) {
    auto added = continuation_.added(observation, recent_, n_text_ - recent_.size());
    if (!added) {
        reset();
        added = continuation_.added(observation, {}, 0);
    }
    nodes_.resize(1);
    n_text_ += added->size();
    // The last kMaxMatch tokens determine all of the root's intervals.
    if (added->size() > kMaxMatch) added = added->last(kMaxMatch);
    for (const TokenId token : *added) nodes_[0] = behind(nodes_[0], token);
    recent_.insert(recent_.end(), added->begin(), added->end());
    if (recent_.size() > kMaxMatch) recent_.erase(recent_.begin(), recent_.end() - kMaxMatch);
}

CorpusSource::Node CorpusSource::behind(const Node& above, TokenId token) const {
    Node node;
    for (std::uint32_t length = 1; length <= std::min(above.longest + 1, kMaxMatch); ++length) {
        node.intervals[length] =
            length == 1 ? file_.places(token) : file_.narrow(above.intervals[length - 1], length - 1, token);
        if (node.intervals[length].empty()) break;  // longer suffixes do not occur either
        node.longest = length;
    }
    return node;
}

CorpusSource::Match CorpusSource::match_of(const Node& node) const {
    for (std::uint32_t length = node.longest; length >= kMinMatch; --length)
        if (file_.has_follower(node.intervals[length], length))
            return {.interval = node.intervals[length], .length = length};
    return {};
}

Cursor CorpusSource::root(std::span<const TokenId> text) {
    CHECK(text.size() == n_text_, "a sequence of {} tokens, {} were observed", text.size(), n_text_);
    return nodes_[0].longest > 0 ? 0 : kNowhere;
}

Cursor CorpusSource::advance(Cursor cursor, TokenId token) {
    const Node node = behind(nodes_[cursor], token);
    if (node.longest == 0) return kNowhere;
    nodes_.push_back(node);
    return nodes_.size() - 1;
}

std::size_t CorpusSource::propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                  std::span<Proposal> out) {
    const Match match = match_of(nodes_[cursor]);
    if (match.length == 0) return 0;
    std::array<CorpusFile::Follower, CorpusFile::kMaxPlaces> followers;
    const std::size_t n = file_.followers(match.interval, match.length, followers);
    const auto end = followers.begin() + static_cast<std::ptrdiff_t>(n);
    std::stable_sort(followers.begin(), end, [](const auto& a, const auto& b) { return a.share > b.share; });

    const std::uint16_t bucket = length_bucket(match.length);
    const auto n_places = static_cast<float>(match.interval.size());
    const float certainty = n_places / (n_places + kDoubtOfBucket[bucket]);
    static_assert(CorpusFile::kMaxPlaces <= kMaxCandidates);
    std::array<Proposal, kMaxCandidates> found;
    for (std::size_t i = 0; i < n; ++i) {
        const auto rank = static_cast<std::uint16_t>(std::min<std::size_t>(i, kRanks - 1));
        // In a large store certainty may be rounded to 1.
        found[i] = {.token = followers[i].token,
                    .probability = std::min(followers[i].share * certainty, 0.999F),
                    .bin = static_cast<std::uint16_t>(bucket * kRanks + rank)};
    }
    return take_best({found.data(), n}, position, noise, out);
}

void CorpusSource::push_branches(const Branch& above, const Match& match, std::int64_t position,
                                 const PathNoise& noise) {
    std::array<CorpusFile::Follower, CorpusFile::kMaxPlaces> followers;
    std::array<double, CorpusFile::kMaxPlaces> weights;
    const std::size_t n = file_.followers(match.interval, match.length, followers);
    // Weighs each follower's share by its noise and normalises; the shares of document ends belong to the whole,
    // without noise. Without noise the product along a path is the path's count divided by the root's.
    double whole = 1.0;
    for (std::size_t i = 0; i < n; ++i) {
        const double share = followers[i].share;
        weights[i] = share * std::exp(static_cast<double>(noise.gumbel(position, followers[i].token)));
        whole += weights[i] - share;
    }
    for (std::size_t i = 0; i < n; ++i) {
        branches_.push_back({.score = above.score * weights[i] / whole,
                             .parent = above.parent,
                             .token = followers[i].token,
                             .depth = above.depth + 1,
                             .parent_interval = match.interval});
        std::push_heap(branches_.begin(), branches_.end(), LaterBranch{});
    }
}

void CorpusSource::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    const PathNoise& noise = noise_of(request);
    if (root(request.text) == kNowhere) return;
    const Match match = match_of(nodes_[0]);
    if (match.length == 0) return;
    const auto length = static_cast<std::int64_t>(request.text.size());
    const auto max_depth = static_cast<std::uint32_t>(std::clamp<std::int64_t>(request.max_depth, 0, kShapeDepth));
    branches_.clear();
    if (max_depth > 0) push_branches({.score = 1.0, .parent = kTreeRoot}, match, length, noise);
    while (!branches_.empty() && tree.size() < request.budget && tree.size() <= kShapeTokens) {
        std::pop_heap(branches_.begin(), branches_.end(), LaterBranch{});
        Branch best = branches_.back();
        branches_.pop_back();
        best.parent = tree.add(best.parent, best.token);
        if (best.depth == max_depth) continue;
        const std::uint32_t matched = match.length + best.depth;
        const Interval places = file_.narrow(best.parent_interval, matched - 1, best.token);
        push_branches(best, {.interval = places, .length = matched}, length + best.depth, noise);
    }
}

std::size_t CorpusSource::memory_bytes() const {
    return nodes_.capacity() * sizeof(Node) + branches_.capacity() * sizeof(Branch);
}

}  // namespace slipstream::draft
