#include "runtime/ranks/layers_target.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/naming.h"
#include "runtime/ranks/prompt_wave.h"

namespace slipstream {

LayersTarget::LayersTarget(std::vector<LayerRank> ranks, PinnedArena* arena)
    : ranks_(std::move(ranks)), arena_(arena), passes_(ranks_.size()), parts_(ranks_.size()) {
    CHECK(!ranks_.empty());
    const ForwardLimits& limits = first().forward->limits();
    std::size_t n_layers = 0;
    std::vector<Device*> devices;
    for (const LayerRank& rank : ranks_) {
        n_layers += rank.layers.size();
        CHECK(rank.first_vocab == vocab_, "rows of the vocabulary from {}, {} are there", rank.first_vocab, vocab_);
        vocab_ += rank.n_vocab;
        CHECK(rank.forward->limits().max_tokens == limits.max_tokens &&
                  rank.forward->limits().max_logit_rows == limits.max_logit_rows &&
                  rank.cache->max_nodes() == first().cache->max_nodes() &&
                  rank.cache->context_tokens() == first().cache->context_tokens(),
              "ranks of different limits");
        devices.push_back(&rank.forward->exec().device);
    }
    owners_.resize(n_layers);
    std::vector<bool> owned(n_layers, false);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        for (std::int64_t own = 0; own < std::ssize(ranks_[rank].layers); ++own) {
            const std::int64_t layer = ranks_[rank].layers[own];
            owners_.at(static_cast<std::size_t>(layer)) = {rank, own};
            owned[static_cast<std::size_t>(layer)] = true;
        }
    }
    CHECK(std::ranges::find(owned, false) == owned.end(), "a layer that no rank has");
    rows_.emplace(devices, static_cast<std::size_t>(limits.max_tokens) *
                               row_bytes(DType::F32, first().forward->model().config().d_model));
    logits_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(limits.max_logit_rows * vocab_));
}

TargetShape LayersTarget::shape() const {
    bool has_prompt_kernels = false;
    for (const LayerRank& rank : ranks_)
        has_prompt_kernels = has_prompt_kernels || rank.forward->exec().device.has_prompt_kernels();
    const ForwardLimits& limits = first().forward->limits();
    return {.context_tokens = first().cache->context_tokens(),
            .max_tokens = limits.max_tokens,
            .max_logit_rows = limits.max_logit_rows,
            .max_nodes = first().cache->max_nodes(),
            .has_prompt_kernels = has_prompt_kernels,
            .n_layers = std::ssize(owners_),
            .kv = first().cache->shape()};
}

NodeId LayersTarget::add_node(NodeId parent) {
    const NodeId node = first().cache->add_node(parent);
    for (const LayerRank& rank : std::span(ranks_).subspan(1))
        CHECK(rank.cache->add_node(parent) == node, "ranks number their nodes otherwise");
    return node;
}

void LayersTarget::check_between_passes() const {
    CHECK(!in_pass_ && extended_from_ < 0, "the text changes {}",
          in_pass_ ? "in a pass" : "before an announced prompt");
}

// All of them or none: what a commit may lack is memory of the host, which is waited for first.
void LayersTarget::commit(std::span<const NodeId> path) {
    check_between_passes();
    for (const LayerRank& rank : ranks_) rank.cache->await_room(std::ssize(path));
    const std::int64_t before = n_committed();
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(ranks_[rank], kAtKv, [&] { ranks_[rank].cache->commit(ranks_[rank].forward->exec(), path); });
    } catch (...) {
        cut_back(before);
        throw;
    }
}

void LayersTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    const std::int64_t from = std::exchange(extended_from_, -1);
    for (const LayerRank& rank : ranks_) {
        if (from < 0) {
            rank.cache->forget();
        } else {
            rank.cache->rollback(from);
        }
    }
    if (std::exchange(failed_, false)) cut_back(n_committed());
}

void LayersTarget::truncate(std::int64_t n_tokens) {
    check_between_passes();
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(ranks_[rank], kAtKv, [&] { ranks_[rank].cache->truncate(ranks_[rank].forward->exec(), n_tokens); });
    } catch (...) {
        cut_back(n_tokens);
        throw;
    }
}

// After an error: every rank holds the same text again, the first n_tokens or as many of them as all have whole. A cut
// that fails costs the chunk that it ends in.
void LayersTarget::cut_back(std::int64_t n_tokens) noexcept {
    for (const LayerRank& rank : ranks_) n_tokens = std::min(n_tokens, rank.cache->keep_whole(rank.forward->exec()));
    for (std::size_t n_alike = 0; n_alike < ranks_.size();) {
        const LayerRank& rank = ranks_[n_alike++];
        try {
            rank.cache->truncate(rank.forward->exec(), n_tokens);
        } catch (...) {
            n_tokens = std::min(n_tokens, rank.cache->keep_whole(rank.forward->exec()));
            n_alike = 0;
        }
    }
}

void LayersTarget::set_prompt_rows(std::int64_t n_tokens) {
    for (const LayerRank& rank : ranks_) rank.cache->set_prompt_rows(n_tokens);
}

bool LayersTarget::takes_prompt(std::int64_t end) const {
    return arena_ != nullptr && PromptWave::fits(ranks_, *arena_, n_committed(), end);
}

