#include "runtime/pass/pass_profile.h"

#include <utility>

#include <fmt/format.h>

namespace slipstream {

namespace {

// Names of the stages, in the order of PassStage.
constexpr std::array<const char*, kPassStages> kNames{"embed",  "norm",   "qkv",     "rope/kv write", "attention",
                                                      "output", "router", "gate/up", "activation",    "down",
                                                      "sum",    "head",   "wait",    "graph"};

// Shortest wait that becomes a span of a trace. Passes ask for an item once for each part of it, and a wait for an item
// that has arrived already takes less.
constexpr auto kShortestWait = std::chrono::microseconds(1);

}  // namespace

const char* stage_name(PassStage stage) {
    return kNames[static_cast<std::size_t>(stage)];
}

PassProfile::PassProfile(const Device& device, std::vector<std::int64_t> layers, StageEnd end, TraceFile* trace)
    : layers_(std::move(layers)),
      end_(end),
      waits_for_stream_(end == StageEnd::Synchronized && device.kind() != DeviceKind::Cpu),
      trace_(trace) {
    if (trace == nullptr) return;
    const bool is_cpu = device.kind() == DeviceKind::Cpu;
    compute_track_ = trace->add_track(fmt::format("{} {}", device.name(), is_cpu ? "ops" : "ops, when enqueued"));
    copy_track_ = trace->add_track(fmt::format("{} {}", device.name(), is_cpu ? "copies" : "copies, enqueued to used"));
    demand_track_name_ =
        fmt::format("{} {}", device.name(), is_cpu ? "copies on demand" : "copies on demand, enqueued to used");
}

void PassProfile::end(const Begin& begin, PassStage stage, Stream& stream, std::int64_t layer, std::int64_t n_tokens,
                      std::size_t bytes) {
    if (waits_for_stream_) stream.synchronize();
    const Clock::time_point now = Clock::now();
    const Clock::duration waited = waited_ - begin.waited;
    if (stage == PassStage::Wait) waited_ += now - begin.time;
    StageTotal& total = totals_[static_cast<std::size_t>(stage)];
    total.seconds += std::chrono::duration<double>(now - begin.time - waited).count();
    total.bytes += bytes;
    ++total.calls;
    const bool is_wait = stage == PassStage::Wait;
    if (trace_ == nullptr || (is_wait && now - begin.time < kShortestWait)) return;
    trace_->add({.name = stage_name(stage),
                 .category = is_wait ? "wait" : "op",
                 .track = compute_track_,
                 .begin = begin.time,
                 .end = now,
                 .layer = model_layer(layer),
                 .tokens = n_tokens,
                 .bytes = is_wait ? -1 : static_cast<std::int64_t>(bytes)});
}

void PassProfile::trace_copies_on_demand() {
    demand_track_ = trace_->add_track(demand_track_name_);
}

void PassProfile::add_copy(const char* what, std::int64_t layer, std::size_t bytes, const CopyTimes& times,
                           CopyOrder order) {
    trace_->add({.name = what,
                 .category = "copy",
                 .track = order == CopyOrder::OnDemand ? demand_track_ : copy_track_,
                 .begin = times.begin,
                 .end = times.end,
                 .layer = model_layer(layer),
                 .bytes = static_cast<std::int64_t>(bytes)});
}

}  // namespace slipstream
