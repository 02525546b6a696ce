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

// Throws Unsupported if the layers have experts, recurrent layers or different numbers of feed-forward columns: a shard
// has the same ones of each layer.
void check_alike(const ModelConfig& config) {
    if (config.has_experts())
        throw Unsupported(
            "the matrices of a mixture of experts cannot be shared among devices; split the model by layers (--split "
            "layers)");
    if (config.is_recurrent())
        throw Unsupported(
            "the matrices of a model with recurrent layers cannot be shared among devices; split the model by layers "
            "(--split layers)");
    const std::int64_t first = config.layers.front().feed_forward.d_ff;
    for (const LayerConfig& layer : config.layers)
        if (layer.feed_forward.d_ff != first)
            throw Unsupported(fmt::format(
                "some layers have {} feed-forward columns, others {}: their matrices cannot be shared among "
                "devices; split the model by layers",
                first, layer.feed_forward.d_ff));
}

[[noreturn]] void refuse(const ModelConfig& config, std::int64_t together, std::size_t n_ranks) {
    const std::string held =
        together == 1 ? ""
                      : fmt::format(", {} of which are in the same blocks of the attention output's columns", together);
    const auto heads = [](const LayerConfig& layer) { return layer.attention().n_kv_heads; };
    const auto [narrowest, widest] = std::ranges::minmax_element(config.layers, {}, heads);
    const std::int64_t least = heads(*narrowest);
    const std::int64_t most = heads(*widest);
    if (least == most)
        throw Unsupported(
            fmt::format("{} kv heads{} cannot be shared among {} devices; name fewer, or split the model by layers",
                        most, held, n_ranks));
    const std::int64_t n_equal = config.n_kv_groups() / together;
    const std::string layers = fmt::format("layers with {} to {} kv heads{}", least, most, held);
    throw Unsupported(
        n_equal == 1
            ? fmt::format("{} cannot be shared among devices; split the model by layers", layers)
            : fmt::format("{} can be shared among at most {} devices; name fewer, or split the model by layers", layers,
                          n_equal));
}

}  // namespace

std::int64_t heads_together(const ModelConfig& config, const ModelWeights& weights) {
    check_alike(config);
    const std::int64_t block = block_columns(weights, TensorRole::AttnOut);
    std::int64_t together = 1;
    for (const LayerConfig& layer : config.layers) {
        const std::int64_t group_columns = layer.attention().q_cols() / config.n_kv_groups();
        together = std::lcm(together, std::lcm(block, group_columns) / group_columns);
    }
    return together;
}

std::vector<std::int64_t> heads_by_share(const ModelConfig& config, const ModelWeights& weights,
                                         std::span<const double> shares) {
    const std::int64_t together = heads_together(config, weights);
    // Rows of the attention output are whole quantisation blocks and whole heads, so the kv heads are whole groups.
    const std::int64_t n_kv_groups = config.n_kv_groups();
    CHECK(n_kv_groups % together == 0, "{} kv heads in groups of {}", n_kv_groups, together);
    const std::int64_t n_groups = n_kv_groups / together;
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
          std::accumulate(n_kv_heads.begin(), n_kv_heads.end(), std::int64_t{0}) == config.n_kv_groups());
    // Rows of gate and up are packed in runs of 16, so they are cut between runs.
    const std::int64_t ffn_unit = std::lcm(block_columns(weights, TensorRole::Down), kInterleavedRows);
    const std::vector<std::int64_t> ffn_ends =
        ends_in_proportion(config.layers.front().feed_forward.d_ff, ffn_unit, n_kv_heads,
                           fmt::format("a feed-forward in blocks of {} columns", ffn_unit));
    std::vector<ModelShard> shards(n_kv_heads.size());
    std::int64_t first_head = 0;
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
        if (first_head % together != 0) refuse(config, together, shards.size());
        shards[rank].first_kv_group = first_head;
        shards[rank].n_kv_groups = n_kv_heads[rank];
        shards[rank].first_ffn = rank == 0 ? 0 : ffn_ends[rank - 1];
        shards[rank].n_ffn = ffn_ends[rank] - shards[rank].first_ffn;
        first_head += n_kv_heads[rank];
    }
    deal_vocabulary(config.vocab, n_kv_heads, shards);
    return shards;
}

}  // namespace slipstream
