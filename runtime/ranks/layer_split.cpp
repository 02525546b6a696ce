#include "runtime/ranks/layer_split.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/tensor_view.h"

namespace slipstream {

std::vector<std::int64_t> layers_by_share(std::int64_t n_layers, std::span<const double> shares) {
    CHECK(!shares.empty());
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::int64_t> layers;
    std::vector<double> missing;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        CHECK(shares[rank] > 0.0, "a share of {}", shares[rank]);
        const double exact = static_cast<double>(n_layers) * shares[rank] / sum;
        if (!(exact >= 1.0))
            throw Unsupported(fmt::format(
                "a share of {:.3g} in {:.3g} of {} layers is less than one layer, for device {} of {}; give "
                "it a larger share, or leave it out",
                shares[rank], sum, n_layers, rank + 1, shares.size()));
        layers.push_back(static_cast<std::int64_t>(exact));
        missing.push_back(exact - static_cast<double>(layers.back()));
    }
    // The largest remainders are rounded up.
    while (std::accumulate(layers.begin(), layers.end(), std::int64_t{0}) < n_layers) {
        const auto rank = std::max_element(missing.begin(), missing.end()) - missing.begin();
        ++layers[static_cast<std::size_t>(rank)];
        missing[static_cast<std::size_t>(rank)] -= 1.0;
    }
    return layers;
}

std::vector<ModelShare> deal_layers(const ModelConfig& config, std::span<const std::int64_t> n_layers) {
    CHECK(!n_layers.empty() && std::ranges::all_of(n_layers, [](std::int64_t n) { return n >= 1; }) &&
          std::accumulate(n_layers.begin(), n_layers.end(), std::int64_t{0}) == config.n_layers);
    const std::int64_t n_ranks = std::ssize(n_layers);
    if (config.vocab < n_ranks * kInterleavedRows)
        throw Unsupported(fmt::format("a vocabulary of {} cannot be shared among {} devices", config.vocab, n_ranks));
    std::vector<ModelShare> shares(n_layers.size(), whole_share(config));
    // The next layer is for whoever is least far through its own.
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
        const auto through = [&](std::size_t rank) {
            return static_cast<double>(shares[rank].layers.size() + 1) / static_cast<double>(n_layers[rank]);
        };
        std::size_t next = 0;
        for (std::size_t rank = 1; rank < shares.size(); ++rank)
            if (through(rank) < through(next)) next = rank;
        shares[next].layers.push_back(layer);
    }
    std::int64_t begin = 0;
    std::int64_t n_before = 0;
    for (std::int64_t rank = 0; rank < n_ranks; ++rank) {
        n_before += n_layers[static_cast<std::size_t>(rank)];
        const std::int64_t ideal = config.vocab * n_before / config.n_layers / kInterleavedRows * kInterleavedRows;
        const std::int64_t most = config.vocab - (n_ranks - 1 - rank) * kInterleavedRows;
        const std::int64_t end = rank + 1 == n_ranks ? config.vocab
                                                     : std::clamp(ideal, begin + kInterleavedRows,
                                                                  most / kInterleavedRows * kInterleavedRows);
        shares[static_cast<std::size_t>(rank)].first_vocab = begin;
        shares[static_cast<std::size_t>(rank)].n_vocab = end - begin;
        begin = end;
    }
    return shares;
}

}  // namespace slipstream
