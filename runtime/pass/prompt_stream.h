// A prompt through a streamed model layer by layer: all its pieces go through a layer while that layer's weights lie in
// the ring, so each weight crosses the link once a prompt (design section 5). Where KV streams, the whole KV of the
// layer lies in a part of the ring meanwhile: what the host held before comes over once, what the prompt makes is
// flushed behind it. Where that part is too small for a layer's KV it comes in pieces, again for each piece of the
// prompt (runtime/pass/prompt_kv_pieces.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/base/indexed.h"
#include "offload/pass_feed.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_kv_pieces.h"

namespace slipstream {

class PromptStream final : public WeightStream, public ProgramSource {
public:
    /// Whether the ring holds what a prompt up to position `end` (a multiple of 512) needs at once.
    [[nodiscard]] static bool fits(const PassStream& pass, std::int64_t end, std::int64_t piece_tokens);

    /// Borrows the ring of `pass`. The cache has `begin` positions committed and was promised `end`.
    PromptStream(PassStream& pass, ExecRef exec, std::int64_t begin, std::int64_t end, std::int64_t piece_tokens);
    /// Gives the ring back; what was not completed leaves the cache's tail as it was before.
    ~PromptStream() override;
    PromptStream(const PromptStream&) = delete;
    PromptStream& operator=(const PromptStream&) = delete;

    /// Layers in order. From here on the cache's chunks of this layer can be read and written up to `end`.
    void begin_layer(std::int64_t layer);
    /// Positions [first, end) of this layer come next; first == end for the pass behind the prompt: then releases are
    /// the last ones of the layer.
    void begin_piece(std::int64_t first, std::int64_t end);
    /// Their rows are in the cache.
    void end_piece();
    /// Brings the layer's KV in pieces; null where all of it lies on the device.
    [[nodiscard]] KvStream* kv_pieces() { return pieces_.get(); }
    [[nodiscard]] const std::byte* acquire_item(std::int32_t item, Stream& compute) override;
    void release_item(std::int32_t item, Stream& compute) override;
    void end_layer(std::int64_t layer);
    /// All layers are through, and the LM head: the cache keeps what was promised.
    void complete();

    void next_program(std::vector<TransferItem>& program) override;

private:
    [[nodiscard]] bool kv_streams(std::int64_t layer) const;
    [[nodiscard]] std::byte* area_chunk(std::int64_t layer, std::int64_t chunk) const;
    void load_layer(std::int64_t layer);

    PassStream* pass_;
    KvCache* cache_;
    ExecRef exec_;
    std::int64_t first_new_chunk_;  // the one that `begin` lies in
    bool fills_partial_;            // ... where it lies inside
    std::int64_t end_chunk_;
    std::int64_t host_chunks_;  // before the prompt
    std::unique_ptr<TransferRing> ring_;
    std::unique_ptr<PassFeed> feed_;  // null where no weights stream
    Indexed<std::int64_t> index_;     // [items]: in the program
    bool program_made_ = false;
    std::byte* area_ = nullptr;   // one or two layers' KV
    std::size_t area_bytes_ = 0;  // of one layer
    std::int64_t n_areas_ = 1;
    Indexed<std::uint64_t> area_use_;  // [n_areas]: of flushed(), when the area's contents are on the host
    std::unique_ptr<Event> computed_, loaded_;
    std::uint64_t last_flush_ = 0;
    std::unique_ptr<PromptKvPieces> pieces_;  // instead of areas
    std::int64_t layer_ = 0;
    bool last_piece_ = false;
    bool complete_ = false;
};

}  // namespace slipstream
