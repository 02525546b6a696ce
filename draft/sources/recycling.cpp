#include "draft/sources/recycling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "draft/sources/best_proposals.h"
#include "draft/sources/mix_bits.h"
#include "draft/sources/recycling_tree.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::int32_t kNoToken = -1;
// Bounds of a candidate's probability: the least half-precision number above 0 (kLeastProbability), and the greatest
// below 1 (kGreatestProbability).
constexpr float kLeastProbability = 0x1p-24F;
constexpr float kGreatestProbability = 0x1.ffcp-1F;

Half kept_probability(float p) {
    return to_half(p > kLeastProbability ? std::min(p, kGreatestProbability) : kLeastProbability);  // NaN: the least
}

float sharpness(double temperature) {
    return temperature > 0.0 ? static_cast<float>(1.0 / temperature) : 1.0F;
}

constexpr int kTokenBits = 21;  // bits of a token id in a cursor
constexpr std::uint64_t kToken = (std::uint64_t{1} << kTokenBits) - 1;
static_assert(Recycling::kMaxVocab == static_cast<std::int64_t>(kToken));
constexpr std::size_t kLongRows = std::size_t{1} << 15;

// Returns the key of a LongRow: the last `n` tokens (2 or 3) of `path`, with `n` in the two highest bits.
std::uint64_t last_tokens(Cursor path, std::size_t n) {
    return (path & ((std::uint64_t{1} << (kTokenBits * n)) - 1)) | std::uint64_t{n} << 62;
}

// Returns `path` with `token` appended; only the last three tokens are kept.
Cursor one_more(Cursor path, TokenId token) {
    constexpr std::uint64_t kept = (std::uint64_t{1} << (kTokenBits * 2)) - 1;
    return (path & kept) << kTokenBits | static_cast<std::uint64_t>(token);
}

}  // namespace

Recycling::Recycling(const RecyclingOptions& options) : options_(options), row_top_(kCandidates, options.vocab) {
    CHECK(options.vocab <= kMaxVocab, "{} tokens", options.vocab);
    set_temperature(options.temperature);
    rows_.resize(options.vocab);
    long_rows_.resize(kLongRows);
    reset();
}

void Recycling::set_temperature(double temperature) {
    CHECK(temperature >= 0.0, "temperature {}", temperature);
    options_.temperature = temperature;
}

void Recycling::reset() {
    Row empty{};
    empty.tokens.fill(kNoToken);
    std::ranges::fill(rows_, empty);
    std::ranges::fill(long_rows_, LongRow{.row = empty});
}

Recycling::LongRow& Recycling::place_of(std::uint64_t behind) {
    return long_rows_[mix_bits(behind) % kLongRows];
}

const Recycling::Row& Recycling::row(TokenId token) const {
    CHECK(token >= 0 && token < options_.vocab, "token {} of {}", token, options_.vocab);
    return rows_[token];
}

void Recycling::observe(const Observation& observation) {
    if (observation.tree == nullptr || observation.logits.empty()) return;
    const TokenTree& tree = *observation.tree;
    const LogitRows& logits = observation.logits;
    CHECK(logits.rows() == tree.size() && logits.cols() == options_.vocab, "logits [{}, {}] of a tree of {} nodes",
          logits.rows(), logits.cols(), tree.size());
    // `before`: the committed tokens before that of node 0.
    const std::size_t n_before = observation.text.size() - static_cast<std::size_t>(observation.n_new);
    const std::span<const TokenId> before = observation.text.first(n_before > 0 ? n_before - 1 : 0);
    cursors_.clear();
    for (const TreeNode node : tree.nodes()) {
        const Cursor above = node == kTreeRoot ? root(before) : cursors_[tree.parent(node).index];
        cursors_.push_back(one_more(above, tree.token(node)));
        learn(cursors_.back(), logits, logits_row_of(node));
    }
}

LogitRequest Recycling::logit_request() const {
    return {.n_best = kCandidates, .sum_temperature = options_.temperature > 0.0 ? options_.temperature : 1.0};
}

