#include "runtime/ranks/tensor_split.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/base/error.h"
#include "kernels/base/tensor_view.h"
#include "runtime/ranks/split_parts.h"

namespace slipstream {

namespace {

/// Returns the smallest number of columns that is whole quantisation blocks of `matrix` in every layer.
std::int64_t block_columns(const ModelWeights& weights, TensorRole matrix) {
    std::int64_t columns = 1;
    for (const LayerWeights& layer : weights.layers)
        columns = std::lcm(columns, dtype_info(layer[matrix].dtype).block_elements);
    return columns;
}

// Throws Unsupported if the layers have different numbers of kv heads or of feed-forward columns: a shard has the same
// ones of each layer.
void check_alike(const ModelConfig& config) {
    const auto check = [](std::int64_t first, std::int64_t other, std::string_view what) {
        if (first != other)
            throw Unsupported(
                fmt::format("some layers have {} {}, others {}: their matrices cannot be shared among "
                            "devices; split the model by layers",
                            first, what, other));
    };
    for (const LayerConfig& layer : config.layers) {
        check(config.attention(0).n_kv_heads, layer.attention().n_kv_heads, "kv heads");
        check(config.layers.front().feed_forward.d_ff, layer.feed_forward.d_ff, "feed-forward columns");
    }
}

[[noreturn]] void refuse(const ModelConfig& config, std::int64_t together, std::size_t n_ranks) {
    const std::string held =
        together == 1 ? ""
                      : fmt::format(", {} of which lie in the same blocks of the attention output's columns", together);
    throw Unsupported(
        fmt::format("{} kv heads{} cannot be shared among {} devices; name fewer, or split the model by layers",
                    config.attention(0).n_kv_heads, held, n_ranks));
}

}  // namespace

std::int64_t heads_together(const ModelConfig& config, const ModelWeights& weights) {
    check_alike(config);
    const std::int64_t block = block_columns(weights, TensorRole::AttnOut);
    std::int64_t together = 1;
    for (const LayerConfig& layer : config.layers) {
        const std::int64_t head_columns = layer.attention().queries_per_kv_head() * layer.attention().head_dim;
        together = std::lcm(together, std::lcm(block, head_columns) / head_columns);
    }
    return together;
}

std::vector<std::int64_t> heads_by_share(const ModelConfig& config, const ModelWeights& weights,
                                         std::span<const double> shares) {
    const std::int64_t together = heads_together(config, weights);
    // Rows of the attention output are whole quantisation blocks and whole heads, so the kv heads are whole groups.
    const std::int64_t n_kv_heads = config.attention(0).n_kv_heads;
    CHECK(n_kv_heads % together == 0, "{} kv heads in groups of {}", n_kv_heads, together);
    const std::int64_t n_groups = n_kv_heads / together;
    if (n_groups < std::ssize(shares)) refuse(config, together, shares.size());
    std::vector<std::int64_t> heads =
        whole_parts(n_groups, shares, together == 1 ? "kv head" : fmt::format("group of {} kv head", together));
    for (std::int64_t& n : heads) n *= together;
    return heads;
}

std::vector<ModelShard> deal_heads(const ModelConfig& config, const ModelWeights& weights,
                                   std::span<const std::int64_t> n_kv_heads) {
    const std::int64_t together = heads_together(config, weights);
    CHECK(!n_kv_heads.empty() && std::ranges::all_of(n_kv_heads, [](std::int64_t n) { return n >= 1; }) &&
          std::accumulate(n_kv_heads.begin(), n_kv_heads.end(), std::int64_t{0}) == config.attention(0).n_kv_heads);
    // Rows of gate and up are packed in runs of 16, so they are cut between runs.
    const std::int64_t ffn_unit = std::lcm(block_columns(weights, TensorRole::Down), kInterleavedRows);
    const std::vector<std::int64_t> ffn_ends =
        ends_in_proportion(config.layers.front().feed_forward.d_ff, ffn_unit, n_kv_heads,
                           fmt::format("a feed-forward in blocks of {} columns", ffn_unit));
    std::vector<ModelShard> shards(n_kv_heads.size());
    std::int64_t first_head = 0;
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
        if (first_head % together != 0) refuse(config, together, shards.size());
        shards[rank].first_kv_head = first_head;
        shards[rank].n_kv_heads = n_kv_heads[rank];
        shards[rank].first_ffn = rank == 0 ? 0 : ffn_ends[rank - 1];
        shards[rank].n_ffn = ffn_ends[rank] - shards[rank].first_ffn;
        first_head += n_kv_heads[rank];
    }
    deal_vocabulary(config.vocab, n_kv_heads, shards);
    return shards;
}

}  // namespace slipstream
