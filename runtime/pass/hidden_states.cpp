#include "runtime/pass/hidden_states.h"

#include "kernels/base/check.h"

namespace slipstream {

HiddenStates::HiddenStates(Device& device, Stream& copy_in, PinnedArena& arena, std::array<std::byte*, 2> buffers,
                           std::int64_t n_prefill_chunks, std::size_t chunk_bytes, std::int64_t n_layers)
    : copy_in_(&copy_in),
      buffers_(buffers),
      n_prefill_chunks_(n_prefill_chunks),
      chunk_bytes_(chunk_bytes),
      n_layers_(n_layers),
      host_(arena.allocate(host_bytes(n_prefill_chunks, chunk_bytes), "the hidden states of the prompt")),
      copy_out_(device.make_stream(StreamKind::CopyOut)),
      computed_(device.make_event()),
      in_(device.make_event()),
      out_(device.make_event()),
      out_use_(n_prefill_chunks, 0) {
    CHECK(n_prefill_chunks >= 2 && n_layers >= 1);
}

// Copies under way end before the memory goes; one that failed has been told by whoever waited for it.
HiddenStates::~HiddenStates() {
    for (Stream* stream : {copy_in_, copy_out_.get()}) {
        try {
            stream->synchronize();
        } catch (...) {
        }
    }
}

std::size_t HiddenStates::host_bytes(std::int64_t n_prefill_chunks, std::size_t chunk_bytes) {
    return n_prefill_chunks * chunk_bytes;
}

// The next step's prefill chunk comes while this one is computed. Its buffer is that of the step before, whose
// computing and, but in the last layer, copy out are enqueued; its home was written by a copy at least two steps back.
std::byte* HiddenStates::begin(Stream& compute) {
    const auto buffer = static_cast<std::size_t>(step_ % 2);
    if (layer_of(step_) == 0) {
        if (free_use_[buffer] > 0) compute.wait(*out_, free_use_[buffer]);
    } else {
        if (in_use_[buffer] == 0) fetch(step_);
        compute.wait(*in_, in_use_[buffer]);
    }
    if (step_ + 1 < n_layers_ * n_prefill_chunks_ && layer_of(step_ + 1) > 0) fetch(step_ + 1);
    return buffers_[buffer];
}

void HiddenStates::fetch(std::int64_t step) {
    const auto buffer = static_cast<std::size_t>(step % 2);
    if (free_use_[buffer] > 0) copy_in_->wait(*out_, free_use_[buffer]);
    if (read_use_[buffer] > 0) copy_in_->wait(*computed_, read_use_[buffer]);
    copy_in_->wait(*out_, out_use_[step % n_prefill_chunks_]);
    copy_in_->copy(buffers_[buffer], home_of(step), chunk_bytes_);
    in_use_[buffer] = copy_in_->record(*in_);
}

void HiddenStates::end(Stream& compute) {
    const auto buffer = static_cast<std::size_t>(step_ % 2);
    read_use_[buffer] = compute.record(*computed_);
    if (layer_of(step_) + 1 < n_layers_) {
        copy_out_->wait(*computed_, read_use_[buffer]);
        copy_out_->copy(home_of(step_), buffers_[buffer], chunk_bytes_);
        free_use_[buffer] = copy_out_->record(*out_);
        out_use_[step_ % n_prefill_chunks_] = free_use_[buffer];
    }
    ++step_;
}

}  // namespace slipstream
