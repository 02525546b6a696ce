#include "runtime/ranks/tensor_target.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

std::vector<SummingRank> summing_ranks(const std::vector<TensorRank>& ranks) {
    std::vector<SummingRank> all;
    for (const TensorRank& rank : ranks) all.push_back({rank.forward, rank.collective});
    return all;
}

}  // namespace

TensorTarget::TensorTarget(const std::vector<TensorRank>& ranks)
    : RankTarget(ranks_of(ranks), ranks.front().forward->n_layers()),
      kv_(ranks.front().cache->shape()),
      passes_(summing_ranks(ranks)) {
    kv_.n_kv_heads = 0;
    for (const TensorRank& rank : ranks) {
        kv_.n_kv_heads += rank.cache->shape().n_kv_heads;
        caches_.push_back(rank.cache);
        row_.resize(std::max(row_.size(), 2 * rank.cache->shape().scratch_row_bytes() * n_layers()));
    }
}

TargetShape TensorTarget::shape() const {
    TargetShape shape = shape_but_kv();
    shape.kv = kv_;
    return shape;
}

void TensorTarget::extend(std::int64_t end) {
    CHECK(takes_prompt(end), "a prompt to {}", end);
}

void TensorTarget::begin(const TargetPass& pass) {
    open_pass();
    const bool is_whole = passes_.run(caches_, pass, begin_views(pass), parts());
    close_pass(is_whole ? std::ssize(pass.logit_tokens) : 0);
}

// Heads of a row lie behind one another, keys first.
void TensorTarget::read_rows(NodeId node, std::byte* out) {
    const std::size_t whole = kv_.scratch_row_bytes();
    std::size_t before = 0;
    for (const Rank& rank : ranks()) {
        const ExecRef exec = rank.forward->exec();
        const std::size_t part = rank.cache->shape().scratch_row_bytes();
        for (std::int64_t layer = 0; layer < n_layers(); ++layer)
            rank.cache->read_rows(exec, layer, node, row_.data() + static_cast<std::size_t>(layer) * 2 * part);
        exec.stream.synchronize();
        for (std::size_t layer = 0; layer < static_cast<std::size_t>(n_layers()); ++layer) {
            const std::byte* in = row_.data() + layer * 2 * part;
            std::byte* of_layer = out + layer * 2 * whole + before;
            std::copy_n(in, part, of_layer);
            std::copy_n(in + part, part, of_layer + whole);
        }
        before += part;
    }
}

// So do heads of a chunk.
void TensorTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    set_failed(true);  // until it is there
    for (std::size_t rank = 0; rank < ranks().size(); ++rank) {
        const Rank& own = ranks()[rank];
        on_rank(rank, layer, [&] { own.cache->read_chunk(own.forward->exec(), layer, chunk, out); });
        out += own.cache->shape().chunk_bytes();
    }
    set_failed(false);
}

void TensorTarget::restore(std::int64_t n_tokens,
                           const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    std::vector<std::byte> whole(kv_.chunk_bytes());
    try {
        for (std::size_t rank = 0; rank < ranks().size(); ++rank)
            on_rank(rank, kKvStage,
                    [&] { ranks()[rank].cache->begin_restore(ranks()[rank].forward->exec(), n_tokens); });
        for (std::int64_t chunk = 0; chunk * kChunkTokens < n_tokens; ++chunk) {
            for (std::int64_t layer = 0; layer < n_layers(); ++layer) {
                read(layer, chunk, whole.data());
                const std::byte* part = whole.data();
                for (std::size_t rank = 0; rank < ranks().size(); ++rank) {
                    const Rank& own = ranks()[rank];
                    const std::size_t bytes = own.cache->shape().chunk_bytes();
                    on_rank(rank, layer, [&] {
                        own.cache->restore_chunk(own.forward->exec(), n_tokens, layer, chunk,
                                                 [&](std::byte* out) { std::copy_n(part, bytes, out); });
                    });
                    part += bytes;
                }
            }
        }
    } catch (...) {
        roll_back_to(0);
        throw;
    }
    for (const Rank& rank : ranks()) rank.cache->end_restore(n_tokens);
}

}  // namespace slipstream
