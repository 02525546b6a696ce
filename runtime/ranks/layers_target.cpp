#include "runtime/ranks/layers_target.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"

namespace slipstream {

LayersTarget::LayersTarget(std::vector<LayerRank> ranks)
    : ranks_(std::move(ranks)), passes_(ranks_.size()), parts_(ranks_.size()) {
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

// All of them or none: what a commit may lack is memory of the host, which is waited for first.
void LayersTarget::commit(std::span<const NodeId> path) {
    CHECK(!in_pass_, "the text changes in a pass");
    for (const LayerRank& rank : ranks_) rank.cache->await_room(std::ssize(path));
    const std::int64_t before = n_committed();
    try {
        for (const LayerRank& rank : ranks_) rank.cache->commit(rank.forward->exec(), path);
    } catch (...) {
        cut_back(before);
        throw;
    }
}

void LayersTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    for (const LayerRank& rank : ranks_) rank.cache->forget();
}

void LayersTarget::truncate(std::int64_t n_tokens) {
    CHECK(!in_pass_, "the text changes in a pass");
    for (const LayerRank& rank : ranks_) rank.cache->truncate(rank.forward->exec(), n_tokens);
}

// After an error: every rank holds the same text again. A device that fails once more has told already.
void LayersTarget::cut_back(std::int64_t n_tokens) noexcept {
    for (const LayerRank& rank : ranks_) {
        try {
            rank.cache->forget();
            if (rank.cache->n_committed() > n_tokens) rank.cache->truncate(rank.forward->exec(), n_tokens);
        } catch (...) {
        }
    }
}

void LayersTarget::set_prompt_rows(std::int64_t n_tokens) {
    for (const LayerRank& rank : ranks_) rank.cache->set_prompt_rows(n_tokens);
}

void LayersTarget::extend(std::int64_t end) {
    CHECK(takes_prompt(end), "a prompt to {}", end);
}

void LayersTarget::begin(const TargetPass& pass) {
    CHECK(!in_pass_ && pass.prompt.empty(), "a pass {}", in_pass_ ? "is under way" : "with a prompt");
    n_logits_ = 0;
    try {
        if (run_layers(pass)) n_logits_ = std::ssize(pass.logit_tokens);
    } catch (const Error& error) {
        drop_passes();
        throw failed(error);
    } catch (...) {
        drop_passes();
        throw;
    }
    drop_passes();
    in_pass_ = true;
}

// Those that did not come to their end give up what they stream.
void LayersTarget::drop_passes() {
    for (auto& running : passes_) running.reset();
}

// False where the pass was given up.
bool LayersTarget::run_layers(const TargetPass& pass) {
    const PassWatch unwatched;
    const PassWatch& watch = pass.watch != nullptr ? *pass.watch : unwatched;
    layer_ = 0;
    for (at_ = 0; at_ < ranks_.size(); ++at_)
        passes_[at_].emplace(*ranks_[at_].forward, *ranks_[at_].cache, pass.tokens, pass.nodes, pass.logit_tokens,
                             pass.phase);
    at_ = 0;
    passes_[0]->embed();
    for (; layer_ < std::ssize(owners_); ++layer_) {
        if (watch.cancelled()) return false;
        if (layer_ > 0 && watch.on_progress)
            watch.on_progress(static_cast<double>(layer_) / static_cast<double>(owners_.size()));
        run_layer(layer_);
    }
    take_logits(pass);
    return true;
}

void LayersTarget::run_layer(std::int64_t layer) {
    const Owner& owner = owners_[layer];
    if (owner.rank != at_) hop(at_, owner.rank);
    at_ = owner.rank;
    passes_[at_]->run_layer(owner.layer);
}

// The last layer's rows are everybody's.
void LayersTarget::take_logits(const TargetPass& pass) {
    const std::size_t last = at_;
    for (at_ = 0; at_ < ranks_.size(); ++at_) {
        if (at_ != last && !pass.logit_tokens.empty()) hop(last, at_);
        parts_[at_] = passes_[at_]->logits(nullptr);
        passes_[at_]->complete();
    }
}

RankFailed LayersTarget::failed(const Error& error) const {
    return RankFailed(fmt::format(
        "{}, {}: {}", ranks_[at_].forward->exec().device.name(),
        layer_ == std::ssize(owners_) ? std::string("the LM head") : fmt::format("layer {}", layer_), error.what()));
}

void LayersTarget::hop(std::size_t from, std::size_t to) {
    rows_->carry(ranks_[from].forward->exec(), passes_[from]->hidden(), ranks_[to].forward->exec(),
                 passes_[to]->hidden());
}

LogitRows LayersTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    for (const LayerRank& rank : ranks_) rank.forward->exec().stream.synchronize();
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
    for (const Owner& owner : owners_) {
        const LayerRank& rank = ranks_[owner.rank];
        rank.cache->read_rows(rank.forward->exec(), owner.layer, node, out);
        out += 2 * rank.cache->shape().scratch_row_bytes();
    }
    for (const LayerRank& rank : ranks_) rank.forward->exec().stream.synchronize();
}

void LayersTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    const LayerRank& rank = ranks_[owners_[layer].rank];
    rank.cache->read_chunk(rank.forward->exec(), owners_[layer].layer, chunk, out);
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
