#include "runtime/ranks/pipelined_prefill.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "runtime/pass/error_context.h"
#include "runtime/pass/restored_prompt.h"

namespace slipstream {

namespace {

PromptRange range_of(std::int64_t begin, std::int64_t end) {
    return {.begin = begin, .end = end, .chunk_tokens = kPrefillChunkTokens};
}

}  // namespace

bool PipelinedPrefill::fits(std::span<const Rank> ranks, std::span<KvCache* const> caches, const PinnedArena& arena,
                            std::int64_t begin, std::int64_t end) {
    if (end <= begin || end % kPrefillChunkTokens != 0) return false;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        if (!ranks[rank].forward->ring_holds_prompt(*caches[rank], end, kPrefillChunkTokens)) return false;
    return ranks.front().forward->prompt_host_bytes(range_of(begin, end)) <= arena.limit_bytes() - arena.used_bytes();
}

PipelinedPrefill::PipelinedPrefill(std::span<const Rank> ranks, const std::vector<LayerOwner>& owners,
                                   std::span<KvCache* const> caches, PinnedArena& arena, std::int64_t begin,
                                   const RankPass& pass)
    : ranks_(ranks), owners_(&owners), checkpoints_(pass.pass->checkpoints), steps_(ranks.size()) {
    const TargetPass& asked = *pass.pass;
    PromptRange range = range_of(begin, begin + std::ssize(asked.prompt));
    n_prefill_chunks_ = range.n_prefill_chunks();
    begun_ = begun_prompt(range, asked.tokens, asked.logit_tokens, checkpoints_);
    n_done_ = begun_.n_steps();
    states_.emplace(arena, n_prefill_chunks_, ranks.front().forward->prompt_row_bytes());
    for (const std::int64_t n_layers : begun_.n_layers) rows_.push_back({.n_layers = n_layers});
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        sent_.push_back(exec(i).device.make_event());
        range.last_layer = owners.back().rank == i ? owners.back().layer : -1;
        const std::vector<std::int64_t>& layers = ranks[i].layers;
        range.first_layer = std::ranges::lower_bound(layers, begun_.n_layers.back()) - layers.begin();
        on_rank(*ranks[i].forward, layers.front(), [&] {
            steps_[i].emplace(*ranks[i].forward, *caches[i], range, asked.prompt, asked.tokens, asked.nodes,
                              asked.logit_tokens, pass.hooks_of(i));
        });
    }
    if (n_done_ > 0) restore();
}

// Waits for the streams of all ranks: hidden rows may still be in transfer to or from host memory.
PipelinedPrefill::~PipelinedPrefill() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        try {
            exec(i).stream.synchronize();
        } catch (...) {  // the pass reports the failure, or has done so
        }
    }
    for (std::int64_t chunk = 0; checkpoints_ != nullptr && chunk < n_prefill_chunks_; ++chunk)
        checkpoints_->await_read(chunk);
}

std::vector<PipelinedPrefill::Lane> PipelinedPrefill::lanes() const {
    std::vector<std::size_t> lane_of(ranks_.size(), 0);
    const auto is_card = [&](std::size_t i) { return !exec(i).device.shares_host_memory(); };
    std::size_t n_lanes = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
        if (is_card(i)) n_lanes = 1;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
        if (!is_card(i)) lane_of[i] = n_lanes++;
    std::vector<Lane> lanes(n_lanes);
    for (std::int64_t layer = 0; layer < std::ssize(*owners_); ++layer)
        lanes[lane_of[(*owners_)[layer].rank]].push_back(layer);
    return lanes;
}

bool PipelinedPrefill::run(const PassControl& control) {
    const std::vector<Lane> all = lanes();
    std::vector<std::thread> threads;
    threads.reserve(all.size());
    try {
        for (std::size_t i = 1; i < all.size(); ++i)
            threads.emplace_back([this, &lane = all[i], &control] { run_lane(lane, control, false); });
    } catch (const std::exception&) {  // std::system_error or std::bad_alloc
        stop(std::make_exception_ptr(
            OutOfBudget("the system starts no further thread for a device; name fewer by --devices")));
    }
    run_lane(all.front(), control, true);
    await_lanes(control);
    for (std::thread& thread : threads) thread.join();
    if (failure_ == nullptr && stopped_ && checkpoints_ != nullptr && n_done_ > begun_.n_steps()) save();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return !stopped_;
}

