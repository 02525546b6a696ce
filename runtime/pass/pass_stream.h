// What a pass over the target reads from host memory, in reading order, through one transfer ring: items of weights
// that are not resident, and before the second half of each layer the chunks of its KV that are not.
//
// Forward asks for each block when it comes to it and hands it back when its last use is enqueued; the order is fixed
// by the model, and asking for anything else is an error. The program of the next pass is made (and frozen) as soon as
// the ring has room behind this one, so that the link goes on across passes (design section 4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/pass_feed.h"
#include "offload/transfer_ring.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/model.h"

namespace slipstream {

/// Brings items of weights to the device; a pass, or a prompt that goes through layer by layer.
class WeightStream {
public:
    virtual ~WeightStream() = default;
    /// The item on the device, for work enqueued on `compute` from now on. Items in reading order; one may be asked for
    /// again until it is released.
    [[nodiscard]] virtual const std::byte* acquire_item(std::int32_t item, Stream& compute) = 0;
    /// Its last use so far is enqueued.
    virtual void release_item(std::int32_t item, Stream& compute) = 0;
};

/// Committed chunks [first_chunk, end_chunk) of a layer that lie on the device now.
struct KvPiece {
    std::int64_t first_chunk = 0;
    std::int64_t end_chunk = 0;
};

/// Brings KV of the host to the device; likewise.
class KvStream {
public:
    virtual ~KvStream() = default;
    /// Committed chunks of `layer` from the host: the cache's chunks() point at them until release_kv(). Nothing when
    /// there are no more. Those before them are resident, those from host_chunks() on lie on the device.
    [[nodiscard]] virtual std::optional<KvPiece> acquire_kv(std::int64_t layer, Stream& compute) = 0;
    virtual void release_kv(Stream& compute) = 0;
    /// Chunks below this are read from the host, where they stream.
    [[nodiscard]] virtual std::int64_t host_chunks() const = 0;
};

/// Bytes that passes have brought over, and how long they stood still for them.
struct StreamFigures {
    std::uint64_t weights_bytes = 0;  // read by passes; copied ahead and not yet read not counted
    std::uint64_t kv_bytes = 0;
    double wait_seconds = 0.0;  // of the compute stream, where the device tells
};

class PassStream final : public WeightStream, public KvStream, public ProgramSource, public FrozenPrograms {
public:
    /// Takes `ring_bytes` of the device's budget; hidden states of prompts will lie in `arena`. All outlive the stream.
    /// Throws OutOfBudget, also where the largest block does not fit twice.
    PassStream(const Model& model, KvCache& cache, PinnedArena& arena, std::size_t ring_bytes);
    ~PassStream() override;
    PassStream(const PassStream&) = delete;
    PassStream& operator=(const PassStream&) = delete;

    /// Whether a pass over this model and cache needs a stream at all.
    [[nodiscard]] static bool needed(const Model& model, const KvCache& cache) {
        return model.streams_weights() || cache.streams();
    }
    /// Chunks that one copy of streamed KV carries, at most, with a ring of that size.
    [[nodiscard]] static std::int64_t chunks_per_copy(std::size_t ring_bytes, std::size_t chunk_bytes);

    [[nodiscard]] KvCache& cache() { return *cache_; }
    [[nodiscard]] const KvCache& cache() const { return *cache_; }
    [[nodiscard]] const Model& model() const { return *model_; }
    [[nodiscard]] PinnedArena& arena() const { return *arena_; }
    [[nodiscard]] std::size_t ring_bytes() const { return region_.size_bytes(); }
    /// For blocks that travel besides (hidden states of a prompt), in order with the ring's.
    [[nodiscard]] Stream& copy_in() { return *copy_in_; }

    void begin_pass(Stream& compute);
    [[nodiscard]] const std::byte* acquire_item(std::int32_t item, Stream& compute) override;
    void release_item(std::int32_t item, Stream& compute) override;
    [[nodiscard]] std::optional<KvPiece> acquire_kv(std::int64_t layer, Stream& compute) override;
    void release_kv(Stream& compute) override;
    [[nodiscard]] std::int64_t host_chunks() const override { return programs_[n_begun_ % 2].host_chunks; }
    /// What is left of the program is passed over (logits that nobody wants).
    void end_pass(Stream& compute);
    /// The running pass is given up.
    void abandon(Stream& compute);

    /// Stops all copies and lends the whole ring, for a prompt that goes layer by layer. The next begin_pass() takes it
    /// back.
    [[nodiscard]] std::span<std::byte> lend_ring(Stream& compute);
    /// Counts what was brought over by other means.
    void count(std::size_t weights_bytes, std::size_t kv_bytes);

    [[nodiscard]] const StreamFigures& figures() const { return figures_; }

    // What the feed and the cache call.
    void next_program(std::vector<TransferItem>& program) override;
    void invalidate(Stream& compute) override;

private:
    struct Block {
        std::int32_t item = -1;  // of weights; else
        std::int64_t layer = 0;  // chunks of this layer
        KvPiece chunks{};
        std::size_t bytes = 0;
    };

    struct Program {
        std::vector<Block> blocks;
        std::int64_t host_chunks = 0;
    };

    [[nodiscard]] Program& running() { return programs_[n_begun_ % 2]; }
    void add_kv(std::int64_t layer, Program& made, std::vector<TransferItem>& program);
    [[nodiscard]] const std::byte* acquire_block(Stream& compute);
    void release_block(Stream& compute);

    const Model* model_;
    KvCache* cache_;
    PinnedArena* arena_;
    std::int64_t chunks_per_copy_;
    Buffer region_;
    std::unique_ptr<Stream> copy_in_;
    std::unique_ptr<TransferRing> ring_;
    std::unique_ptr<PassFeed> feed_;
    std::array<Program, 2> programs_;  // the running one and the one made ahead, by number
    std::uint64_t n_made_ = 0;         // programs made; the last has this number
    std::uint64_t n_begun_ = 0;        // number of the program that runs, or ran last
    std::size_t at_ = 0;               // block of the running program
    bool in_pass_ = false;
    StreamFigures figures_;
};

/// A pass that runs: where it does not come to its end it gives its program up.
class RunningPass {
public:
    RunningPass(PassStream* pass, Stream& compute) : pass_(pass), compute_(&compute) {
        if (pass_ != nullptr) pass_->begin_pass(compute);
    }
    ~RunningPass() {
        if (pass_ == nullptr) return;
        try {
            pass_->abandon(*compute_);
        } catch (...) {  // the copy that failed is what ended the pass
        }
    }
    RunningPass(const RunningPass&) = delete;
    RunningPass& operator=(const RunningPass&) = delete;
    void complete() {
        if (pass_ != nullptr) pass_->end_pass(*compute_);
        pass_ = nullptr;
    }

private:
    PassStream* pass_;
    Stream* compute_;
};

}  // namespace slipstream
