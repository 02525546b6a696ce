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

// Most n-grams of a first token (LookaheadOptions::max_ngrams): a cursor has one bit for each, bits 40 to 55.
constexpr std::int64_t kMaxNgrams = 16;

// Fields of a cursor. Bits 0-31: first token; 32-39: number of tokens after it that were followed; 40-55: which of its
// n-grams agree with them, bit 0 the newest.
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

// Collects what n-grams propose as the next token. The weight of an n-gram is 16 - age, so newer ones count more.
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
    // Returns the proposals. Probabilities are shares of the total weight, as if one more n-gram of age 0 had proposed
    // other tokens.
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
      followers_(options.ngram_tokens - 1),
      pool_({.leader_tokens = 1,
             .follower_tokens = followers_,
             .max_leaders = static_cast<std::size_t>(options.vocab),
             .max_followers = static_cast<std::size_t>(options.max_ngrams)}),
      row_top_(1, options.vocab) {
    CHECK(options.ngram_tokens >= 2 && options.ngram_tokens <= 128 && options.window_columns >= 1 &&
              options.max_ngrams >= 1 && options.max_ngrams <= kMaxNgrams,
          "{} tokens an n-gram, {} columns, {} n-grams a token", options.ngram_tokens, options.window_columns,
          options.max_ngrams);
}

void Lookahead::reset() {
    pool_.clear();
    window_.clear();
}

template <typename Fn>
void Lookahead::for_each_ngram(TokenId first, const Fn& fn) const {
    CHECK(first >= 0 && first < options_.vocab, "token {} of {}", first, options_.vocab);
    const LruTable::Slot leader = pool_.find({&first, 1});
    if (leader == LruTable::kNone) return;
    std::size_t age = 0;
    for (auto slot = pool_.first_follower(leader); slot != LruTable::kNone; slot = pool_.next_follower(slot))
        fn(age++, pool_.follower(slot));
}

void Lookahead::observe(const Observation& observation) {
    if (observation.tree == nullptr || observation.logits.empty()) return;
    const TokenTree& tree = *observation.tree;
    const LogitRows& logits = observation.logits;
    CHECK(logits.rows() == tree.size() && logits.cols() == options_.vocab, "logits [{}, {}] of a tree of {} nodes",
          logits.rows(), logits.cols(), tree.size());
    std::optional<TreeNode> trunk = kTreeRoot;
    for (Column& column : window_) {
        trunk = tree.child(*trunk, column.front());
        if (!trunk) return;
        std::optional<TreeNode> end = trunk;
        for (std::size_t row = 1; end && row < column.size(); ++row) end = tree.child(*end, column[row]);
        if (!end) continue;
        const std::span<const TopToken> top = row_top_.best(logits, logits_row_of(*end), 1);
        if (top.empty()) continue;  // no logit of the row is above -infinity
        column.push_back(top.front().token);
        if (column.size() <= followers_) continue;
        pool_.insert(std::span(column).first(1), std::span(column).subspan(1));
        column.erase(column.begin());
    }
}

Cursor Lookahead::root(std::span<const TokenId> text) {
    return to_cursor({.first = text.back()});
}

// Follows `token` from a place in or at the start of the n-grams of one first token. Returns kNowhere if no n-gram
// continues that way.
Cursor Lookahead::walk(TokenId first, std::size_t n_walked, std::uint32_t agreeing, TokenId token) const {
    Place next{.first = first, .n_walked = n_walked + 1};
    if (next.n_walked == followers_) return kNowhere;  // at the end of an n-gram, which proposes nothing more
    for_each_ngram(first, [&](std::size_t age, std::span<const TokenId> tokens) {
        if ((agreeing >> age & 1U) != 0 && tokens[n_walked] == token) next.agreeing |= 1U << age;
    });
    return next.agreeing != 0 ? to_cursor(next) : kNowhere;
}

Cursor Lookahead::advance(Cursor cursor, TokenId token) {
    constexpr std::uint32_t all = ~0U;
    const Place place = to_place(cursor);
    Cursor next = walk(place.first, place.n_walked, place.n_walked > 0 ? place.agreeing : all, token);
    if (next == kNowhere && place.n_walked > 0) {
        TokenId last = place.first;  // last token of the cursor's path
        for_each_ngram(place.first, [&](std::size_t age, std::span<const TokenId> tokens) {
            if ((place.agreeing >> age & 1U) != 0) last = tokens[place.n_walked - 1];
        });
        next = walk(last, 0, all, token);
    }
    return next != kNowhere ? next : to_cursor({.first = token});
}

