#include "runtime/loop/device_target.h"

#include <utility>

#include "kernels/base/check.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

ForwardLimits forward_limits_for(std::int64_t budget) {
    return {.max_tokens = scratch_nodes_for(budget), .max_logit_rows = budget};
}

ForwardLimits check_forward_limits(std::int64_t max_tokens) {
    // Op by op: where passes are launched as graphs, that is checked as well.
    return {.max_tokens = max_tokens, .max_logit_rows = 1, .graphs = GraphUse::Never};
}

TargetShape DeviceTarget::shape() const {
    return {.context_tokens = cache_->context_tokens(),
            .max_tokens = forward_->limits().max_tokens,
            .max_logit_rows = forward_->limits().max_logit_rows,
            .max_nodes = cache_->max_nodes(),
            .has_prompt_kernels = forward_->exec().device.has_prompt_kernels(),
            .n_layers = cache_->n_layers(),
            .kv = cache_->shape()};
}

void DeviceTarget::check_between_passes() const {
    CHECK(!in_pass_ && extended_from_ < 0, "the text changes {}",
          in_pass_ ? "in a pass" : "before an announced prompt");
}

void DeviceTarget::commit(std::span<const NodeId> path) {
    check_between_passes();
    const std::int64_t before = n_committed();
    try {
        if (view_ != nullptr) view_->commit(forward_->exec(), path);
        at_layer(kKvStage, [&] { cache_->commit(forward_->exec(), path); });
    } catch (...) {
        roll_back_to(before);
        throw;
    }
}

// After an error: the first n_tokens, or as many of them as are whole.
void DeviceTarget::roll_back_to(std::int64_t n_tokens) noexcept {
    if (cache_->keep_intact_prefix(forward_->exec()) > n_tokens) {
        try {
            cache_->truncate(forward_->exec(), n_tokens);
        } catch (...) {  // it has cost the chunk that n_tokens ends in
            static_cast<void>(cache_->keep_intact_prefix(forward_->exec()));
        }
    }
    if (view_ != nullptr) view_->truncate(n_committed());
}

void DeviceTarget::truncate(std::int64_t n_tokens) {
    check_between_passes();
    try {
        at_layer(kKvStage, [&] { cache_->truncate(forward_->exec(), n_tokens); });
    } catch (...) {
        roll_back_to(n_tokens);
        throw;
    }
    if (view_ != nullptr) view_->truncate(n_tokens);
}

void DeviceTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    const std::int64_t from = std::exchange(extended_from_, -1);
    if (from < 0) {
        cache_->forget();
    } else {
        cache_->rollback(from);
    }
    if (std::exchange(failed_, false)) roll_back_to(n_committed());
}

bool DeviceTarget::takes_prompt(std::int64_t end) const {
    return forward_->runs_by_layer(*cache_, cache_->n_committed(), end, kPrefillChunkTokens);
}

void DeviceTarget::extend(std::int64_t end) {
    check_between_passes();
    CHECK(takes_prompt(end), "a prompt from {} to {}", cache_->n_committed(), end);
    const std::int64_t from = cache_->n_committed();
    cache_->reserve(end);
    extended_from_ = from;
}

void DeviceTarget::begin(const TargetPass& pass) {
    CHECK(!in_pass_, "a pass is under way");
    CHECK(pass.prompt.empty() == (extended_from_ < 0), "a prompt of {} tokens, announced from {}", pass.prompt.size(),
          extended_from_);
    failed_ = true;  // until it is through
    const PassControl no_control;
    const PassControl& control = pass.control != nullptr ? *pass.control : no_control;
    const LogitRequest* needs = pass.needs ? &*pass.needs : nullptr;
    // A pass without logits is a prefill chunk of text that is fed: more is to come before anybody guesses.
    PassHooks* hooks = nullptr;
    if (view_ != nullptr && !pass.logit_tokens.empty())
        hooks = view_->begin_pass(pass.logit_tokens.front(), !pass.prompt.empty() || !cache_->streams());
    if (pass.prompt.empty()) {
        logits_ =
            forward_->enqueue(*cache_, pass.tokens, pass.nodes, pass.logit_tokens, needs, control, pass.phase, hooks);
    } else {
        CHECK(needs != nullptr && pass.phase == Phase::Decode, "what goes along with a prompt");
        logits_ = forward_->run_by_layer(*cache_, extended_from_, kPrefillChunkTokens, pass.prompt, pass.tokens,
                                         pass.nodes, pass.logit_tokens, *needs, control, hooks);
        if (!logits_.empty()) {
            extended_from_ = -1;
            cache_->set_prompt_rows(cache_->n_committed());
        }
    }
    in_pass_ = true;
}

LogitRows DeviceTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    at_layer(kLmHeadStage, [&] { forward_->exec().stream.synchronize(); });
    if (view_ != nullptr) view_->end_pass(forward_->exec(), !logits_.empty());
    failed_ = false;
    return logits_;
}

void DeviceTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    failed_ = true;  // until it is there
    at_layer(layer, [&] { cache_->read_chunk(forward_->exec(), layer, chunk, out); });
    failed_ = false;
}

void DeviceTarget::read_rows(NodeId node, std::byte* out) {
    for (std::int64_t layer = 0; layer < cache_->n_layers(); ++layer) {
        cache_->read_rows(forward_->exec(), layer, node, out);
        out += 2 * cache_->shape().scratch_row_bytes();
    }
    forward_->exec().stream.synchronize();
}

}  // namespace slipstream
