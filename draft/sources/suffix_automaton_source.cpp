#include "draft/sources/suffix_automaton_source.h"

#include <algorithm>
#include <array>

#include "draft/sources/best_proposals.h"
#include "draft/sources/match_length.h"
#include "draft/sources/table_chain.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

using Match = SuffixAutomaton::Match;

constexpr std::uint16_t kRanks = 3;
// Least estimate of a proposal: keeps it a normal float, however little the longer matches leave.
constexpr float kLeastProbability = 1e-6F;

static_assert(SuffixAutomaton::kMaxSuffixes <= kMaxCandidates);

// A cursor holds the state of a match in its high 32 bits, the matched length in the low ones.
Cursor pack(Match match) {
    return match.length == 0 ? kNowhere : Cursor{match.state} << 32 | match.length;
}

Match unpack(Cursor cursor) {
    return {.state = static_cast<std::uint32_t>(cursor >> 32), .length = static_cast<std::uint32_t>(cursor)};
}

}  // namespace

SuffixSource::SuffixSource(SuffixOptions options) : options_(options), automaton_(options.max_tokens) {}

std::uint16_t SuffixSource::n_bins() const {
    return kMatchBuckets * kRanks;
}

void SuffixSource::reset() {
    automaton_.clear();
    continuation_.reset();
}

void SuffixSource::observe(const Observation& observation) {
    auto added = continuation_.added(observation, automaton_.text(), automaton_.n_dropped());
    if (!added) {
        reset();
        added = continuation_.added(observation, {}, 0);
    }
    for (const TokenId token : *added) automaton_.append(token);
}

Cursor SuffixSource::root(std::span<const TokenId> text) {
    CHECK(text.size() == automaton_.n_dropped() + automaton_.text().size(), "a sequence of {} tokens, {} were observed",
          text.size(), automaton_.n_dropped() + automaton_.text().size());
    return pack(automaton_.longest());
}

Cursor SuffixSource::advance(Cursor cursor, TokenId token) {
    return pack(automaton_.extend(unpack(cursor), token));
}

std::size_t SuffixSource::propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                  std::span<Proposal> out) {
    // Without noise, matches are found by falling probability, so the first ones are enough.
    const std::size_t n_wanted = noise.present() ? kMaxCandidates : std::min(out.size(), kMaxCandidates);
    std::array<Proposal, kMaxCandidates> found;
    std::size_t n = 0;
    float left_over = 1.0F;
    Match match = unpack(cursor);
    for (int i = 0; i < SuffixAutomaton::kMaxSuffixes && n < n_wanted && match.length > 0;
         ++i, match = automaton_.shorter(match)) {
        const TokenId token = automaton_.follower(match);
        const auto end = found.begin() + static_cast<std::ptrdiff_t>(n);
        if (std::any_of(found.begin(), end, [token](const Proposal& other) { return other.token == token; })) continue;
        const std::uint16_t bucket = match_bucket(match.length);
        const float prior = match_prior(bucket);
        const auto rank = static_cast<std::uint16_t>(std::min<std::size_t>(n, kRanks - 1));
        found[n++] = {.token = token,
                      .probability = std::max(left_over * prior, kLeastProbability),
                      .bin = static_cast<std::uint16_t>(bucket * kRanks + rank)};
        left_over *= 1.0F - prior;
    }
    return take_best({found.data(), n}, position, noise, out);
}

void SuffixSource::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    const std::uint64_t matched = unpack(root(request.text)).length;
    const std::uint64_t n_chain =
        std::min<std::uint64_t>(options_.max_chain_tokens, options_.chain_tokens_per_match * matched);
    propose_chain(tree, request, static_cast<std::int64_t>(n_chain), *this);
}

}  // namespace slipstream::draft
