#include "runtime/cache/recurrent_states.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlignFloats = 16;  // states, taps and stored rows begin at multiples of 64 bytes

std::size_t aligned(std::int64_t floats) {
    return round_up(static_cast<std::size_t>(floats), kAlignFloats);
}

std::size_t state_floats(const DeltaNetShape& shape) {
    return aligned(shape.state_floats()) + aligned(shape.tap_floats());
}

// Appends the floats before the states and before the stored rows of each layer; returns the floats of all. The memory
// begins with zeros: the state before the first position, of the largest layer.
std::size_t place(std::span<const KvLayout> layouts, std::int64_t max_drafts, std::vector<std::size_t>* states,
                  std::vector<std::size_t>* stored) {
    std::size_t end = 0;
    for (const KvLayout& layout : layouts)
        if (!layout.state.empty()) end = std::max(end, state_floats(layout.state));
    for (const KvLayout& layout : layouts) {
        if (states != nullptr) states->push_back(end);
        if (!layout.state.empty()) end += 2 * state_floats(layout.state);
        if (stored != nullptr) stored->push_back(end);
        if (!layout.state.empty()) end += aligned(2 * max_drafts * layout.state.row_cols());
    }
    return end;
}

}  // namespace

RecurrentStates::RecurrentStates(Device& device, std::span<const KvLayout> layouts, std::int64_t max_drafts)
    : layouts_(layouts.begin(), layouts.end()), max_drafts_(max_drafts), next_(layouts.size(), -1) {
    CHECK(device.shares_host_memory(), "recurrent states on a device that does not share the host's memory");
    const std::size_t n_bytes = place(layouts_, max_drafts, &state_begin_, &stored_begin_) * sizeof(float);
    memory_ = device.allocate(n_bytes, MemoryTag::Kv, "the states of recurrent layers");
    std::fill_n(reinterpret_cast<float*>(memory_.data()), n_bytes / sizeof(float), 0.0F);
}

std::size_t RecurrentStates::bytes(std::span<const KvLayout> layouts, std::int64_t max_drafts) {
    return place(layouts, max_drafts, nullptr, nullptr) * sizeof(float);
}

RecurrentStates::State RecurrentStates::state_at(std::int64_t layer, std::int64_t plane) const {
    const DeltaNetShape& shape = layouts_[layer].state;
    float* const state = at(state_begin_[layer]) + plane * static_cast<std::int64_t>(state_floats(shape));
    return {.state = state, .taps = state + aligned(shape.state_floats())};
}

RecurrentStates::State RecurrentStates::kept_state(std::int64_t layer) const {
    if (kept_ > 0) return state_at(layer, kept_plane_);
    return {.state = at(0), .taps = at(aligned(layouts_[layer].state.state_floats()))};
}

void RecurrentStates::commit(ExecRef exec, std::int64_t end_certain, std::span<const std::int32_t> drafts) {
    if (end_certain > 0) {
        for (std::size_t layer = 0; layer < layouts_.size(); ++layer)
            CHECK(layouts_[layer].state.empty() || next_[layer] == end_certain,
                  "the state of layer {} is after {} positions, not {}", layer, next_[layer], end_certain);
        kept_plane_ = 1 - kept_plane_;
        kept_ = end_certain;
        n_pending_ = 0;
    }
    const auto n = std::ssize(drafts);
    CHECK(n_pending_ + n <= max_drafts_, "{} pending tokens and {} more, room for {}", n_pending_, n, max_drafts_);
    for (std::size_t layer = 0; layer < layouts_.size(); ++layer) {
        const std::int64_t cols = layouts_[layer].state.row_cols();
        if (layouts_[layer].state.empty()) continue;
        float* const rows = stored(static_cast<std::int64_t>(layer));
        for (std::int64_t i = 0; i < n; ++i)
            exec.stream.copy(rows + pending_row(n_pending_ + i) * cols, rows + draft_row(drafts[i]) * cols,
                             row_bytes(DType::F32, cols));
    }
    n_pending_ += n;
    drop_next();
}

void RecurrentStates::cut(std::int64_t n_tokens) {
    CHECK(can_cut(n_tokens), "a cut to {} of {} positions", n_tokens, kept_);
    n_pending_ = std::min(n_pending_, n_tokens - kept_);
    drop_next();
}

void RecurrentStates::reset() {
    kept_ = 0;
    n_pending_ = 0;
    drop_next();
}

void RecurrentStates::drop_next() {
    std::ranges::fill(next_, -1);
}

}  // namespace slipstream
