#include "runtime/ranks/split_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/tensor_view.h"

namespace slipstream {

namespace {

// Returns the advice for the error if a share is less than one part.
std::string nearest_parts(std::int64_t n_parts, std::span<const double> shares) {
    const std::int64_t n_ranks = std::ssize(shares);
    if (n_parts < n_ranks) return "name fewer devices";
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::int64_t> parts;
    for (const double share : shares)
        parts.push_back(std::max<std::int64_t>(1, std::llround(static_cast<double>(n_parts) * share / sum)));
    // Rounding may have made too many parts or too few: the largest rank takes the difference.
    *std::max_element(parts.begin(), parts.end()) +=
        n_parts - std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    if (*std::min_element(parts.begin(), parts.end()) < 1) return "give even shares";
    return fmt::format("give {}, the nearest that goes, or name fewer devices", fmt::join(parts, ","));
}

}  // namespace

std::vector<std::int64_t> whole_parts(std::int64_t n_parts, std::span<const double> shares, std::string_view what) {
    CHECK(!shares.empty());
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::int64_t> parts;
    std::vector<double> missing;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        CHECK(shares[rank] > 0.0, "a share of {}", shares[rank]);
        const double exact = static_cast<double>(n_parts) * shares[rank] / sum;
        if (!(exact >= 1.0))
            throw Unsupported(fmt::format(
                "a share of {:.3g} in {:.3g} of {} {}s is less than one {}, for device {} of {}; {}", shares[rank], sum,
                n_parts, what, what, rank + 1, shares.size(), nearest_parts(n_parts, shares)));
        parts.push_back(static_cast<std::int64_t>(exact));
        missing.push_back(exact - static_cast<double>(parts.back()));
    }
    // The largest remainders are rounded up.
    while (std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) < n_parts) {
        const auto rank = std::max_element(missing.begin(), missing.end()) - missing.begin();
        ++parts[rank];
        missing[rank] -= 1.0;
    }
    return parts;
}

std::vector<std::int64_t> ends_in_proportion(std::int64_t n_rows, std::int64_t unit,
                                             std::span<const std::int64_t> parts, std::string_view what) {
    const std::int64_t n_ranks = std::ssize(parts);
    if (n_rows < n_ranks * unit)
        throw Unsupported(fmt::format("{} of {} cannot be shared among {} devices", what, n_rows, n_ranks));
    const std::int64_t n_parts = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    std::vector<std::int64_t> ends;
    std::int64_t n_before = 0;
    for (std::int64_t rank = 0; rank + 1 < n_ranks; ++rank) {
        n_before += parts[rank];
        const std::int64_t ideal = n_rows * n_before / n_parts / unit * unit;
        const std::int64_t begin = ends.empty() ? 0 : ends.back();
        const std::int64_t most = n_rows - (n_ranks - 1 - rank) * unit;
        ends.push_back(std::clamp(ideal, begin + unit, most / unit * unit));
    }
    ends.push_back(n_rows);
    return ends;
}

void deal_vocabulary(std::int64_t vocab, std::span<const std::int64_t> parts, std::vector<ModelShard>& shards) {
    const std::vector<std::int64_t> ends = ends_in_proportion(vocab, kInterleavedRows, parts, "a vocabulary");
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
        shards[rank].first_vocab = rank == 0 ? 0 : ends[rank - 1];
        shards[rank].n_vocab = ends[rank] - shards[rank].first_vocab;
    }
}

}  // namespace slipstream