void Recycling::learn(Cursor behind, const LogitRows& logits, std::int64_t logits_row) {
    const std::span<const TopToken> top = row_top_.best(logits, logits_row, kCandidates);
    if (top.empty()) return;  // no logit above -inf: the row stays as it was
    const auto token = static_cast<std::int64_t>(behind & kToken);
    CHECK(token < options_.vocab, "token {} of {}", token, options_.vocab);
    Row& row = rows_[token];
    row.tokens.fill(kNoToken);
    const float scale = row.sharpness = sharpness(options_.temperature);
    const float greatest = top.front().logit;
    const float normaliser = estimated_log_normaliser(logits, logits_row, top, 1.0F / scale);
    for (std::size_t i = 0; i < top.size(); ++i) {
        row.tokens[i] = top[i].token;
        row.probabilities[i] = kept_probability(std::exp((top[i].logit - greatest) * scale - normaliser));
    }
    for (std::size_t order = 2; order <= kOrders; ++order)
        place_of(last_tokens(behind, order)) = {.behind = last_tokens(behind, order), .row = row};
}

Cursor Recycling::root(std::span<const TokenId> text) {
    Cursor cursor = 0;
    for (const TokenId token : text.last(std::min(text.size(), kOrders))) cursor = one_more(cursor, token);
    return cursor;
}

Cursor Recycling::advance(Cursor cursor, TokenId token) {
    return one_more(cursor, token);
}

// Returns `row` with probabilities at the target's temperature. If it was learnt at another one, the sum of its
// probabilities stays, and they are sharpened within.
Recycling::Row Recycling::at_temperature(const Row& row) const {
    Row now = row;
    now.sharpness = sharpness(options_.temperature);
    if (now.sharpness == row.sharpness) return now;
    const float power = now.sharpness / row.sharpness;
    std::array<float, kCandidates> p{};
    float mass = 0.0F;
    for (std::size_t i = 0; i < kCandidates && row.tokens[i] != kNoToken; ++i)
        mass += p[i] = to_float(row.probabilities[i]);
    // Raises p / (greatest p) to the power: if p itself were raised, all of them could become 0.
    const float greatest = *std::ranges::max_element(p);
    std::array<float, kCandidates> sharpened{};
    float sum = 0.0F;
    for (std::size_t i = 0; i < kCandidates && p[i] > 0.0F; ++i) sum += sharpened[i] = std::pow(p[i] / greatest, power);
    for (std::size_t i = 0; i < kCandidates && p[i] > 0.0F; ++i)
        now.probabilities[i] = kept_probability(mass * sharpened[i] / sum);
    return now;
}

std::size_t Recycling::list(const Row& known, std::int64_t position, const PathNoise& noise,
                            std::span<Proposal> out) const {
    const Row row = at_temperature(known);
    std::array<Proposal, kCandidates> found;
    std::size_t n = 0;
    for (; n < kCandidates && row.tokens[n] != kNoToken; ++n)
        found[n] = {.token = row.tokens[n], .probability = to_float(row.probabilities[n])};
    if (noise.present()) return take_best(std::span(found).first(n), position, noise, out);
    n = std::min(n, out.size());
    std::copy_n(found.begin(), n, out.begin());
    return n;
}

std::size_t Recycling::propose(Cursor cursor, std::int64_t position, const PathNoise& noise, std::span<Proposal> out) {
    std::size_t order = kOrders;
    const Row* longest = nullptr;
    for (; order > 1; --order)
        if (const LongRow& known = place_of(last_tokens(cursor, order)); known.behind == last_tokens(cursor, order)) {
            longest = &known.row;
            break;
        }
    if (longest == nullptr) longest = &row(static_cast<TokenId>(cursor & kToken));
    const std::size_t n = list(*longest, position, noise, out);
    for (std::size_t i = 0; i < n; ++i) out[i].bin = static_cast<std::uint16_t>((order - 1) * kCandidates + i);
    return n;
}

void Recycling::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    const auto root_position = static_cast<std::int64_t>(request.text.size()) - 1;
    const PathNoise noise = request.noise != nullptr ? *request.noise : PathNoise();
    std::array<TreeNode, kRecyclingTree.size()> node_of{};  // [static nodes]: node of `tree`, or kNoTreeNode
    node_of[0] = kTreeRoot;
    // Children of one parent are consecutive, so one row is read at a time.
    std::array<Proposal, kCandidates> row_of_parent;
    std::size_t n_in_row = 0;
    std::int32_t last_parent = -1;
    for (std::size_t at = 1; at < kRecyclingTree.size(); ++at) {
        const StaticNode place = kRecyclingTree[at];
        const TreeNode above = node_of[place.parent];
        if (above == kNoTreeNode || tree.depth(above) >= request.max_depth) continue;
        if (tree.size() >= request.budget) return;
        if (place.parent != last_parent)
            n_in_row = list(row(tree.token(above)), root_position + tree.depth(above) + 1, noise, row_of_parent);
        last_parent = place.parent;
        const auto rank = static_cast<std::size_t>(place.rank);
        if (rank < n_in_row) node_of[at] = tree.add(above, row_of_parent[rank].token);
    }
}

