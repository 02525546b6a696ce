#include "draft/sources/context_source.h"

#include <algorithm>

#include "draft/log_odds.h"
#include "draft/sources/best_proposals.h"
#include "draft/sources/rank_bins.h"

namespace slipstream::draft {

namespace {

// Most followers that are read of one context, the most recent first.
constexpr std::size_t kMaxPerOrder = 48;
constexpr std::size_t kMostCandidates = 256;  // most candidate tokens after one path
// Most tokens at the end of an observed text that teach the mixer: of a long prompt only the end does. All tokens are
// counted.
constexpr std::size_t kMaxTaught = 2048;
// Tokens at the end of a text that teach the mixer even if the target need not compute any of the text. Only so few:
// teaching takes about 10 us a token, and the first token of a restored text waits for it.
constexpr std::size_t kLeastTaught = 256;

// Divisor: when the table is full, it is filled again from the end of the text, up to 1 / kKeptShare of its contexts.
constexpr std::size_t kKeptShare = 2;

}  // namespace

ContextSource::ContextSource(std::int64_t vocab, const Options& options)
    : model_(vocab, options.max_contexts), options_(options), slots_(vocab) {
    candidates_.reserve(kMostCandidates);
    places_.reserve(1024);
}

std::uint16_t ContextSource::n_bins() const {
    return kRankProbabilityBins;
}

void ContextSource::reset() {
    model_.clear();
    mixer_.reset();
    text_.clear();
    places_.clear();
}

ContextSource::Place ContextSource::place_behind(std::span<const TokenId> text) const {
    Place place;
    place.keys = ContextModel::keys_behind(text);
    place.n_keys = static_cast<int>(std::min<std::size_t>(text.size(), kMaxOrder));
    find_longest(place);
    return place;
}

// Sets place.longest and place.context to the longest context that was seen before. Searches from the longest down:
// what was proposed after a path was mostly seen after all of it.
void ContextSource::find_longest(Place& place) const {
    for (place.longest = place.n_keys; place.longest > 0; --place.longest) {
        const std::uint64_t key = place.keys[place.longest - 1];
        place.context = model_.find(key);
        if (place.context == ContextModel::kNone) continue;
        return;
    }
}

// Fills candidates_ with the tokens that were seen after the contexts of `place`: at most `most`, at most `per_order`
// of each context, those of the longest context first. Sets their bins of all orders.
void ContextSource::collect(const Place& place, std::size_t per_order, std::size_t most) {
    candidates_.clear();
    std::array<ContextMixer::BinIndex, ContextMixer::kOrders> unseen{};
    // If the longest context was seen, all shorter ones were seen too.
    std::array<std::uint32_t, kMaxOrder> context;
    for (std::size_t i = 0; i < static_cast<std::size_t>(place.longest); ++i) {
        context[i] = static_cast<int>(i) + 1 < place.longest ? model_.find(place.keys[i]) : place.context;
    }
    std::array<ContextModel::Context, ContextMixer::kOrders> behind;
    for (int order = 1; order <= place.longest; ++order) {
        const auto at = static_cast<std::size_t>(order);
        if (context[at - 1] != ContextModel::kNone) behind[at] = model_.context(context[at - 1]);
        unseen[at] = ContextMixer::unseen(order, behind[at].total, behind[at].n_followers);
    }
    for (int order = place.longest; order >= 1; --order) {
        const ContextModel::Context& found = behind[order];
        std::uint32_t at = found.newest;
        for (std::size_t rank = 0; at != ContextModel::kNone && rank < per_order; ++rank) {
            const ContextModel::Follower& follower = model_.follower(at);
            at = follower.older;
            std::uint16_t& slot = slots_[follower.token];
            if (slot == 0) {
                if (candidates_.size() >= most) continue;
                candidates_.push_back({.token = follower.token, .highest = order, .bins = unseen, .probability = 0});
                slot = static_cast<std::uint16_t>(candidates_.size());
            }
            candidates_[slot - 1U].bins[order] = ContextMixer::seen(order, follower.count, found.total, rank);
        }
    }
    if (place.at_root)
        for (const TokenId token : model_.frequent()) {
            std::uint16_t& slot = slots_[token];
            if (slot != 0 || candidates_.size() >= most) continue;
            candidates_.push_back({.token = token, .highest = 0, .bins = unseen, .probability = 0});
            slot = static_cast<std::uint16_t>(candidates_.size());
        }
    const std::uint32_t now = model_.n_tokens();
    for (Candidate& candidate : candidates_) {
        slots_[candidate.token] = 0;
        const ContextModel::Seen& seen = model_.seen(candidate.token);
        candidate.bins[0] = ContextMixer::unigram(seen.count, now, now - seen.last);
    }
}

void ContextSource::weigh(const Place& place) {
    for (Candidate& candidate : candidates_) {
        const ContextMixer::Weights& weights = mixer_.weights(place.longest, candidate.highest);
        float sum = weights.back();
        for (std::size_t order = 0; order <= static_cast<std::size_t>(place.longest); ++order)
            sum += weights[order] * mixer_.log_odds(candidate.bins[order]);
        candidate.probability = logistic(sum);
    }
}

// Teaches the mixer that `next` came after `text`. Call before `next` is counted.
void ContextSource::learn(std::span<const TokenId> text, TokenId next) {
    Place place = place_behind(text);
    place.at_root = true;
    collect(place, kMaxPerOrder, kMostCandidates);
    weigh(place);
    for (const Candidate& candidate : candidates_)
        mixer_.learn(std::span(candidate.bins).first(static_cast<std::size_t>(place.longest) + 1), place.longest,
                     candidate.highest, candidate.probability, candidate.token == next ? 1.0F : 0.0F);
    mixer_.refresh();
}

void ContextSource::observe(const Observation& observation) {
    const std::span<const TokenId> text = observation.text;
    std::size_t first = text.size() - static_cast<std::size_t>(observation.n_new);
    // A new sequence: the tokens that it has in common with the last one are already counted.
    if (first == 0 || text_.empty()) {
        first = static_cast<std::size_t>(std::ranges::mismatch(text_, text).in1 - text_.begin());
        if (model_.n_contexts() > options_.max_old_contexts + kMaxOrder * text.size()) {
            model_.clear();
            first = 0;
        }
        // What earlier texts take sooner or later is taken at once, so that the memory of a server does not grow late.
        if (!text_.empty()) model_.reserve(options_.max_old_contexts);
    }
    // Tokens that the target has computed before have mostly taught the mixer then, so now only the others teach it: at
    // least kLeastTaught and at most kMaxTaught tokens, at the end of the text.
    const auto n_fresh = static_cast<std::size_t>(std::ssize(text) - observation.n_computed);
    const std::size_t n_taught = std::clamp(n_fresh, kLeastTaught, kMaxTaught);
    text_.resize(std::min(text_.size(), first));
    text_.insert(text_.end(), text.begin() + std::ssize(text_), text.end());
    for (std::size_t i = first; i < text.size(); ++i) {
        if (model_.full()) {
            model_.clear();
            const std::size_t kept = std::min(i, options_.max_contexts / (kKeptShare * kMaxOrder));
            for (std::size_t j = i - kept; j < i; ++j) model_.add(text.first(j + 1));
        }
        if (i > 0 && text.size() - i <= n_taught) learn(text.first(i), text[i]);
        model_.add(text.first(i + 1));
    }
}

Cursor ContextSource::root(std::span<const TokenId> text) {
    places_.clear();
    places_.push_back(place_behind(text));
    places_.back().at_root = true;
    return 0;
}

Cursor ContextSource::advance(Cursor cursor, TokenId token) {
    Place place;
    {
        const Place& above = places_[cursor];
        place.n_keys = std::min(above.longest + 1, kMaxOrder);
        place.keys[0] = ContextModel::extend(ContextModel::kNoTokens, token);
        for (std::size_t i = 1; i < place.keys.size(); ++i)
            place.keys[i] = ContextModel::extend(above.keys[i - 1], token);
    }
    find_longest(place);
    if (place.longest == 0) return kNowhere;
    places_.push_back(place);
    return places_.size() - 1;
}

std::size_t ContextSource::propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                   std::span<Proposal> out) {
    const Place& place = places_[cursor];
    // Collects more candidates than are asked for, since the noise or shorter contexts may prefer others.
    collect(place, std::min(kMaxPerOrder, 3 + out.size()), std::min(kMostCandidates, 4 + 2 * out.size()));
    weigh(place);
    std::array<Proposal, kMostCandidates> found;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
        found[i] = {.token = candidates_[i].token, .probability = candidates_[i].probability};
    const std::size_t n = take_best(std::span(found).first(candidates_.size()), position, noise, out);
    set_rank_bins(out.first(n));
    return n;
}

void ContextSource::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    grow_ngrammys(tree, request, ContextRows::Taken, nullptr, options_.shape);
}

std::size_t ContextSource::memory_bytes() const {
    return model_.memory_bytes() + text_.capacity() * sizeof(TokenId) + slots_.size() * sizeof(slots_.front());
}

// Saves the mixer only: it holds for texts in general, while the counts hold for one sequence.
void ContextSource::save(TableWriter& writer) const {
    writer.f32s(mixer_.state());
}

void ContextSource::load(TableReader& reader) {
    const std::span<const float> state = reader.f32s();
    reader.finish();
    if (!mixer_.restore(state)) reader.fail("the weights of another version");
}

}  // namespace slipstream::draft
