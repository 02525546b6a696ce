#include "runtime/ranks/layers_target.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/error_context.h"
#include "runtime/ranks/pipelined_prefill.h"

namespace slipstream {

namespace {

std::int64_t count_layers(const std::vector<LayerRank>& ranks) {
    std::int64_t n_layers = 0;
    for (const LayerRank& rank : ranks) n_layers += std::ssize(rank.layers);
    return n_layers;
}

std::vector<LayerPassesRank> layer_passes_ranks(const std::vector<LayerRank>& ranks) {
    std::vector<LayerPassesRank> all;
    for (const LayerRank& rank : ranks) all.push_back({rank.forward, rank.layers});
    return all;
}

}  // namespace

LayersTarget::LayersTarget(std::vector<LayerRank> ranks, PinnedArena* arena)
    : RankTarget(ranks_of(ranks), count_layers(ranks)),
      layer_ranks_(std::move(ranks)),
      arena_(arena),
      passes_(layer_passes_ranks(layer_ranks_)) {
    std::int64_t vocab = 0;
    for (const LayerRank& own : layer_ranks_) {
        CHECK(own.first_vocab == vocab && own.n_vocab == own.forward->model().config().vocab,
              "rows of the vocabulary from {}, {} are there", own.first_vocab, vocab);
        vocab += own.n_vocab;
        caches_.push_back(own.cache);
    }
}

TargetShape LayersTarget::shape() const {
    TargetShape shape = shape_but_kv();
    shape.kv = layer_ranks_.front().cache->shape();
    return shape;
}

bool LayersTarget::takes_prompt(std::int64_t end) const {
    return arena_ != nullptr && PipelinedPrefill::fits(layer_ranks_, *arena_, n_committed(), end);
}

void LayersTarget::extend(std::int64_t end) {
    check_between_passes();
    CHECK(takes_prompt(end), "a prompt from {} to {}", n_committed(), end);
    announce(end);
}

void LayersTarget::begin(const TargetPass& pass) {
    CHECK(pass.prompt.empty() == (announced_from() < 0), "a prompt of {} tokens, announced from {}", pass.prompt.size(),
          announced_from());
    open_pass();
    const std::span<PassHooks* const> hooks = begin_views(pass);
    const bool is_whole = pass.prompt.empty() ? passes_.run(caches_, pass, hooks, parts()) : run_prompt(pass, hooks);
    close_pass(is_whole ? std::ssize(pass.logit_tokens) : 0);
}

// The same with a prompt before it, which is committed where all ranks have come to its end.
bool LayersTarget::run_prompt(const TargetPass& pass, std::span<PassHooks* const> hooks) {
    CHECK(pass.phase == Phase::Decode, "what goes along with a prompt");
    const PassControl no_control;
    PipelinedPrefill wave(layer_ranks_, passes_.owners(), *arena_, announced_from(), pass, hooks);
    if (!wave.run(pass.control != nullptr ? *pass.control : no_control)) return false;
    passes_.take_logits(pass, wave.steps(), parts());
    for (std::size_t rank = 0; rank < layer_ranks_.size(); ++rank)
        on_rank(rank, kKvStage, [&] { wave.steps()[rank]->end(); });
    for (auto& steps : wave.steps()) steps->complete();
    end_prompt();
    return true;
}

void LayersTarget::read_rows(NodeId node, std::byte* out) {
    for (const LayerOwner& owner : passes_.owners()) {
        const LayerRank& rank = layer_ranks_[owner.rank];
        rank.cache->read_rows(rank.forward->exec(), owner.layer, node, out);
        out += 2 * rank.cache->shape().scratch_row_bytes();
    }
    for (const LayerRank& rank : layer_ranks_) rank.forward->exec().stream.synchronize();
}

void LayersTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    const LayerOwner& owner = passes_.owners()[layer];
    const LayerRank& rank = layer_ranks_[owner.rank];
    set_failed(true);  // until it is there
    on_rank(owner.rank, layer, [&] { rank.cache->read_chunk(rank.forward->exec(), owner.layer, chunk, out); });
    set_failed(false);
}

void LayersTarget::restore(std::int64_t n_tokens,
                           const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    try {
        for (const LayerRank& rank : layer_ranks_)
            rank.cache->restore(
                rank.forward->exec(), n_tokens,
                [&](std::int64_t layer, std::int64_t chunk, std::byte* out) { read(rank.layers[layer], chunk, out); });
    } catch (...) {
        roll_back_to(0);
        throw;
    }
}

}  // namespace slipstream
