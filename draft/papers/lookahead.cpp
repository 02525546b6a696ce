#include "draft/papers/lookahead.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "draft/sources/best_proposals.h"
#include "kernels/base/check.h"
#include "kernels/base/philox.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kMaxNgrams = 16;  // bits of a cursor
constexpr std::int32_t kNoSlot = -1;

// bits 0-31: first token; 32-39: tokens walked behind it; 40-55: which of its n-grams agree with them, bit 0 the
// newest.
struct Place {
    TokenId first = 0;
    std::size_t n_walked = 0;
    std::uint32_t agreeing = 0;
};

Cursor to_cursor(const Place& place) {
    return static_cast<Cursor>(static_cast<std::uint32_t>(place.first)) | static_cast<Cursor>(place.n_walked) << 32 |
           static_cast<Cursor>(place.agreeing) << 40;
}

Place to_place(Cursor cursor) {
    return {.first = static_cast<TokenId>(cursor & 0xffffffffU),
            .n_walked = static_cast<std::size_t>(cursor >> 32 & 0xff),
            .agreeing = static_cast<std::uint32_t>(cursor >> 40)};
}

// What some n-grams say comes next. An n-gram's voice is the stronger the newer it is.
class Votes {
public:
    void add(TokenId token, std::size_t age) {
        const auto voice = static_cast<float>(kMaxNgrams - static_cast<std::int64_t>(age));
        total_ += voice;
        const auto found = std::find_if(proposals_.begin(), proposals_.begin() + static_cast<std::ptrdiff_t>(n_),
                                        [token](const Proposal& proposal) { return proposal.token == token; });
        if (found == proposals_.begin() + static_cast<std::ptrdiff_t>(n_)) proposals_[n_++] = {.token = token};
        found->probability += voice;
    }
    // The share of the voices, one more than there are given to other tokens.
    std::span<Proposal> finish() {
        for (std::size_t i = 0; i < n_; ++i) proposals_[i].probability /= total_ + static_cast<float>(kMaxNgrams);
        return {proposals_.data(), n_};
    }

private:
    std::array<Proposal, kMaxNgrams> proposals_;
    std::size_t n_ = 0;
    float total_ = 0.0F;
};

}  // namespace

Lookahead::Lookahead(const LookaheadOptions& options)
    : options_(options),
      followers_(static_cast<std::size_t>(options.ngram_tokens - 1)),
      slot_of_(static_cast<std::size_t>(options.vocab), kNoSlot),
      row_top_(1, options.vocab) {
    CHECK(options.ngram_tokens >= 2 && options.ngram_tokens <= 128 && options.window_columns >= 1 &&
              options.max_ngrams >= 1 && options.max_ngrams <= kMaxNgrams,
          "{} tokens an n-gram, {} columns, {} n-grams a token", options.ngram_tokens, options.window_columns,
          options.max_ngrams);
}

void Lookahead::reset() {
    std::ranges::fill(slot_of_, kNoSlot);
    n_of_.clear();
    pool_.clear();
    window_.clear();
}

std::span<const TokenId> Lookahead::ngram(std::int32_t slot, std::size_t age) const {
    const auto max_ngrams = static_cast<std::size_t>(options_.max_ngrams);
    return {pool_.data() + (static_cast<std::size_t>(slot) * max_ngrams + age) * followers_, followers_};
}

std::size_t Lookahead::n_ngrams(TokenId first) const {
    CHECK(first >= 0 && first < options_.vocab, "token {} of {}", first, options_.vocab);
    const std::int32_t slot = slot_of_[static_cast<std::size_t>(first)];
    return slot == kNoSlot ? 0 : n_of_[static_cast<std::size_t>(slot)];
}

