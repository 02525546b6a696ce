// Measures what the passes of one device do: time and bytes by stage, for benchmarks, and each stage, wait and copy as
// a span of a trace.
//
// A stage is timed on the host. On a CPU device ops run within their calls, so this is the time that they take. On a
// GPU a call only enqueues its work: the trace then says so in the name of the track, and a benchmark makes the host
// wait for the GPU after each stage (StageEnd::Synchronized).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "offload/trace_file.h"
#include "offload/transfer_ring.h"

namespace slipstream {

enum class PassStage : std::uint8_t {
    Embed,
    Norm,
    Qkv,
    Rotate,  // RoPE, norms of heads, and the write to the KV scratch
    Attention,
    Output,
    Router,  // logits of experts, and the choice
    GateUp,  // of experts, too; likewise Activation and Down
    Activation,
    Down,
    Sum,    // adds a product to the residual stream where that is a step of its own (norms after a layer's half, parts
            // of several devices); the wait for the other devices is included
    Head,   // logits
    Wait,   // waiting for weights or KV that stream
    Graph,  // layers and logits in one launch, on a GPU
};
inline constexpr std::size_t kPassStages = 14;
/// Returns the name of a stage: "norm", "gate/up", ...
[[nodiscard]] const char* stage_name(PassStage stage);

struct StageTotal {
    double seconds = 0.0;     // waits within the stage not included
    std::uint64_t bytes = 0;  // read: weights of a product, KV of attention, rows of all others
    std::int64_t calls = 0;
};

/// Whether an item is copied by a schedule that was made before its pass, or when a pass asks for it.
enum class CopyOrder : std::uint8_t { Scheduled, OnDemand };

/// Whether a stage ends when its work is enqueued, or when it is done; on a CPU device there is no difference.
enum class StageEnd : std::uint8_t { Enqueued, Synchronized };

class PassProfile {
public:
    using Clock = std::chrono::steady_clock;

    /// `layers` has for each layer of the passes its number in the whole model; empty: the numbers are equal. Without
    /// `trace` (null), only the totals are kept. `device` and `trace` must outlive this object. Not thread-safe.
    PassProfile(const Device& device, std::vector<std::int64_t> layers, StageEnd end, TraceFile* trace);

    struct Begin {
        Clock::time_point time;
        Clock::duration waited;  // waited_ at that time
    };
    [[nodiscard]] Begin begin() const { return {Clock::now(), waited_}; }
    /// Ends a stage that began at `begin` and read `bytes` bytes for `n_tokens` tokens. `layer` counts the layers that
    /// the device's passes run, from 0; -1: the stage is of no layer.
    void end(const Begin& begin, PassStage stage, Stream& stream, std::int64_t layer, std::int64_t n_tokens,
             std::size_t bytes);
    /// Adds a copy of `bytes` bytes from the host to the device, of weights or KV, to the trace; requires has_trace().
    /// `layer` counts the layers that the device's passes run, from 0; -1: the copy is of no layer. Copies on demand
    /// require trace_copies_on_demand() before.
    void add_copy(const char* what, std::int64_t layer, std::size_t bytes, const CopyTimes& times, CopyOrder order);
    /// Gives copies on demand a track of their own, since they overlap with the others. Requires has_trace().
    void trace_copies_on_demand();

    [[nodiscard]] const StageTotal& total(PassStage stage) const { return totals_[static_cast<std::size_t>(stage)]; }
    void clear() { totals_ = {}; }
    [[nodiscard]] bool synchronizes() const { return end_ == StageEnd::Synchronized; }
    [[nodiscard]] bool has_trace() const { return trace_ != nullptr; }

private:
    [[nodiscard]] std::int64_t model_layer(std::int64_t layer) const {
        return layer < 0 || layers_.empty() ? layer : layers_[layer];
    }

    std::vector<std::int64_t> layers_;
    StageEnd end_;
    bool waits_for_stream_;  // after each stage
    TraceFile* trace_;
    std::uint32_t compute_track_ = 0;
    std::uint32_t copy_track_ = 0;
    std::string demand_track_name_;
    std::uint32_t demand_track_ = 0;
    Clock::duration waited_{};  // time spent in all waits so far
    std::array<StageTotal, kPassStages> totals_{};
};

/// Runs `work`, a stage of a pass over `n_tokens` tokens, and times it unless `profile` is null. `bytes()` returns the
/// bytes that it reads.
template <typename Bytes, typename Work>
void run_stage(PassProfile* profile, PassStage stage, Stream& stream, std::int64_t layer, std::int64_t n_tokens,
               const Bytes& bytes, const Work& work) {
    if (profile == nullptr) return work();
    const PassProfile::Begin begin = profile->begin();
    work();
    profile->end(begin, stage, stream, layer, n_tokens, bytes());
}

}  // namespace slipstream
