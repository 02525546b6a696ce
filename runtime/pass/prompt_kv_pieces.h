// KV of a prompt that goes layer by layer where the ring does not hold the whole KV of a layer: each piece of the
// prompt reads the layer's earlier chunks again, from the host, through a small ring of their own, and leaves the
// chunks that it fills in slots that are flushed behind it (design section 5). So weights still cross the link once a
// prompt, and KV as often as pieces follow it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/indexed.h"
#include "offload/transfer_ring.h"
#include "runtime/pass/pass_stream.h"

namespace slipstream {

class PromptKvPieces final : public KvStream {
public:
    /// Device memory that pieces of `piece_tokens` (a multiple of 256) need at least.
    [[nodiscard]] static std::size_t least_bytes(std::size_t chunk_bytes, std::int64_t piece_tokens);

    /// Works in `area`, memory of the device, 64-byte aligned. The cache was promised positions from `begin` up to
    /// `end`. Copies go over pass.copy_in(), and are counted in its figures.
    PromptKvPieces(PassStream& pass, ExecRef exec, std::span<std::byte> area, std::int64_t piece_tokens,
                   std::int64_t begin, std::int64_t end);

    /// Rows of `layer` at positions [first, end) follow; first == end for a pass, whose rows stay in scratch. From here
    /// on the cache's chunks that these rows will fill can be written.
    void begin_piece(std::int64_t layer, std::int64_t first, std::int64_t end);
    /// Those rows are in their chunks.
    void end_piece();
    /// Use of the cache's flushed() when all that was filled so far is on the host; 0: nothing was filled.
    [[nodiscard]] std::uint64_t last_flush() const { return last_flush_; }
    /// Gives up what is on its way.
    void drop();

    [[nodiscard]] std::int64_t host_chunks() const override { return n_host_; }
    [[nodiscard]] std::optional<KvPiece> acquire_kv(std::int64_t layer, Stream& compute) override;
    void release_kv(Stream& compute) override;

private:
    [[nodiscard]] std::byte* slot(std::int64_t chunk) const;
    void copy_ahead();

    PassStream* pass_;
    KvCache* cache_;
    ExecRef exec_;
    std::int64_t piece_chunks_;
    std::int64_t first_new_chunk_;
    std::int64_t end_chunk_;
    std::int64_t chunks_per_copy_;
    std::byte* slots_;  // [2][piece_chunks]: of the running piece, of the one before, which is flushed
    std::unique_ptr<TransferRing> ring_;
    std::array<std::uint64_t, 2> slots_use_{};  // of flushed(), when the slots are on the host
    Indexed<std::uint64_t> new_use_;            // the same of each chunk of this layer from first_new_chunk_ on
    std::uint64_t last_flush_ = 0;

    // The running piece.
    std::int64_t layer_ = 0;
    std::size_t parity_ = 0;
    KvPiece own_{};            // chunks that it fills
    std::int64_t n_host_ = 0;  // chunks below come from the host, where they stream
    std::int64_t next_ = 0;    // chunk to copy next
    std::vector<KvPiece> copied_;
    std::size_t at_ = 0;             // of copied_
    std::int64_t first_number_ = 0;  // in the ring, of copied_[0]
};

}  // namespace slipstream