void PipelinedPrefill::run_lane(const Lane& lane, const PassControl& control, bool is_caller) {
    try {
        for (const std::int64_t layer : lane) {
            for (std::int64_t prefill_chunk = begun_.first_chunk_at(layer); prefill_chunk < n_prefill_chunks_;
                 ++prefill_chunk) {
                if (is_caller) {
                    report(control);
                } else if (control.cancelled()) {
                    stop(nullptr);
                }
                const std::optional<std::uint64_t> use =
                    await_rows(layer, prefill_chunk, is_caller ? &control : nullptr);
                if (!use) return;
                run_step(layer, prefill_chunk, *use);
            }
        }
    } catch (...) {
        stop(std::current_exception());
    }
}

// Reports progress, stops a cancelled prompt, and saves a prompt that is due to be saved. Call only on the caller's
// thread, between steps.
void PipelinedPrefill::report(const PassControl& control) {
    if (!control.report_progress(n_done(), n_steps())) stop(nullptr);
    if (checkpoints_ != nullptr && n_done() > begun_.n_steps() && checkpoints_->is_due()) pause_and_save();
}

// Waits until `is_ready` is true, with mutex_ locked, and returns true; false if the prompt was cancelled or failed. On
// the caller's thread (`caller` is not null) reports after each step of another thread.
template <typename IsReady>
bool PipelinedPrefill::await(std::unique_lock<std::mutex>& lock, const PassControl* caller, const IsReady& is_ready) {
    for (;;) {
        const std::int64_t n_seen = n_done_;
        changed_.wait(lock, [&] { return stopped_ || is_ready() || (caller != nullptr && n_done_ != n_seen); });
        if (stopped_) return false;
        if (is_ready()) return true;
        lock.unlock();
        report(*caller);
        lock.lock();
    }
}

// Waits until the rows of a chunk are ready for `layer`, counts the step as running, and returns the event use to wait
// for (0: none). Returns no value if the prompt was cancelled or failed on another thread.
std::optional<std::uint64_t> PipelinedPrefill::await_rows(std::int64_t layer, std::int64_t prefill_chunk,
                                                          const PassControl* caller) {
    std::unique_lock lock(mutex_);
    if (!await(lock, caller, [&] { return !paused_ && rows_[prefill_chunk].n_layers == layer; })) return std::nullopt;
    ++n_running_;
    return rows_[prefill_chunk].use;
}

// Waits for the steps of the other lanes. Call on the caller's thread, after its own lane.
void PipelinedPrefill::await_lanes(const PassControl& control) {
    try {
        std::unique_lock lock(mutex_);
        static_cast<void>(await(lock, &control, [&] { return n_done_ == n_steps(); }));
    } catch (...) {
        stop(std::current_exception());
    }
}

void PipelinedPrefill::run_step(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use) {
    const LayerOwner& owner = (*owners_)[layer];
    Forward::PromptSteps& steps = *steps_[owner.rank];
    std::uint64_t sent = 0;
    on_rank(*ranks_[owner.rank].forward, layer, [&] {
        if (prefill_chunk == begun_.first_chunk_at(layer)) steps.begin_layer(owner.layer, prefill_chunk);
        if (layer == 0) {
            steps.embed(prefill_chunk);
        } else {
            with_context("rows", [&] { take_rows(layer, prefill_chunk, use); });
        }
        steps.run_prefill_chunk(owner.layer, prefill_chunk);
        if (prefill_chunk + 1 == n_prefill_chunks_) steps.end_layer();
        if (layer + 1 < std::ssize(*owners_)) with_context("rows", [&] { sent = give_rows(layer, prefill_chunk); });
    });
    pass_on(layer, prefill_chunk, sent);
}

