#include "draft/sources/context_source.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "draft/sources/rank_cells.h"
#include "draft/tree/log_odds.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Followers of a context that are looked at for learning and under the root.
constexpr std::size_t kMaxPerOrder = 48;
// Of a long prompt only the end teaches the mixer; all of it is counted.
constexpr std::int64_t kMaxTaught = 2048;

// When the table is full it is filled again from the text's end, by this part of what it holds.
constexpr std::size_t kKeptShare = 2;

}  // namespace

ContextSource::ContextSource(std::int64_t vocab, const Options& options)
    : model_(vocab, options.max_contexts),
      rows_({}),
      shape_(options.shape),
      options_(options),
      slots_(static_cast<std::size_t>(vocab)) {
    candidates_.reserve(kMaxCandidates);
    places_.reserve(1024);
    ranked_.reserve(kMaxCandidates);
    words_.reserve(kMaxCandidates);
}

std::uint16_t ContextSource::n_cells() const {
    return kRankProbabilityCells;
}

void ContextSource::reset() {
    model_.clear();
    mixer_.reset();
    rows_.reset();
    places_.clear();
    n_text_ = 0;
}

ContextSource::Place ContextSource::place_behind(std::span<const TokenId> text) const {
    Place place;
    place.keys = ContextModel::keys_behind(text);
    place.n_keys = static_cast<int>(std::min<std::size_t>(text.size(), kMaxOrder));
    find_longest(place);
    return place;
}

// From the longest down: what was proposed behind a path was mostly seen behind all of it.
void ContextSource::find_longest(Place& place) const {
    for (place.longest = place.n_keys; place.longest > 0; --place.longest) {
        const std::uint64_t key = place.keys[static_cast<std::size_t>(place.longest - 1)];
        place.context = model_.find(key);
        if (place.context == ContextModel::kNone) continue;
        return;
    }
}

// Tokens that were seen behind the place, at most `most` of them, those of the longest context first, and what each
// order says about them.
void ContextSource::collect(const Place& place, std::size_t per_order, std::size_t most) {
    candidates_.clear();
    std::array<ContextMixer::CellIndex, ContextMixer::kOrders> unseen{};
    // Where the longest was seen, so were the others.
    std::array<std::uint32_t, kMaxOrder> context;
    for (std::size_t i = 0; i < static_cast<std::size_t>(place.longest); ++i) {
        context[i] = static_cast<int>(i) + 1 < place.longest ? model_.find(place.keys[i]) : place.context;
    }
    std::array<ContextModel::Followers, ContextMixer::kOrders> behind;
    for (int order = 1; order <= place.longest; ++order) {
        const auto at = static_cast<std::size_t>(order);
        if (context[at - 1] != ContextModel::kNone) behind[at] = model_.followers(context[at - 1]);
        unseen[at] = ContextMixer::unseen(order, behind[at].total, behind[at].recent_first.size());
    }
    for (int order = place.longest; order >= 1; --order) {
        const ContextModel::Followers& found = behind[static_cast<std::size_t>(order)];
        const std::size_t n = std::min(found.recent_first.size(), per_order);
        for (std::size_t rank = 0; rank < n; ++rank) {
            const ContextModel::Follower& follower = found.recent_first[rank];
            std::uint16_t& slot = slots_[static_cast<std::size_t>(follower.token)];
            if (slot == 0) {
                if (candidates_.size() >= most) continue;
                candidates_.push_back({.token = follower.token, .highest = order, .cells = unseen, .probability = 0});
                slot = static_cast<std::uint16_t>(candidates_.size());
            }
            candidates_[slot - 1U].cells[static_cast<std::size_t>(order)] =
                ContextMixer::seen(order, follower.count, found.total, rank);
        }
    }
    if (place.at_root)
        for (const TokenId token : model_.frequent()) {
            std::uint16_t& slot = slots_[static_cast<std::size_t>(token)];
            if (slot != 0 || candidates_.size() >= most) continue;
            candidates_.push_back({.token = token, .highest = 0, .cells = unseen, .probability = 0});
            slot = static_cast<std::uint16_t>(candidates_.size());
        }
    const std::uint32_t now = model_.n_tokens();
    for (Candidate& candidate : candidates_) {
        slots_[static_cast<std::size_t>(candidate.token)] = 0;
        const ContextModel::Seen& seen = model_.seen(candidate.token);
        candidate.cells[0] = ContextMixer::unigram(seen.count, now, now - seen.last);
    }
}

void ContextSource::weigh(const Place& place) {
    for (Candidate& candidate : candidates_) {
        const ContextMixer::Weights& weights = mixer_.weights(place.longest, candidate.highest);
        float sum = weights.back();
        for (std::size_t order = 0; order <= static_cast<std::size_t>(place.longest); ++order)
            sum += weights[order] * mixer_.log_odds(candidate.cells[order]);
        candidate.probability = logistic(sum);
    }
}

