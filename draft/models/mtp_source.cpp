#include "draft/models/mtp_source.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

std::int64_t scratch_rows_for(std::int64_t max_nodes) {
    return kHeadFedTokens + max_nodes;
}

ForwardLimits pass_limits(std::int64_t max_nodes) {
    return {.max_tokens = scratch_rows_for(max_nodes), .max_logit_rows = max_nodes};
}

}  // namespace

MtpSource::MtpSource(const ProposingHead& head, const SamplerOptions& sampling, const MtpOptions& options)
    : LogitSource({.n_ids = head.model().config().vocab,
                   .max_nodes = options.max_nodes,
                   .max_lead = kHeadFedTokens,
                   .by_level = true},
                  sampling, options.planned_seconds),
      pass_(head, pass_limits(options.max_nodes)),
      cache_(head.model().device(), head.model().kv_layouts(), options.n_slots + options.max_nodes,
             scratch_rows_for(options.max_nodes)),
      n_slots_(options.n_slots) {
    CHECK(options.n_slots >= 2, "{} slots", options.n_slots);
    path_.reserve(static_cast<std::size_t>(scratch_rows_for(options.max_nodes)));
}

std::size_t MtpSource::device_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t max_nodes,
                                    std::int64_t n_slots) {
    return HeadPass::device_bytes(config, pass_limits(max_nodes)) +
           KvCache::device_bytes(config.kv_layouts(kv_dtype), n_slots + max_nodes, scratch_rows_for(max_nodes));
}

std::size_t MtpSource::pinned_bytes(const ModelConfig& config, std::int64_t max_nodes) {
    return HeadPass::pinned_bytes(config, pass_limits(max_nodes));
}

WorkspaceShapes MtpSource::workspace_shapes(const ModelConfig& config, DType kv_dtype, std::int64_t max_nodes) {
    return HeadPass::workspace_shapes(config, kv_dtype, pass_limits(max_nodes));
}

void MtpSource::observe(const Observation& observation) {
    const bool continues = observation.n_new > 0 && observation.n_new < std::ssize(observation.text);
    if (!continues)
        take_back(observation.text);
    else if (!expanded().empty())
        commit_lead();
    cache_.forget();
    forget_tree();
}

// Commits the KV rows of the last tree's lead (the sequence's tokens in its first pass, node 0 included): they are of
// committed tokens, with the target's hidden states. Those of accepted draft tokens are not: their hidden states are
// the head's own, so they are computed again.
void MtpSource::commit_lead() {
    path_.clear();
    for (std::int32_t row = 0; row < n_lead(); ++row) path_.emplace_back(row);
    cache_.commit(pass_.exec(), path_);
}

// Called after the sequence was cut or replaced by `text`. A row has the token after its position, and the hidden state
// of its position depends on all tokens up to there.
void MtpSource::take_back(std::span<const TokenId> text) {
    const std::int64_t n_same = std::ranges::mismatch(text_, text).in1 - text_.begin();
    const std::int64_t end = std::min(n_same - 1, std::ssize(text) - 2);
    cache_.truncate(std::clamp<std::int64_t>(end - first_, 0, cache_.n_committed()));
    if (cache_.n_committed() == 0) first_ = 0;
    text_.resize(static_cast<std::size_t>(std::min(n_same, end_cached() + 1)));
}

// Brings the cache up to the position before the last one of `text`; the rest goes into the tree's first pass. Node 0
// is the last token of `text`, at the position before it.
void MtpSource::start_tree(std::span<const TokenId> text) {
    cache_.forget();
    const std::int64_t end = std::ssize(text) - 1;  // position after node 0
    CHECK(end_cached() < end && ready(text), "{} positions cached, a text of {}, hidden states up to {}", end_cached(),
          text.size(), tail_ != nullptr ? tail_->end() : 0);
    if (cache_.n_committed() == 0 || end_cached() < tail_->begin() || end - first_ > n_slots_) {
        cache_.truncate(0);
        first_ = std::max(tail_->begin(), end - std::max<std::int64_t>(n_slots_ / 2, 1));
    }
    const auto tokens_to = [&](std::int64_t to) { return text.subspan(end_cached() + 1, to - end_cached()); };
    while (end - end_cached() > kHeadFedTokens) {
        lead(tokens_to(std::min(end_cached() + kHeadFedTokens, end - 1)));
        static_cast<void>(run(pass_tokens_, pass_nodes_, {}, {}));
        commit_lead();
        pass_tokens_.clear();
        pass_nodes_.clear();
    }
    lead(tokens_to(end));
    text_.assign(text.begin(), text.end());
}

LogitRows MtpSource::run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                         std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) {
    std::int64_t n_of_target = 0;
    for (std::int64_t i = 0; i < std::ssize(nodes); ++i) {
        if (nodes[i].row >= n_lead()) continue;
        CHECK(n_of_target++ == i, "a token of the sequence after nodes of the tree");
        std::ranges::copy(tail_->row(end_cached() + nodes[i].row), pass_.input(i).begin());
    }
    return pass_.run(cache_, tokens, nodes, n_of_target, logit_tokens, needs);
}

}  // namespace slipstream::draft
