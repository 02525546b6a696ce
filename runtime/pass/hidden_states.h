// Hidden states of a prompt that goes through the model layer by layer: all prefill chunks in pinned host memory,
// two of them on the device, one computed while the next one comes and the last one goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "offload/pinned_arena.h"

namespace slipstream {

class HiddenStates {
public:
    /// `n_prefill_chunks` >= 2 prefill chunks of up to `chunk_bytes`, each of `n_layers` layers in turn. `buffers` are
    /// memory of the device, chunk_bytes each. All outlive this. Throws OutOfBudget.
    HiddenStates(Device& device, Stream& copy_in, PinnedArena& arena, std::array<std::byte*, 2> buffers,
                 std::int64_t n_prefill_chunks, std::size_t chunk_bytes, std::int64_t n_layers);
    ~HiddenStates();
    HiddenStates(const HiddenStates&) = delete;
    HiddenStates& operator=(const HiddenStates&) = delete;

    [[nodiscard]] static std::size_t host_bytes(std::int64_t n_prefill_chunks, std::size_t chunk_bytes);

    /// The buffer for the next (layer, prefill chunk), prefill chunks running faster: it holds what the layer before
    /// left there; for the first layer its contents are undefined. For work enqueued on `compute` from now on.
    [[nodiscard]] std::byte* begin(Stream& compute);
    /// The buffer holds what this layer makes of the prefill chunk, once `compute` gets here.
    void end(Stream& compute);

private:
    [[nodiscard]] std::int64_t layer_of(std::int64_t step) const { return step / n_prefill_chunks_; }
    [[nodiscard]] std::byte* home_of(std::int64_t step) const {
        return host_.data() + (step % n_prefill_chunks_) * chunk_bytes_;
    }
    void fetch(std::int64_t step);

    Stream* copy_in_;
    std::array<std::byte*, 2> buffers_;
    std::int64_t n_prefill_chunks_;
    std::size_t chunk_bytes_;
    std::int64_t n_layers_;
    PinnedBuffer host_;
    std::unique_ptr<Stream> copy_out_;
    std::unique_ptr<Event> computed_, in_, out_;
    std::int64_t step_ = 0;
    std::array<std::uint64_t, 2> in_use_{};    // of the last fetch into each buffer
    std::array<std::uint64_t, 2> free_use_{};  // of the last copy out of each buffer
    std::array<std::uint64_t, 2> read_use_{};  // of the last computing in each buffer
    std::vector<std::uint64_t> out_use_;       // [n_prefill_chunks]: of the last copy out of each prefill chunk
};

}  // namespace slipstream
