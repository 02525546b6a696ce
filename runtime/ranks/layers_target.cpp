#include "runtime/ranks/layers_target.h"

#include <algorithm>
#include <exception>
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

// What `call` throws is said of that device and layer; of what comes behind the last layer: the LM head; -1: its KV.
template <typename Call>
void LayersTarget::on_rank(std::size_t rank, std::int64_t layer, const Call& call) const {
    try {
        call();
    } catch (const std::exception& error) {
        const std::string place = layer < 0                      ? "KV"
                                  : layer == std::ssize(owners_) ? "the LM head"
                                                                 : fmt::format("layer {}", layer);
        throw RankFailed(fmt::format("{}, {}: {}", ranks_[rank].forward->exec().device.name(), place, error.what()));
    }
}

// All of them or none: what a commit may lack is memory of the host, which is waited for first.
void LayersTarget::commit(std::span<const NodeId> path) {
    CHECK(!in_pass_, "the text changes in a pass");
    for (const LayerRank& rank : ranks_) rank.cache->await_room(std::ssize(path));
    const std::int64_t before = n_committed();
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(rank, -1, [&] { ranks_[rank].cache->commit(ranks_[rank].forward->exec(), path); });
    } catch (...) {
        cut_back(before);
        throw;
    }
}

void LayersTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    for (const LayerRank& rank : ranks_) rank.cache->forget();
    if (std::exchange(failed_, false)) cut_back(n_committed());
}

void LayersTarget::truncate(std::int64_t n_tokens) {
    CHECK(!in_pass_, "the text changes in a pass");
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(rank, -1, [&] { ranks_[rank].cache->truncate(ranks_[rank].forward->exec(), n_tokens); });
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

void LayersTarget::extend(std::int64_t end) {
    CHECK(takes_prompt(end), "a prompt to {}", end);
}

void LayersTarget::begin(const TargetPass& pass) {
    CHECK(!in_pass_ && pass.prompt.empty(), "a pass {}", in_pass_ ? "is under way" : "with a prompt");
    n_logits_ = 0;
    failed_ = true;  // until it is through
    try {
        if (run_layers(pass)) n_logits_ = std::ssize(pass.logit_tokens);
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
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(rank, 0, [&] {
            passes_[rank].emplace(*ranks_[rank].forward, *ranks_[rank].cache, pass.tokens, pass.nodes,
                                  pass.logit_tokens, pass.phase);
        });
    at_ = 0;
    on_rank(0, 0, [&] { passes_[0]->embed(); });
    for (std::int64_t layer = 0; layer < std::ssize(owners_); ++layer) {
        if (watch.cancelled()) return false;
        if (layer > 0 && watch.on_progress)
            watch.on_progress(static_cast<double>(layer) / static_cast<double>(owners_.size()));
        run_layer(layer);
    }
    take_logits(pass);
    return true;
}

void LayersTarget::run_layer(std::int64_t layer) {
    const Owner& owner = owners_[layer];
    on_rank(owner.rank, layer, [&] {
        if (owner.rank != at_) hop(at_, owner.rank);
        passes_[owner.rank]->run_layer(owner.layer);
    });
    at_ = owner.rank;
}

// The last layer's rows are everybody's.
void LayersTarget::take_logits(const TargetPass& pass) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(rank, std::ssize(owners_), [&] {
            if (rank != at_ && !pass.logit_tokens.empty()) hop(at_, rank);
            parts_[rank] = passes_[rank]->logits(nullptr);
            passes_[rank]->complete();
        });
}

void LayersTarget::hop(std::size_t from, std::size_t to) {
    try {
        rows_->carry(ranks_[from].forward->exec(), passes_[from]->hidden(), ranks_[to].forward->exec(),
                     passes_[to]->hidden());
    } catch (const Error& error) {
        throw IoError(fmt::format("rows: {}", error.what()));
    }
}

LogitRows LayersTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(rank, std::ssize(owners_), [&] { ranks_[rank].forward->exec().stream.synchronize(); });
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
    for (const Owner& owner : owners_) {
        const LayerRank& rank = ranks_[owner.rank];
        rank.cache->read_rows(rank.forward->exec(), owner.layer, node, out);
        out += 2 * rank.cache->shape().scratch_row_bytes();
    }
    for (const LayerRank& rank : ranks_) rank.forward->exec().stream.synchronize();
}

void LayersTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    const LayerRank& rank = ranks_[owners_[layer].rank];
    failed_ = true;  // until it is there
    on_rank(owners_[layer].rank, layer,
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