std::size_t Recycling::memory_bytes() const {
    return rows_.size() * sizeof(Row) + long_rows_.size() * sizeof(LongRow);
}

void Recycling::save(TableWriter& out) const {
    std::vector<std::uint32_t> tokens;         // tokens whose rows are saved, ascending
    std::vector<std::int32_t> candidates;      // [n_rows, k]
    std::vector<std::uint32_t> probabilities;  // [n_rows, k / 2], two halves per word, the first in the low bits
    for (std::size_t token = 0; token < rows_.size(); ++token) {
        if (rows_[token].tokens[0] == kNoToken) continue;
        const Row row = at_temperature(rows_[token]);
        tokens.push_back(static_cast<std::uint32_t>(token));
        candidates.insert(candidates.end(), row.tokens.begin(), row.tokens.end());
        for (std::size_t i = 0; i < kCandidates; i += 2)
            probabilities.push_back(row.probabilities[i].bits |
                                    static_cast<std::uint32_t>(row.probabilities[i + 1].bits) << 16);
    }
    if (tokens.empty()) return;
    out.u64(static_cast<std::uint64_t>(options_.vocab));
    out.u32(kCandidates);
    out.f32(sharpness(options_.temperature));
    out.u32s(tokens);
    out.i32s(candidates);
    out.u32s(probabilities);
}

void Recycling::load(TableReader& in) {
    const std::uint64_t vocab = in.u64();
    const std::uint32_t k = in.u32();
    const float saved_sharpness = in.f32();
    const std::span<const std::uint32_t> tokens = in.u32s();
    const std::span<const std::int32_t> candidates = in.i32s();
    const std::span<const std::uint32_t> probabilities = in.u32s();
    in.finish();
    if (vocab != static_cast<std::uint64_t>(options_.vocab) || k != kCandidates)
        in.fail(fmt::format("{} candidates each of {} tokens, not {} of {}", k, vocab, kCandidates, options_.vocab));
    if (candidates.size() != tokens.size() * kCandidates || 2 * probabilities.size() != candidates.size())
        in.fail(fmt::format("{} rows, {} candidates, {} probabilities", tokens.size(), candidates.size(),
                            2 * probabilities.size()));
    if (!(saved_sharpness > 0.0F) || !std::isfinite(saved_sharpness))
        in.fail(fmt::format("made at a temperature of 1 / {}", saved_sharpness));

    Row empty{};
    empty.tokens.fill(kNoToken);
    std::vector<Row> rows(rows_.size(), empty);
    for (std::size_t r = 0; r < tokens.size(); ++r) {
        if (tokens[r] >= vocab || (r > 0 && tokens[r] <= tokens[r - 1]))
            in.fail(fmt::format("row {} is of token {}", r, tokens[r]));
        Row& row = rows[tokens[r]];
        row.sharpness = saved_sharpness;
        std::size_t n = 0;
        for (std::size_t i = 0; i < kCandidates; ++i) {
            const std::int32_t token = candidates[r * kCandidates + i];
            const std::uint32_t word = probabilities[(r * kCandidates + i) / 2];
            if (token == kNoToken) continue;
            const Half kept{static_cast<std::uint16_t>(word >> (16 * (i % 2)))};
            const float p = to_float(kept);
            const bool repeats = std::find(row.tokens.begin(), row.tokens.end(), token) != row.tokens.end();
            if (token < 0 || token >= options_.vocab || n != i || repeats || !(p > 0.0F && p < 1.0F))
                in.fail(fmt::format("candidate {} of token {} is {} with probability {}", i, tokens[r], token, p));
            row.probabilities[n] = kept;
            row.tokens[n++] = token;
        }
        if (n == 0) in.fail(fmt::format("the row of token {} is empty", tokens[r]));
    }
    rows_ = std::move(rows);
    std::ranges::fill(long_rows_, LongRow{.row = empty});
}

}  // namespace slipstream::draft