// The newest of its first token; the oldest of too many goes, one that is there already moves to the front.
void Lookahead::add_ngram(std::span<const TokenId> tokens) {
    const auto max_ngrams = static_cast<std::size_t>(options_.max_ngrams);
    const std::span<const TokenId> behind = tokens.subspan(1);
    std::int32_t& slot = slot_of_[static_cast<std::size_t>(tokens.front())];
    if (slot == kNoSlot) {
        slot = static_cast<std::int32_t>(n_of_.size());
        n_of_.push_back(0);
        pool_.resize(pool_.size() + max_ngrams * followers_);
    }
    std::uint8_t& n = n_of_[static_cast<std::size_t>(slot)];
    std::size_t age = 0;
    while (age < n && !std::ranges::equal(ngram(slot, age), behind)) ++age;
    if (age == n) {
        if (n < max_ngrams) ++n;
        age = n - 1U;
    }
    const auto newest =
        pool_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(slot) * max_ngrams * followers_);
    const auto gap = newest + static_cast<std::ptrdiff_t>(age * followers_);
    std::move_backward(newest, gap, gap + static_cast<std::ptrdiff_t>(followers_));
    std::ranges::copy(behind, newest);
}

void Lookahead::observe(const Observation& observation) {
    if (observation.tree == nullptr || observation.logits.empty()) return;
    const TokenTree& tree = *observation.tree;
    const LogitRows& logits = observation.logits;
    CHECK(logits.rows() == tree.size() && logits.cols() == options_.vocab, "logits [{}, {}] of a tree of {} nodes",
          logits.rows(), logits.cols(), tree.size());
    std::optional<std::int32_t> trunk = 0;
    for (Column& column : window_) {
        trunk = tree.child(*trunk, column.rows.front());
        if (!trunk) return;
        std::optional<std::int32_t> end = trunk;
        for (std::size_t row = 1; end && row < column.rows.size(); ++row) end = tree.child(*end, column.rows[row]);
        if (!end) continue;
        const std::span<const TopToken> top = row_top_.best(logits, *end, 1);
        if (top.empty()) continue;  // no numbers
        column.rows.push_back(top.front().token);
        if (column.rows.size() <= followers_) continue;
        add_ngram(column.rows);
        column.rows.erase(column.rows.begin());
    }
}

Cursor Lookahead::root(std::span<const TokenId> text) {
    return to_cursor({.first = text.back()});
}

// From a place inside or before the n-grams of one first token, one token down them: nowhere where none goes so.
Cursor Lookahead::walk(TokenId first, std::size_t n_walked, std::uint32_t agreeing, TokenId token) const {
    Place next{.first = first, .n_walked = n_walked + 1};
    if (next.n_walked == followers_) return kNowhere;  // at an n-gram's end: it says nothing more
    for (std::size_t age = 0; age < n_ngrams(first); ++age)
        if ((agreeing >> age & 1U) != 0 && ngram(slot_of_[static_cast<std::size_t>(first)], age)[n_walked] == token)
            next.agreeing |= 1U << age;
    return next.agreeing != 0 ? to_cursor(next) : kNowhere;
}

Cursor Lookahead::advance(Cursor cursor, TokenId token) {
    constexpr std::uint32_t all = ~0U;
    const Place place = to_place(cursor);
    Cursor next = walk(place.first, place.n_walked, place.n_walked > 0 ? place.agreeing : all, token);
    if (next == kNowhere && place.n_walked > 0) {
        const auto newest = static_cast<std::size_t>(std::countr_zero(place.agreeing));
        const std::int32_t slot = slot_of_[static_cast<std::size_t>(place.first)];
        next = walk(ngram(slot, newest)[place.n_walked - 1], 0, all, token);
    }
    return next != kNowhere ? next : to_cursor({.first = token});
}

