// Prompts layer by layer: the part of Forward that sends all prefill chunks through one layer after the other.
#include <algorithm>

#include "runtime/pass/error_context.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/hidden_states.h"
#include "runtime/pass/restored_prompt.h"

namespace slipstream {

bool Forward::ring_holds_prompt(KvCache& cache, std::int64_t end, std::int64_t chunk_tokens) const {
    return !PassReads{model_, &cache}.streams() ||
           (streams_ != nullptr && PromptStream::fits(*streams_, *model_, cache, end, chunk_tokens));
}

std::size_t Forward::prompt_host_bytes(const PromptRange& range) const {
    return HiddenStates::host_bytes(range.n_prefill_chunks(), prompt_row_bytes());
}

bool Forward::runs_by_layer(KvCache& cache, std::int64_t begin, std::int64_t end, std::int64_t chunk_tokens) const {
    if (streams_ == nullptr || !PassReads{model_, &cache}.streams() || end <= begin || end % chunk_tokens != 0 ||
        !ring_holds_prompt(cache, end, chunk_tokens))
        return false;
    return prompt_host_bytes(prompt_range(begin, end, chunk_tokens)) <=
           streams_->arena().limit_bytes() - streams_->arena().used_bytes();
}

LogitRows Forward::run_by_layer(KvCache& cache, std::int64_t begin, std::int64_t chunk_tokens,
                                std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                                std::span<const NodeId> nodes, std::span<const std::int32_t> logit_tokens,
                                const LogitRequest& needs, const PassControl& control, PassHooks* hooks,
                                const PromptCheckpoints* checkpoints) {
    CHECK(streams_ != nullptr);
    PromptRange range = prompt_range(begin, begin + std::ssize(prompt), chunk_tokens);
    const PromptState state = begun_prompt(range, tokens, logit_tokens, checkpoints);
    range.first_layer = state.n_layers.back();
    PromptSteps steps =
        at_layer(0, [&] { return PromptSteps(*this, cache, range, prompt, tokens, nodes, logit_tokens, hooks); });
    if (!feed_layers(steps, state, control, checkpoints)) return {};
    const LogitRows logits = at_layer(kLmHeadStage, [&] { return steps.logits(&needs); });
    at_layer(kKvStage, [&] { steps.end(); });
    steps.complete();
    stream_->synchronize();
    return logits;
}

// Runs all prefill chunks through a layer, and the pass after them, then the next layer. Returns false if cancelled.
bool Forward::feed_layers(PromptSteps& steps, PromptState state, const PassControl& control,
                          const PromptCheckpoints* checkpoints) {
    const std::int64_t n_prefill_chunks = steps.range_.n_prefill_chunks();
    const std::int64_t most_tokens = std::max(steps.range_.chunk_tokens, steps.rows_after_.n());
    const HiddenStates states(streams_->arena(), n_prefill_chunks,
                              most_tokens * row_bytes(DType::F32, model_->config().d_model));
    // The writer of a checkpoint may still read the hidden states when the prompt ends in any way.
    struct ReadToTheEnd {
        ~ReadToTheEnd() {
            for (std::int64_t chunk = 0; checkpoints != nullptr && chunk < n_prefill_chunks; ++chunk)
                checkpoints->await_read(chunk);
        }
        const PromptCheckpoints* checkpoints;
        std::int64_t n_prefill_chunks;
    } const read_to_the_end{checkpoints, n_prefill_chunks};
    std::vector<PromptStep> order;
    for (std::int64_t layer = state.n_layers.back(); layer < n_layers(); ++layer)
        for (std::int64_t chunk = state.first_chunk_at(layer); chunk < n_prefill_chunks; ++chunk)
            order.push_back({layer, chunk});
    const std::int64_t n_before = state.n_steps();
    if (n_before > 0) {
        restore_prompt(state, *checkpoints->saved, states, n_layers(), [&](std::int64_t layer) {
            return RestoredLayer{&steps, layer};
        });
        stream_->synchronize();
    }
    HiddenStateBuffers buffers(model_->device(), streams_->copy_in(), states,
                               {pass_.activations().memory(Activation::Hidden).data(),
                                pass_.activations().memory(Activation::NextHidden).data()},
                               order, n_layers());
    const auto save = [&] {
        stream_->synchronize();
        buffers.synchronize();
        checkpoints->save(
            state,
            {.hidden = [&](std::int64_t chunk) { return states.rows(chunk); },
             .kv = [&](std::int64_t layer, std::int64_t chunk, std::byte* out) { steps.read_chunk(layer, chunk, out); },
             .rows_after = [&](std::int64_t layer,
                               std::byte* out) { steps.read_rows_after(layer, state.n_after, out); }});
    };
    for (std::size_t step = 0; step < order.size(); ++step) {
        const auto [layer, prefill_chunk] = order[step];
        const bool goes_on =
            control.report_progress(n_before + static_cast<std::int64_t>(step), n_layers() * n_prefill_chunks);
        if (checkpoints != nullptr && step > 0 && (!goes_on || checkpoints->is_due())) at_layer(layer, save);
        if (!goes_on) return false;
        at_layer(layer, [&, layer = layer, prefill_chunk = prefill_chunk] {
            if (step == 0 || order[step - 1].layer != layer) steps.begin_layer(layer, prefill_chunk);
            pass_.activations().use_hidden(with_context("rows", [&] { return buffers.begin(*stream_); }));
            if (layer == 0) steps.embed(prefill_chunk);
            steps.run_prefill_chunk(layer, prefill_chunk);
            if (checkpoints != nullptr) checkpoints->await_read(prefill_chunk);
            buffers.end(*stream_);
            if (prefill_chunk + 1 == n_prefill_chunks) steps.end_layer();
        });
        ++state.n_layers[prefill_chunk];
    }
    return true;
}

Forward::PromptSteps::PromptSteps(Forward& forward, KvCache& cache, const PromptRange& range,
                                  std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                                  std::span<const NodeId> nodes, std::span<const std::int32_t> logit_tokens,
                                  PassHooks* hooks)
    : forward_(&forward),
      cache_(&cache),
      range_(range),
      prompt_(prompt),
      rows_after_{&cache, tokens, nodes, range.end, Phase::Decode, hooks},
      logit_tokens_(logit_tokens) {
    const PassReads reads{forward.model_, &cache};
    forward.check_pass(reads, tokens, nodes, logit_tokens);
    CHECK(!prompt.empty() && range.begin + std::ssize(prompt) == range.end && cache.n_committed() == range.end &&
              range.end % range.chunk_tokens == 0 && range.chunk_tokens <= forward.limits_.max_tokens &&
              range.chunk_tokens <= cache.max_nodes(),
          "a prompt of {} tokens from {} to {}", prompt.size(), range.begin, range.end);
    forward.prefill_rows_.clear();
    for (std::int32_t row = 0; row < range.chunk_tokens; ++row) forward.prefill_rows_.emplace_back(row);
    forward.pass_.activations().use_hidden(forward.pass_.activations().memory(Activation::Hidden).data());
    cache.begin_reserved_rows();
    if (reads.streams()) stream_.emplace(*forward.streams_, *forward.model_, cache, forward.exec(), range);
    forward.pass_.read_from(stream_ ? &*stream_ : nullptr, stream_ ? stream_->kv() : nullptr);
}

PassRows Forward::PromptSteps::rows_of(std::int64_t prefill_chunk) const {
    if (prefill_chunk + 1 == range_.n_prefill_chunks()) return rows_after_;
    const std::int64_t number = range_.begin / range_.chunk_tokens + prefill_chunk;
    const std::int64_t first = std::max(range_.begin, number * range_.chunk_tokens);
    const auto n = static_cast<std::size_t>((number + 1) * range_.chunk_tokens - first);
    return {cache_,
            prompt_.subspan(first - range_.begin, n),
            std::span(forward_->prefill_rows_).first(n),
            first,
            Phase::Prefill,
            rows_after_.hooks};
}

void Forward::PromptSteps::begin_layer(std::int64_t layer, std::int64_t first_chunk) {
    if (stream_) stream_->begin_layer(layer, range_.begin_of(first_chunk));
}

// Runs a prefill chunk, whose rows are committed at once, or the pass after the prompt through a layer.
void Forward::PromptSteps::run_prefill_chunk(std::int64_t layer, std::int64_t prefill_chunk) {
    const PassRows rows = rows_of(prefill_chunk);
    const bool is_prompt = rows.phase == Phase::Prefill;
    if (stream_)
        stream_->begin_prefill_chunk(rows.n_committed, is_prompt ? rows.n_committed + rows.n() : rows.n_committed);
    if (is_prompt) {
        forward_->pass_.trace_chain(*cache_, rows.n_committed, rows.n());
    } else {
        forward_->pass_.trace(*cache_, rows.nodes);
    }
    forward_->pass_.rope_angles(rows.n());
    forward_->pass_.run_layer(layer, rows,
                              is_prompt && layer == range_.last_layer ? LayerPart::KvRows : LayerPart::Whole);
    if (is_prompt && forward_->model_->config().layers[layer].has_attention())
        kv_commit(forward_->exec(),
                  {.shape = cache_->layout(layer),
                   .scratch_k = cache_->scratch_k(layer),
                   .scratch_v = cache_->scratch_v(layer),
                   .scratch_rows = scratch_rows(rows.nodes),
                   .n_rows = rows.n(),
                   .first_position = rows.n_committed,
                   .chunks = forward_->pass_.kv_stream() != nullptr ? forward_->pass_.kv_stream()->chunks(layer)
                                                                    : cache_->chunks(layer)});
    if (stream_) stream_->end_prefill_chunk();
}

void Forward::PromptSteps::end_layer() {
    if (stream_) stream_->end_layer();
}

LogitRows Forward::PromptSteps::logits(const LogitRequest* needs) {
    forward_->pass_.compute_logits(rows_after_.n(), logit_tokens_);
    return forward_->hand_over(logit_tokens_, needs);
}

void Forward::PromptSteps::end() {
    if (stream_) stream_->end();
}

void Forward::PromptSteps::complete() {
    if (stream_) {
        stream_->complete();
    } else {
        cache_->publish(0);
    }
}

void Forward::PromptSteps::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) const {
    const std::size_t n_bytes = cache_->layout(layer).chunk_bytes();
    Stream& compute = *forward_->stream_;
    const std::byte* from = stream_ ? stream_->filled_chunk(layer, chunk) : nullptr;
    if (chunk < cache_->resident_chunks(layer)) from = cache_->chunks(layer)[chunk];
    if (from == nullptr) {
        cache_->host()->wait_for_flushes(compute);
        std::copy_n(cache_->host()->chunk(layer, chunk), n_bytes, out);
        return;
    }
    compute.copy(out, from, n_bytes);
    compute.synchronize();
}

// Copies the K rows, then the V rows, of the tokens after the prompt to `out`. They are the first scratch rows, since
// there are no nodes when a prompt is announced.
void Forward::PromptSteps::read_rows_after(std::int64_t layer, std::int64_t n, std::byte* out) const {
    const std::size_t half = rows_bytes(layer, n) / 2;
    Stream& compute = *forward_->stream_;
    compute.copy(out, cache_->scratch_k(layer), half);
    compute.copy(out + half, cache_->scratch_v(layer), half);
    compute.synchronize();
}

void Forward::PromptSteps::restore_chunk(std::int64_t layer, std::int64_t chunk,
                                         const std::function<void(std::byte*)>& fill) {
    cache_->restore_chunk(forward_->exec(), range_.end, layer, chunk, fill);
}

void Forward::PromptSteps::restore_rows_after(std::int64_t layer, std::int64_t n, const std::byte* rows) {
    const std::size_t half = rows_bytes(layer, n) / 2;
    Stream& compute = *forward_->stream_;
    compute.copy(cache_->scratch_k(layer), rows, half);
    compute.copy(cache_->scratch_v(layer), rows + half, half);
    compute.synchronize();
}

}  // namespace slipstream