void LayersTarget::extend(std::int64_t end) {
    check_between_passes();
    CHECK(takes_prompt(end), "a prompt from {} to {}", n_committed(), end);
    const std::int64_t from = n_committed();
    for (const LayerRank& rank : ranks_) rank.cache->reserve(end);
    extended_from_ = from;
}

void LayersTarget::begin(const TargetPass& pass) {
    CHECK(!in_pass_, "a pass is under way");
    CHECK(pass.prompt.empty() == (extended_from_ < 0), "a prompt of {} tokens, announced from {}", pass.prompt.size(),
          extended_from_);
    n_logits_ = 0;
    failed_ = true;  // until it is through
    if (pass.prompt.empty() ? run_pass(pass) : run_prompt(pass)) n_logits_ = std::ssize(pass.logit_tokens);
    in_pass_ = true;
}

// False where the pass was given up. Those that do not come to their end give up what they stream.
bool LayersTarget::run_pass(const TargetPass& pass) {
    struct Dropped {
        ~Dropped() {
            for (auto& running : passes) running.reset();
        }
        std::vector<std::optional<Forward::Steps>>& passes;
    } const dropped{passes_};
    const PassWatch unwatched;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_[rank], 0, [&] {
            passes_[rank].emplace(*ranks_[rank].forward, *ranks_[rank].cache, pass.tokens, pass.nodes,
                                  pass.logit_tokens, pass.phase);
        });
    if (!run_layers(pass.watch != nullptr ? *pass.watch : unwatched)) return false;
    take_logits(pass, passes_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_[rank], kAtLmHead, [&] { passes_[rank]->complete(); });
    return true;
}

bool LayersTarget::run_layers(const PassWatch& watch) {
    std::size_t at = owners_[0].rank;
    on_rank(ranks_[at], 0, [&] { passes_[at]->embed(); });
    for (std::int64_t layer = 0; layer < std::ssize(owners_); ++layer) {
        if (watch.cancelled()) return false;
        if (layer > 0 && watch.on_progress)
            watch.on_progress(static_cast<double>(layer) / static_cast<double>(owners_.size()));
        const LayerOwner& owner = owners_[layer];
        on_rank(ranks_[owner.rank], layer, [&] {
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
    PromptWave wave(ranks_, owners_, *arena_, extended_from_, pass);
    if (!wave.run(pass.watch != nullptr ? *pass.watch : unwatched)) return false;
    take_logits(pass, wave.steps());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_[rank], kAtKv, [&] { wave.steps()[rank]->end(); });
    for (auto& steps : wave.steps()) steps->complete();
    extended_from_ = -1;
    set_prompt_rows(n_committed());
    return true;
}

// The last layer's rows are everybody's.
template <typename Steps>
void LayersTarget::take_logits(const TargetPass& pass, std::vector<std::optional<Steps>>& steps) {
    const std::size_t last = owners_.back().rank;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_[rank], kAtLmHead, [&] {
            if (rank != last && !pass.logit_tokens.empty())
                hop(last, steps[last]->hidden(), rank, steps[rank]->hidden());
            parts_[rank] = steps[rank]->logits(nullptr);
        });
}

void LayersTarget::hop(std::size_t from, const ConstTensorView& rows, std::size_t to, const TensorView& out) {
    naming("rows", [&] { rows_->carry(ranks_[from].forward->exec(), rows, ranks_[to].forward->exec(), out); });
}

LogitRows LayersTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_[rank], kAtLmHead, [&] { ranks_[rank].forward->exec().stream.synchronize(); });
    failed_ = false;
    if (n_logits_ == 0) return {};
    const TensorView rows = matrix_view(logits_.get(), n_logits_, vocab_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const ConstTensorView part = parts_[rank].view();
        for (std::int64_t row = 0; row < n_logits_; ++row)
            std::copy_n(float_row(part, row), ranks_[rank].n_vocab,
                        reinterpret_cast<float*>(rows.row(row)) + ranks_[rank].first_vocab);
    }
    return {ConstTensorView(rows)};
}

void LayersTarget::read_rows(NodeId node, std::byte* out) {
    for (const LayerOwner& owner : owners_) {
        const LayerRank& rank = ranks_[owner.rank];
        rank.cache->read_rows(rank.forward->exec(), owner.layer, node, out);
        out += 2 * rank.cache->shape().scratch_row_bytes();
    }
    for (const LayerRank& rank : ranks_) rank.forward->exec().stream.synchronize();
}

void LayersTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    const LayerRank& rank = ranks_[owners_[layer].rank];
    failed_ = true;  // until it is there
    on_rank(ranks_[owners_[layer].rank], layer,
            [&] { rank.cache->read_chunk(rank.forward->exec(), owners_[layer].layer, chunk, out); });
    failed_ = false;
}

void LayersTarget::restore(std::int64_t n_tokens,
                           const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    try {
        for (const LayerRank& rank : ranks_)
            rank.cache->restore(
                rank.forward->exec(), n_tokens,
                [&](std::int64_t layer, std::int64_t chunk, std::byte* out) { read(rank.layers[layer], chunk, out); });
    } catch (...) {
        cut_back(0);
        throw;
    }
}

}  // namespace slipstream