std::size_t Lookahead::propose(Cursor cursor, std::int64_t position, const PathNoise& noise, std::span<Proposal> out) {
    const Place place = to_place(cursor);
    TokenId last = place.first;
    std::array<Proposal, 2 * static_cast<std::size_t>(kMaxNgrams)> found;
    std::size_t n_found = 0;
    // First proposals: what follows in the n-grams that agree with the path.
    if (place.n_walked > 0) {
        Votes votes;
        for_each_ngram(place.first, [&](std::size_t age, std::span<const TokenId> tokens) {
            if ((place.agreeing >> age & 1U) == 0) return;
            last = tokens[place.n_walked - 1];
            votes.add(tokens[place.n_walked], age);
        });
        for (const Proposal& proposal : votes.finish()) {
            found[n_found] = proposal;
            found[n_found++].bin = kRankBins;
        }
    }
    // Further proposals: what follows in the n-grams that begin with the path's last token.
    const std::size_t n_inside = n_found;
    Votes votes;
    for_each_ngram(last, [&](std::size_t age, std::span<const TokenId> tokens) { votes.add(tokens.front(), age); });
    for (const Proposal& proposal : votes.finish()) {
        const auto end = found.begin() + static_cast<std::ptrdiff_t>(n_inside);
        const auto same = [&](const Proposal& other) { return other.token == proposal.token; };
        if (std::find_if(found.begin(), end, same) == end) found[n_found++] = proposal;
    }
    const std::size_t n = take_best(std::span(found).first(n_found), position, noise, out);
    for (std::size_t i = 0; i < n; ++i)
        out[i].bin = static_cast<std::uint16_t>(out[i].bin + std::min<std::size_t>(i, kRankBins - 1));
    return n;
}

void Lookahead::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    const auto position = static_cast<std::int64_t>(request.text.size());
    const PathNoise& noise = noise_of(request);
    const TokenId last = request.text.back();
    std::array<Proposal, static_cast<std::size_t>(kMaxNgrams)> firsts;
    const std::size_t n_firsts = propose(to_cursor({.first = last}), position, noise, firsts);
    // Adds one branch per n-gram: those with the most likely first token first, among them the newest.
    for (std::size_t rank = 0; rank < n_firsts; ++rank) {
        for_each_ngram(last, [&](std::size_t, std::span<const TokenId> tokens) {
            if (tokens.front() != firsts[rank].token) return;
            TreeNode node = kTreeRoot;
            for (const TokenId token : tokens) {
                const auto present = tree.child(node, token);
                if (!present && (tree.size() >= request.budget || tree.depth(node) >= request.max_depth)) break;
                node = present ? *present : tree.add(node, token);
            }
        });
    }
    fill_unused_nodes(tree, request);
}

// Starts each column of the window with one token of `text`. Any tokens will do at the start; the authors draw them
// from the prompt. This draw is fixed, so that runs are reproducible.
void Lookahead::start_window(std::span<const TokenId> text) {
    window_.resize(options_.window_columns);
    for (std::size_t column = 0; column < window_.size(); ++column) {
        const PhiloxBlock draw = philox4x32_10({{static_cast<std::uint32_t>(column), 0, 0, 0}}, {0, 0});
        window_[column].reserve(followers_ + 1);
        window_[column].assign(1, text[draw.word[0] % text.size()]);
    }
}

void Lookahead::fill_unused_nodes(TokenTree& tree, const ShapeRequest& request) {
    if (window_.empty()) start_window(request.text);
    TreeNode trunk = kTreeRoot;
    for (const Column& column : window_) {
        if (tree.depth(trunk) + std::ssize(column) > request.max_depth) return;
        std::int64_t n_new = std::ssize(column);
        for (std::optional<TreeNode> node = trunk; n_new > 0; --n_new) {
            node = tree.child(*node, column[std::ssize(column) - n_new]);
            if (!node) break;
        }
        if (tree.size() + n_new > request.budget) return;
        TreeNode node = trunk = tree.add(trunk, column.front());
        for (std::size_t row = 1; row < column.size(); ++row) node = tree.add(node, column[row]);
    }
}

std::size_t Lookahead::memory_bytes() const {
    return pool_.memory_bytes();
}

}  // namespace slipstream::draft
