// Hidden states of a prompt that passes through the model layer by layer. Between two layers, the rows of all prefill
// chunks are in pinned host memory. On one device, two prefill chunks are in device memory, too: while one is computed,
// the next one is copied in and the previous one is copied out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "offload/pinned_arena.h"

namespace slipstream {

/// Hidden states of all prefill chunks of a prompt, in pinned host memory.
class HiddenStates {
public:
    /// Allocates `n_prefill_chunks` areas of `chunk_bytes` from `arena`, which must outlive this object. Throws
    /// OutOfBudget.
    HiddenStates(PinnedArena& arena, std::int64_t n_prefill_chunks, std::size_t chunk_bytes);
    /// Returns the bytes of host memory that the constructor allocates.
    [[nodiscard]] static std::size_t host_bytes(std::int64_t n_prefill_chunks, std::size_t chunk_bytes) {
        return static_cast<std::size_t>(n_prefill_chunks) * chunk_bytes;
    }

    [[nodiscard]] std::int64_t n_prefill_chunks() const { return n_prefill_chunks_; }
    [[nodiscard]] std::size_t chunk_bytes() const { return chunk_bytes_; }
    [[nodiscard]] std::byte* rows(std::int64_t prefill_chunk) const {
        return host_.data() + static_cast<std::size_t>(prefill_chunk) * chunk_bytes_;
    }

private:
    std::int64_t n_prefill_chunks_;
    std::size_t chunk_bytes_;
    PinnedBuffer host_;
};

/// A step of a prompt: one prefill chunk goes through one layer.
struct PromptStep {
    std::int64_t layer = 0;
    std::int64_t prefill_chunk = 0;
};

/// Two buffers of a device through which the rows of prefill chunks pass, layer by layer.
class HiddenStateBuffers {
public:
    /// `states` has at least 2 prefill chunks (CHECKed), which take `steps` through the model of `n_layers` layers: a
    /// prefill chunk takes its layers in order, the first of them layer 0 or the layer whose input is in `states`.
    /// `buffers` are device memory of states.chunk_bytes() each. Copies to the device use `copy_in`. All arguments must
    /// outlive this object.
    HiddenStateBuffers(Device& device, Stream& copy_in, const HiddenStates& states, std::array<std::byte*, 2> buffers,
                       std::span<const PromptStep> steps, std::int64_t n_layers);
    /// Waits for copies in progress. Their errors are lost.
    ~HiddenStateBuffers();
    HiddenStateBuffers(const HiddenStateBuffers&) = delete;
    HiddenStateBuffers& operator=(const HiddenStateBuffers&) = delete;

    /// Returns the buffer for the next step, for work enqueued on `compute` from now on, and starts the copy for the
    /// step after it. The buffer holds the prefill chunk's rows after the previous layer; in the first layer its
    /// contents are undefined.
    [[nodiscard]] std::byte* begin(Stream& compute);
    /// Call when the work is enqueued after which the buffer holds the layer's result. Copies it to the host, except in
    /// the last layer.
    void end(Stream& compute);
    /// Waits until the rows of all steps that have ended are in host memory. `compute` must be synchronized.
    void synchronize() { copy_out_->synchronize(); }

private:
    void fetch(std::size_t step);

    Stream* copy_in_;
    const HiddenStates* states_;
    std::array<std::byte*, 2> buffers_;
    std::span<const PromptStep> steps_;
    std::int64_t n_layers_;
    std::unique_ptr<Stream> copy_out_;
    std::unique_ptr<Event> computed_, in_, out_;
    std::size_t step_ = 0;                     // the step that begins next
    std::size_t n_fetched_ = 0;                // steps before this one are fetched, or need no copy
    std::array<std::uint64_t, 2> in_use_{};    // use of in_ of the last copy into each buffer; 0: none
    std::array<std::uint64_t, 2> free_use_{};  // use of out_ of the last copy out of each buffer; 0: none
    std::array<std::uint64_t, 2> read_use_{};  // use of computed_ of the last step in each buffer; 0: none
    std::vector<std::uint64_t> out_use_;  // [n_prefill_chunks]: use of out_ of the last copy of its rows to the host
};

}  // namespace slipstream
