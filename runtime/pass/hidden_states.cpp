#include "runtime/pass/hidden_states.h"

#include "kernels/base/check.h"

namespace slipstream {

HiddenStates::HiddenStates(PinnedArena& arena, std::int64_t n_prefill_chunks, std::size_t chunk_bytes)
    : n_prefill_chunks_(n_prefill_chunks),
      chunk_bytes_(chunk_bytes),
      host_(arena.allocate(host_bytes(n_prefill_chunks, chunk_bytes), "the hidden states of the prompt")) {}

HiddenStateBuffers::HiddenStateBuffers(Device& device, Stream& copy_in, const HiddenStates& states,
                                       std::array<std::byte*, 2> buffers, std::span<const PromptStep> steps,
                                       std::int64_t n_layers)
    : copy_in_(&copy_in),
      states_(&states),
      buffers_(buffers),
      steps_(steps),
      n_layers_(n_layers),
      copy_out_(device.make_stream(StreamKind::CopyOut)),
      computed_(device.make_event()),
      in_(device.make_event()),
      out_(device.make_event()),
      out_use_(states.n_prefill_chunks(), 0) {
    CHECK(states.n_prefill_chunks() >= 2 && n_layers >= 1);
}

HiddenStateBuffers::~HiddenStateBuffers() {
    for (Stream* stream : {copy_in_, copy_out_.get()}) {
        try {
            stream->synchronize();
        } catch (...) {  // the pass that waited for the copy has reported its failure
        }
    }
}

// Returns the buffer of the step that begins, and starts the copy of the next step's prefill chunk, unless it is the
// same prefill chunk. That copy uses the buffer of the step before, whose computing and (except in the last layer) copy
// out are enqueued; its rows in host memory were written by a copy at least two steps back.
std::byte* HiddenStateBuffers::begin(Stream& compute) {
    const std::size_t buffer = step_ % 2;
    if (steps_[step_].layer == 0) {
        if (free_use_[buffer] > 0) compute.wait(*out_, free_use_[buffer]);
    } else {
        if (n_fetched_ <= step_) fetch(step_);
        compute.wait(*in_, in_use_[buffer]);
    }
    if (step_ + 1 < steps_.size() && steps_[step_ + 1].layer > 0 &&
        steps_[step_ + 1].prefill_chunk != steps_[step_].prefill_chunk)
        fetch(step_ + 1);
    return buffers_[buffer];
}

void HiddenStateBuffers::fetch(std::size_t step) {
    const std::size_t buffer = step % 2;
    const std::int64_t prefill_chunk = steps_[step].prefill_chunk;
    if (free_use_[buffer] > 0) copy_in_->wait(*out_, free_use_[buffer]);
    if (read_use_[buffer] > 0) copy_in_->wait(*computed_, read_use_[buffer]);
    if (out_use_[prefill_chunk] > 0) copy_in_->wait(*out_, out_use_[prefill_chunk]);
    copy_in_->copy(buffers_[buffer], states_->rows(prefill_chunk), states_->chunk_bytes());
    in_use_[buffer] = copy_in_->record(*in_);
    n_fetched_ = step + 1;
}

void HiddenStateBuffers::end(Stream& compute) {
    const std::size_t buffer = step_ % 2;
    const auto [layer, prefill_chunk] = steps_[step_];
    read_use_[buffer] = compute.record(*computed_);
    if (layer + 1 < n_layers_) {
        copy_out_->wait(*computed_, read_use_[buffer]);
        copy_out_->copy(states_->rows(prefill_chunk), buffers_[buffer], states_->chunk_bytes());
        free_use_[buffer] = copy_out_->record(*out_);
        out_use_[prefill_chunk] = free_use_[buffer];
    }
    ++step_;
}

}  // namespace slipstream
