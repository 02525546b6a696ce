#include "runtime/ranks/layers_target.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/naming.h"
#include "runtime/ranks/prompt_wave.h"

namespace slipstream {

namespace {

std::int64_t count_layers(const std::vector<LayerRank>& ranks) {
    std::int64_t n_layers = 0;
    for (const LayerRank& rank : ranks) n_layers += std::ssize(rank.layers);
    return n_layers;
}

}  // namespace

LayersTarget::LayersTarget(std::vector<LayerRank> ranks, PinnedArena* arena)
    : RankTarget(ranks_of(ranks), count_layers(ranks)), layer_ranks_(std::move(ranks)), arena_(arena) {
    owners_.resize(static_cast<std::size_t>(n_layers()));
    std::int64_t vocab = 0;
    std::vector<Device*> devices;
    std::vector<bool> owned(owners_.size(), false);
    for (std::size_t rank = 0; rank < layer_ranks_.size(); ++rank) {
        const LayerRank& own = layer_ranks_[rank];
        CHECK(own.first_vocab == vocab && own.n_vocab == own.forward->model().config().vocab,
              "rows of the vocabulary from {}, {} are there", own.first_vocab, vocab);
        vocab += own.n_vocab;
        devices.push_back(&own.forward->exec().device);
        for (std::int64_t index = 0; index < std::ssize(own.layers); ++index) {
            const std::int64_t layer = own.layers[index];
            owners_.at(static_cast<std::size_t>(layer)) = {rank, index};
            owned[static_cast<std::size_t>(layer)] = true;
        }
    }
    CHECK(std::ranges::find(owned, false) == owned.end(), "a layer that no rank has");
    const Forward& first = *layer_ranks_.front().forward;
    rows_.emplace(devices, static_cast<std::size_t>(first.limits().max_tokens) *
                               row_bytes(DType::F32, first.model().config().d_model));
}

TargetShape LayersTarget::shape() const {
    TargetShape shape = shape_but_kv();
    shape.kv = layer_ranks_.front().cache->shape();
    return shape;
}

bool LayersTarget::takes_prompt(std::int64_t end) const {
    return arena_ != nullptr && PromptWave::fits(layer_ranks_, *arena_, n_committed(), end);
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
    const bool is_whole = pass.prompt.empty() ? run_pass(pass) : run_prompt(pass);
    close_pass(is_whole ? std::ssize(pass.logit_tokens) : 0);
}

// False where the pass was given up. Those that do not come to their end give up what they stream.
bool LayersTarget::run_pass(const TargetPass& pass) {
    struct Dropped {
        ~Dropped() { target.drop_passes(); }
        LayersTarget& target;
    } const dropped{*this};
    const PassWatch unwatched;
    for (std::size_t rank = 0; rank < layer_ranks_.size(); ++rank)
        on_rank(rank, 0, [&] {
            passes_[rank].emplace(*layer_ranks_[rank].forward, *layer_ranks_[rank].cache, pass.tokens, pass.nodes,
                                  pass.logit_tokens, pass.phase);
        });
    if (!run_layers(pass.watch != nullptr ? *pass.watch : unwatched)) return false;
    take_logits(pass, passes_);
    for (std::size_t rank = 0; rank < layer_ranks_.size(); ++rank)
        on_rank(rank, kAtLmHead, [&] { passes_[rank]->complete(); });
    return true;
}

bool LayersTarget::run_layers(const PassWatch& watch) {
    std::size_t at = owners_[0].rank;
    on_rank(at, 0, [&] { passes_[at]->embed(); });
    for (std::int64_t layer = 0; layer < std::ssize(owners_); ++layer) {
        if (watch.cancelled()) return false;
        if (layer > 0 && watch.on_progress)
            watch.on_progress(static_cast<double>(layer) / static_cast<double>(owners_.size()));
        const LayerOwner& owner = owners_[layer];
        on_rank(owner.rank, layer, [&] {
            if (owner.rank != at) hop(at, passes_[at]->hidden(), owner.rank, passes_[owner.rank]->hidden());
            passes_[owner.rank]->run_layer(owner.layer);
        });
        at = owner.rank;
    }
    return true;
}

// The same with a prompt before it, which is committed where all ranks have come to its end.
bool LayersTarget::run_prompt(const TargetPass& pass) {
    CHECK(pass.phase == Phase::Decode, "what goes along with a prompt");
    const PassWatch unwatched;
    PromptWave wave(layer_ranks_, owners_, *arena_, announced_from(), pass);
    if (!wave.run(pass.watch != nullptr ? *pass.watch : unwatched)) return false;
    take_logits(pass, wave.steps());
    for (std::size_t rank = 0; rank < layer_ranks_.size(); ++rank)
        on_rank(rank, kAtKv, [&] { wave.steps()[rank]->end(); });
    for (auto& steps : wave.steps()) steps->complete();
    end_prompt();
    return true;
}

// The last layer's rows are everybody's.
template <typename Steps>
void LayersTarget::take_logits(const TargetPass& pass, std::vector<std::optional<Steps>>& steps) {
    const std::size_t last = owners_.back().rank;
    for (std::size_t rank = 0; rank < layer_ranks_.size(); ++rank)
        on_rank(rank, kAtLmHead, [&] {
            if (rank != last && !pass.logit_tokens.empty())
                hop(last, steps[last]->hidden(), rank, steps[rank]->hidden());
            parts_[rank] = steps[rank]->logits(nullptr);
        });
}

void LayersTarget::hop(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out) {
    naming("rows",
           [&] { rows_->carry(layer_ranks_[from].forward->exec(), rows, layer_ranks_[to].forward->exec(), out); });
}

void LayersTarget::read_rows(NodeId node, std::byte* out) {
    for (const LayerOwner& owner : owners_) {
        const LayerRank& rank = layer_ranks_[owner.rank];
        rank.cache->read_rows(rank.forward->exec(), owner.layer, node, out);
        out += 2 * rank.cache->shape().scratch_row_bytes();
    }
    for (const LayerRank& rank : layer_ranks_) rank.forward->exec().stream.synchronize();
}

void LayersTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    const LayerRank& rank = layer_ranks_[owners_[layer].rank];
    set_failed(true);  // until it is there
    on_rank(owners_[layer].rank, layer,
            [&] { rank.cache->read_chunk(rank.forward->exec(), owners_[layer].layer, chunk, out); });
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
        cut_back(0);
        throw;
    }
}

}  // namespace slipstream
