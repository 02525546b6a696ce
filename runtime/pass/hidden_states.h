// Hidden states of a prompt that passes through the model layer by layer: between two layers, the rows of all prefill
// chunks are in pinned host memory. On one device two of them are in device memory as well: one is computed while the
// next is copied in and the last is copied out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "offload/pinned_arena.h"

namespace slipstream {

/// The rows in host memory.
class HiddenStates {
public:
    /// `n_prefill_chunks` areas of `chunk_bytes` of `arena`, which outlives this. Throws OutOfBudget.
    HiddenStates(PinnedArena& arena, std::int64_t n_prefill_chunks, std::size_t chunk_bytes);
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

/// Two buffers of a device through which the rows pass.
class HiddenStateBuffers {
public:
    /// `states` has >= 2 prefill chunks, which pass through `n_layers` layers in turn. `buffers` are memory of the
    /// device, states.chunk_bytes() each. All outlive this.
    HiddenStateBuffers(Device& device, Stream& copy_in, const HiddenStates& states, std::array<std::byte*, 2> buffers,
                       std::int64_t n_layers);
    /// Waits for copies under way.
    ~HiddenStateBuffers();
    HiddenStateBuffers(const HiddenStateBuffers&) = delete;
    HiddenStateBuffers& operator=(const HiddenStateBuffers&) = delete;

    /// The buffer for the next step, (layer 0, prefill chunk 0), (layer 0, prefill chunk 1), ...: it holds what the
    /// layer before left there; in the first layer its contents are undefined. For work enqueued on `compute` from now
    /// on.
    [[nodiscard]] std::byte* begin(Stream& compute);
    /// The buffer holds this layer's rows of the prefill chunk, once `compute` gets here.
    void end(Stream& compute);

private:
    [[nodiscard]] std::int64_t layer_of(std::int64_t step) const { return step / states_->n_prefill_chunks(); }
    [[nodiscard]] std::int64_t prefill_chunk_of(std::int64_t step) const { return step % states_->n_prefill_chunks(); }
    void fetch(std::int64_t step);

    Stream* copy_in_;
    const HiddenStates* states_;
    std::array<std::byte*, 2> buffers_;
    std::int64_t n_layers_;
    std::unique_ptr<Stream> copy_out_;
    std::unique_ptr<Event> computed_, in_, out_;
    std::int64_t step_ = 0;
    std::array<std::uint64_t, 2> in_use_{};    // of the last fetch into each buffer
    std::array<std::uint64_t, 2> free_use_{};  // of the last copy out of each buffer
    std::array<std::uint64_t, 2> read_use_{};  // of the last computing in each buffer
    std::vector<std::uint64_t> out_use_;       // [n_prefill_chunks]: of the last copy out of each prefill chunk
};

}  // namespace slipstream