// From the token that came behind `text`, before it is counted.
void ContextSource::learn(std::span<const TokenId> text, TokenId next) {
    Place place = place_behind(text);
    place.at_root = true;
    collect(place, kMaxPerOrder, kMaxCandidates);
    weigh(place);
    for (const Candidate& candidate : candidates_)
        mixer_.learn(std::span(candidate.cells).first(static_cast<std::size_t>(place.longest) + 1), place.longest,
                     candidate.highest, candidate.probability, candidate.token == next ? 1.0F : 0.0F);
    mixer_.refresh();
}

void ContextSource::observe(const Observation& observation) {
    const auto n = static_cast<std::int64_t>(observation.text.size());
    std::int64_t first = n - observation.n_new;
    if (observation.n_new == n || n_text_ == 0) {
        // A new text; what it has in common with the last one was counted then.
        const auto common = std::ranges::mismatch(rows_.text(), observation.text).in1 - rows_.text().begin();
        first = n_text_ == 0 ? 0 : common;
    }
    rows_.observe(observation);
    for (std::int64_t i = first; i < n; ++i) {
        if (model_.full()) {
            model_.clear();
            const auto kept = static_cast<std::int64_t>(options_.max_contexts / (kKeptShare * kMaxOrder));
            for (std::int64_t j = std::max<std::int64_t>(0, i - kept); j < i; ++j)
                model_.add(observation.text.first(static_cast<std::size_t>(j) + 1));
        }
        const auto end = static_cast<std::size_t>(i);
        if (i > 0 && n - i <= kMaxTaught) learn(observation.text.first(end), observation.text[end]);
        model_.add(observation.text.first(end + 1));
    }
    n_text_ = n;
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
        const Place& above = places_[static_cast<std::size_t>(cursor)];
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

// What was seen behind the place: the likeliest `n_asked` in order, then those that noise might choose instead.
std::span<const Proposal> ContextSource::answer(const Place& place, std::size_t n_asked) {
    collect(place, std::min(kMaxPerOrder, 3 + n_asked), std::min(kMaxCandidates, 4 + 2 * n_asked));
    weigh(place);
    // In one word: the likelier the greater, then the lower token. Probabilities are positive, so their bits order
    // them.
    ranked_.clear();
    for (const Candidate& candidate : candidates_)
        ranked_.push_back(std::uint64_t{std::bit_cast<std::uint32_t>(candidate.probability)} << 32 |
                          ~static_cast<std::uint32_t>(candidate.token));
    const auto end = ranked_.begin() + static_cast<std::ptrdiff_t>(std::min(ranked_.size(), n_asked));
    if (end != ranked_.end()) std::ranges::nth_element(ranked_, end, std::greater<>());
    std::sort(ranked_.begin(), end, std::greater<>());
    words_.clear();
    for (const std::uint64_t word : ranked_) {
        const auto probability = std::bit_cast<float>(static_cast<std::uint32_t>(word >> 32));
        words_.push_back({.token = static_cast<TokenId>(~static_cast<std::uint32_t>(word)),
                          .probability = probability,
                          .cell = rank_probability_cell(words_.size(), probability)});
    }
    return words_;
}

std::size_t ContextSource::propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                   std::span<Proposal> out) {
    const std::span<const Proposal> words = answer(places_[static_cast<std::size_t>(cursor)], out.size());
    const std::size_t n = std::min(words.size(), out.size());
    if (!noise.present()) {  // by probability alone no logarithm is needed
        std::ranges::copy(words.first(n), out.begin());
        return n;
    }
    struct Ranked {
        float rank;
        std::uint32_t index;
    };
    std::array<Ranked, kMaxCandidates> ranked;
    for (std::uint32_t i = 0; i < words.size(); ++i)
        ranked[i] = {noise.rank(words[i].probability, position, words[i].token), i};
    const auto better = [&words](const Ranked& a, const Ranked& b) {
        return a.rank != b.rank ? a.rank > b.rank : words[a.index].token < words[b.index].token;
    };
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(words.size());
    const auto cut = ranked.begin() + static_cast<std::ptrdiff_t>(n);
    if (cut != end) std::nth_element(ranked.begin(), cut, end, better);
    std::sort(ranked.begin(), cut, better);
    for (std::size_t i = 0; i < n; ++i) {
        const Proposal& word = words[ranked[i].index];
        out[i] = {
            .token = word.token, .probability = word.probability, .cell = rank_probability_cell(i, word.probability)};
    }
    return n;
}

void ContextSource::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    shape_.grow(tree, request, rows_, nullptr);
}

std::size_t ContextSource::memory_bytes() const {
    return model_.memory_bytes() + rows_.memory_bytes() + slots_.size() * sizeof(slots_.front());
}

// What the text taught about texts in general; the text's own counts stay behind with it.
void ContextSource::save(TableWriter& writer) const {
    writer.f32s(mixer_.state());
}

void ContextSource::load(TableReader& reader) {
    const std::span<const float> state = reader.f32s();
    reader.finish();
    if (!mixer_.restore(state)) reader.fail("the weights of another version");
}

}  // namespace slipstream::draft
