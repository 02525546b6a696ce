#include "draft/logit_row.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Returns 2^x for x in [-126, 0], with a relative error below 8e-5: a cubic fitted to 2^f on (-1, 0] for the least
// relative error (our fit).
inline float power_of_two_below_one(float x) {
    const auto whole = static_cast<std::int32_t>(x);  // towards 0
    const float f = x - static_cast<float>(whole);    // (-1, 0]
    const float power = 0.99992522F + f * (0.69102071F + f * (0.23007036F + f * 0.03901226F));
    return power * std::bit_cast<float>(static_cast<std::uint32_t>(whole + 127) << 23);
}

// Computes exp((logit - greatest) / temperature).
struct Scale {
    Scale(float best, float temperature) : greatest(best), scale(1.44269504F / temperature) {}
    [[nodiscard]] float term(float logit) const {
        const float x = (logit - greatest) * scale;
        return power_of_two_below_one(x > -126.0F ? x : -126.0F);  // below -126 and for NaN: 2^-126, almost 0
    }
    float greatest;
    float scale;
};

// Logits of one block, summed in as many parallel lanes; estimated_log_normaliser() skips whole blocks.
constexpr std::size_t kBlock = 32;

// Returns the sum of scale.term() over every stride-th block of kBlock logits. The shorter block at the end of the row
// counts if its index is a multiple of `stride`. Sums in lanes, so that compilers vectorise it.
double sum_of_blocks(std::span<const float> logits, const Scale& scale, std::size_t stride) {
    double sum = 0.0;
    const std::size_t whole = logits.size() / kBlock * kBlock;
    for (std::size_t begin = 0; begin < whole; begin += stride * kBlock) {
        float lanes[kBlock];
        for (std::size_t i = 0; i < kBlock; ++i) lanes[i] = scale.term(logits[begin + i]);
        for (std::size_t half = kBlock / 2; half > 0; half /= 2)
            for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
        sum += static_cast<double>(lanes[0]);
    }
    for (std::size_t i = whole; i < logits.size() && whole / kBlock % stride == 0; ++i)
        sum += static_cast<double>(scale.term(logits[i]));
    return sum;
}

// Orders the better token first: the higher logit, at equal logits the lower id.
constexpr auto kBetter = [](const TopToken& a, const TopToken& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
};

}  // namespace

RowTop::RowTop(std::int64_t max_k, std::int64_t vocab) : max_k_(max_k), blocks_(vocab) {
    CHECK(max_k > 0, "the best {}", max_k);
    top_.reserve(max_k_);
}

std::span<const TopToken> RowTop::best(std::span<const float> logits, std::int64_t k) {
    CHECK(k > 0, "the best {}", k);
    const std::size_t n = std::min(static_cast<std::size_t>(k), max_k_);
    top_.clear();
    blocks_.scan(logits);
    for (const std::uint32_t id : blocks_.reaching(blocks_.bound(n)))
        top_.push_back({static_cast<TokenId>(id), logits[id]});
    const std::size_t kept = std::min(n, top_.size());
    std::partial_sort(top_.begin(), top_.begin() + static_cast<std::ptrdiff_t>(kept), top_.end(), kBetter);
    return std::span(top_).first(kept);
}

std::span<const TopToken> RowTop::best(const LogitRows& rows, std::int64_t row, std::int64_t k) {
    CHECK(k > 0, "the best {}", k);
    if (!rows.on_device()) return best(rows.row(row), k);
    const TopLogits head = rows.top(row);
    const std::size_t n = std::min(static_cast<std::size_t>(k), max_k_);
    if (head.ids.size() < n && !head.complete) return best(rows.row(row), k);
    top_.clear();
    for (std::size_t i = 0; i < std::min(head.ids.size(), n); ++i) top_.push_back({head.ids[i], head.logits[i]});
    return top_;
}

float log_normaliser(std::span<const float> logits, float greatest, float temperature) {
    return static_cast<float>(std::log(std::max(sum_of_blocks(logits, {greatest, temperature}, 1), 1.0)));
}

float estimated_log_normaliser(const LogitRows& rows, std::int64_t row, std::span<const TopToken> top,
                               float temperature) {
    CHECK(!top.empty());
    if (rows.on_device()) {
        const TopLogits head = rows.top(row);
        constexpr double same = 1e-6;  // relative difference up to which temperatures are equal: one was a float
        const double difference = std::abs(head.sum_temperature - static_cast<double>(temperature));
        if (difference <= same * head.sum_temperature) return std::log(std::max(head.sum, 1.0F));
    }
    constexpr std::size_t sampled = 8192;
    const std::span<const float> logits = rows.row(row);
    const std::size_t stride = std::max<std::size_t>(logits.size() / sampled, 1);
    const Scale scale(top.front().logit, temperature);
    double best = 0.0;
    double others = sum_of_blocks(logits, scale, stride);
    for (const TopToken& token : top) {
        const auto term = static_cast<double>(scale.term(token.logit));
        best += term;
        if (static_cast<std::size_t>(token.token) / kBlock % stride == 0) others -= term;
    }
    const double sum = best + static_cast<double>(stride) * std::max(others, 0.0);
    return static_cast<float>(std::log(std::max(sum, 1.0)));
}

}  // namespace slipstream::draft