void PipelinedPrefill::take_rows(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use) {
    const std::size_t rank = (*owners_)[layer].rank;
    const TensorView rows = steps_[rank]->hidden(prefill_chunk);
    if (use > 0) exec(rank).stream.wait(*sent_[(*owners_)[layer - 1].rank], use);
    exec(rank).stream.copy(rows.data, states_->rows(prefill_chunk), rows.rows() * rows.row_stride_bytes);
}

// Copies the rows of a chunk to host memory and returns the use of sent_ that the next layer's GPU must wait for.
// Returns 0 if the rows are there already or the same stream orders the copies. Blocks the host if a CPU device is
// next.
std::uint64_t PipelinedPrefill::give_rows(std::int64_t layer, std::int64_t prefill_chunk) {
    const std::size_t rank = (*owners_)[layer].rank;
    const std::size_t next = (*owners_)[layer + 1].rank;
    const TensorView rows = steps_[rank]->hidden(prefill_chunk);
    if (checkpoints_ != nullptr) checkpoints_->await_read(prefill_chunk);
    exec(rank).stream.copy(states_->rows(prefill_chunk), rows.data, rows.rows() * rows.row_stride_bytes);
    if (rank == next || exec(rank).device.shares_host_memory()) return 0;
    if (!exec(next).device.shares_host_memory()) return exec(rank).stream.record(*sent_[rank]);
    exec(rank).stream.synchronize();
    return 0;
}

void PipelinedPrefill::pass_on(std::int64_t layer, std::int64_t prefill_chunk, std::uint64_t use) {
    {
        const std::scoped_lock lock(mutex_);
        rows_[prefill_chunk] = {layer + 1, use};
        ++n_done_;
        --n_running_;
    }
    changed_.notify_all();
}

void PipelinedPrefill::restore() {
    const SavedPrompt& saved = *checkpoints_->saved;
    restore_prompt(begun_, saved, *states_, std::ssize(*owners_), [&](std::int64_t layer) {
        return RestoredLayer{&steps_of(layer), (*owners_)[layer].layer};
    });
}

// Saves the prompt between two steps of all threads. The rows of a failed step would not be what they seem, so nothing
// is saved after a failure.
void PipelinedPrefill::pause_and_save() {
    {
        std::unique_lock lock(mutex_);
        paused_ = true;
        changed_.wait(lock, [&] { return stopped_ || n_running_ == 0; });
        if (stopped_) return;
    }
    save();
    {
        const std::scoped_lock lock(mutex_);
        paused_ = false;
    }
    changed_.notify_all();
}

// Saves the prompt. No step may run on any thread.
void PipelinedPrefill::save() {
    for (std::size_t i = 0; i < ranks_.size(); ++i)
        on_rank(*ranks_[i].forward, ranks_[i].layers.front(), [&] { exec(i).stream.synchronize(); });
    const PromptState now = state();
    checkpoints_->save(now,
                       {.hidden = [&](std::int64_t prefill_chunk) { return states_->rows(prefill_chunk); },
                        .kv = [&](std::int64_t layer, std::int64_t chunk,
                                  std::byte* out) { steps_of(layer).read_chunk((*owners_)[layer].layer, chunk, out); },
                        .rows_after =
                            [&](std::int64_t layer, std::byte* out) {
                                steps_of(layer).read_rows_after((*owners_)[layer].layer, now.n_after, out);
                            }});
}

PromptState PipelinedPrefill::state() const {
    const std::scoped_lock lock(mutex_);
    PromptState now = begun_;
    for (std::size_t i = 0; i < rows_.size(); ++i) now.n_layers[i] = rows_[i].n_layers;
    return now;
}

std::int64_t PipelinedPrefill::n_done() const {
    const std::scoped_lock lock(mutex_);
    return n_done_;
}

void PipelinedPrefill::stop(std::exception_ptr failure) {
    {
        const std::scoped_lock lock(mutex_);
        if (failure_ == nullptr && !stopped_) failure_ = std::move(failure);
        stopped_ = true;
    }
    changed_.notify_all();
}

}  // namespace slipstream