std::size_t Lookahead::propose(Cursor cursor, std::int64_t position, const PathNoise& noise, std::span<Proposal> out) {
    const Place place = to_place(cursor);
    TokenId last = place.first;
    std::array<Proposal, 2 * static_cast<std::size_t>(kMaxNgrams)> found;
    std::size_t n_found = 0;
    // How the n-grams that the path came down go on.
    if (place.n_walked > 0) {
        const std::int32_t slot = slot_of_[static_cast<std::size_t>(place.first)];
        Votes votes;
        for (std::size_t age = 0; age < n_ngrams(place.first); ++age) {
            if ((place.agreeing >> age & 1U) == 0) continue;
            last = ngram(slot, age)[place.n_walked - 1];
            votes.add(ngram(slot, age)[place.n_walked], age);
        }
        for (const Proposal& proposal : votes.finish()) {
            found[n_found] = proposal;
            found[n_found++].cell = kRankCells;
        }
    }
    // How those begin that start with the path's last token.
    const std::size_t n_inside = n_found;
    Votes votes;
    for (std::size_t age = 0; age < n_ngrams(last); ++age)
        votes.add(ngram(slot_of_[static_cast<std::size_t>(last)], age).front(), age);
    for (const Proposal& proposal : votes.finish()) {
        const auto end = found.begin() + static_cast<std::ptrdiff_t>(n_inside);
        const auto same = [&](const Proposal& other) { return other.token == proposal.token; };
        if (std::find_if(found.begin(), end, same) == end) found[n_found++] = proposal;
    }
    const std::size_t n = take_best(std::span(found).first(n_found), position, noise, out);
    for (std::size_t i = 0; i < n; ++i)
        out[i].cell = static_cast<std::uint16_t>(out[i].cell + std::min<std::size_t>(i, kRankCells - 1));
    return n;
}

void Lookahead::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    const auto position = static_cast<std::int64_t>(request.text.size());
    const PathNoise& noise = noise_of(request);
    const TokenId last = request.text.back();
    const std::size_t n = n_ngrams(last);
    std::array<Proposal, static_cast<std::size_t>(kMaxNgrams)> firsts;
    const std::size_t n_firsts = propose(to_cursor({.first = last}), position, noise, firsts);
    // Branch by branch, those with the likeliest first token first; among them the newest.
    for (std::size_t rank = 0; rank < n_firsts; ++rank) {
        for (std::size_t age = 0; age < n; ++age) {
            const std::span<const TokenId> tokens = ngram(slot_of_[static_cast<std::size_t>(last)], age);
            if (tokens.front() != firsts[rank].token) continue;
            std::int32_t node = 0;
            for (const TokenId token : tokens) {
                const auto present = tree.child(node, token);
                if (!present && (tree.size() >= request.budget || tree.depth(node) >= request.max_depth)) break;
                node = present ? *present : tree.add(node, token);
            }
        }
    }
    use_leftover(tree, request);
}

// Any tokens do to begin with; the authors draw them from the prompt. Here a fixed draw, so that runs repeat.
void Lookahead::start_window(std::span<const TokenId> text) {
    window_.resize(static_cast<std::size_t>(options_.window_columns));
    for (std::size_t column = 0; column < window_.size(); ++column) {
        const PhiloxBlock draw = philox4x32_10({{static_cast<std::uint32_t>(column), 0, 0, 0}}, {0, 0});
        window_[column].rows.reserve(followers_ + 1);
        window_[column].rows.assign(1, text[draw.word[0] % text.size()]);
    }
}

void Lookahead::use_leftover(TokenTree& tree, const ShapeRequest& request) {
    if (window_.empty()) start_window(request.text);
    std::int32_t trunk = 0;
    for (const Column& column : window_) {
        if (tree.depth(trunk) + std::ssize(column.rows) > request.max_depth) return;
        std::int64_t n_new = std::ssize(column.rows);
        for (std::optional<std::int32_t> node = trunk; n_new > 0; --n_new) {
            node = tree.child(*node, column.rows[column.rows.size() - static_cast<std::size_t>(n_new)]);
            if (!node) break;
        }
        if (tree.size() + n_new > request.budget) return;
        std::int32_t node = trunk = tree.add(trunk, column.rows.front());
        for (std::size_t row = 1; row < column.rows.size(); ++row) node = tree.add(node, column.rows[row]);
    }
}

std::size_t Lookahead::memory_bytes() const {
    return slot_of_.size() * sizeof(std::int32_t) + n_of_.capacity() + pool_.capacity() * sizeof(TokenId);
}

}  // namespace slipstream::draft
