#include "runtime/cache/recurrent_states.h"

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/matmul.h"
#include "kernels/move_rows.h"

namespace slipstream {

namespace {

constexpr std::size_t kPlanes = 3;  // states of a layer
constexpr std::size_t kMostCheckpoints = 64;
// Tokens at the end of a prompt that the next prompt of a chat may not repeat: a template's generation prompt, with the
// mark of a thought.
constexpr std::int64_t kPromptEndTokens = 16;
constexpr std::int64_t kMostPromptEnds = 4;                   // checkpoints beside those at multiples of 512 positions
constexpr std::size_t kMostZeroBytes = std::size_t{4} << 20;  // of a copy
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
        if (!layout.state.empty()) end += kPlanes * state_floats(layout.state);
        if (stored != nullptr) stored->push_back(end);
        if (!layout.state.empty()) end += aligned(2 * max_drafts * layout.state.row_cols());
    }
    return end;
}

}  // namespace

RecurrentStates::RecurrentStates(Device& device, std::span<const KvLayout> layouts, std::int64_t max_drafts,
                                 std::size_t checkpoint_bytes)
    : device_(&device),
      layouts_(layouts.begin(), layouts.end()),
      max_drafts_(max_drafts),
      next_(layouts.size(), -1),
      prompt_(layouts.size(), -1) {
    const std::size_t n_bytes = place(layouts_, max_drafts, &state_begin_, &stored_begin_) * sizeof(float);
    memory_ = device.allocate(n_bytes, MemoryTag::Kv, "the states of recurrent layers");
    for (std::size_t layer = 0; layer < layouts_.size(); ++layer) {
        checkpoint_begin_.push_back(checkpoint_floats_);
        const DeltaNetShape& shape = layouts_[layer].state;
        if (shape.empty()) continue;
        if (n_recurrent_++ == 0) first_recurrent_ = static_cast<std::int64_t>(layer);
        checkpoint_floats_ += state_floats(shape);
        add_stored_plane(layer);
    }
    const std::vector<std::byte> zeros(std::min(n_bytes, kMostZeroBytes));
    const auto stream = device.make_stream(StreamKind::Compute);
    for (std::size_t at = 0; at < n_bytes; at += zeros.size())
        stream->copy(memory_.data() + at, zeros.data(), std::min(zeros.size(), n_bytes - at));
    stream->synchronize();
    max_checkpoints_ = std::min(checkpoint_bytes / (checkpoint_floats_ * sizeof(float)), kMostCheckpoints);
    checkpoints_.reserve(max_checkpoints_);
    spare_.reserve(max_checkpoints_);
    rows_from_.reserve(static_cast<std::size_t>(max_drafts));
    rows_to_.reserve(static_cast<std::size_t>(max_drafts));
    // Page-locking takes about as long as a prefill chunk, so it is not left to the first prompt.
    for (std::size_t i = 0; !device.shares_host_memory() && i < max_checkpoints_; ++i) {
        CheckpointMemory memory;
        if (!allocate_memory(memory)) break;
        spare_.push_back(std::move(memory));
    }
    if (!device.shares_host_memory()) max_checkpoints_ = spare_.size();
}

// Counts the stored rows of a layer as a plane, together with those of the layer before it if they have the same size.
void RecurrentStates::add_stored_plane(std::size_t layer) {
    if (!stored_planes_.empty()) {
        StoredPlanes& last = stored_planes_.back();
        const std::size_t distance = stored_begin_[layer] - stored_begin_[last.first] -
                                     static_cast<std::size_t>(last.n_layers - 1) * last.distance;
        const bool is_alike = layouts_[layer].state == layouts_[last.first].state;
        if (is_alike && (last.n_layers == 1 || distance == last.distance)) {
            last.distance = distance;
            ++last.n_layers;
            return;
        }
    }
    stored_planes_.push_back({.first = layer, .n_layers = 1});
}

std::size_t RecurrentStates::bytes(std::span<const KvLayout> layouts, std::int64_t max_drafts) {
    return place(layouts, max_drafts, nullptr, nullptr) * sizeof(float);
}

std::size_t RecurrentStates::state_bytes(std::span<const KvLayout> layouts) {
    std::size_t floats = 0;
    for (const KvLayout& layout : layouts)
        if (!layout.state.empty()) floats += state_floats(layout.state);
    return floats * sizeof(float);
}

std::size_t RecurrentStates::most_checkpoint_bytes(std::span<const KvLayout> layouts, std::int64_t context_tokens,
                                                   std::size_t checkpoint_bytes) {
    const std::size_t one = state_bytes(layouts);
    if (one == 0) return 0;
    const auto positions = static_cast<std::size_t>(context_tokens / kPrefillChunkTokens + kMostPromptEnds);
    return one * std::min({checkpoint_bytes / one, kMostCheckpoints, positions});
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
        check_all_at(next_, end_certain);
        std::swap(kept_plane_, next_plane_);
        kept_is_in_checkpoint_ = false;
        kept_ = end_certain;
        n_pending_ = 0;
    }
    const auto n = std::ssize(drafts);
    CHECK(n_pending_ + n <= max_drafts_, "{} pending tokens and {} more, room for {}", n_pending_, n, max_drafts_);
    rows_from_.clear();
    rows_to_.clear();
    for (std::int64_t i = 0; i < n; ++i) {
        rows_from_.push_back(draft_row(drafts[i]));
        rows_to_.push_back(pending_row(n_pending_ + i));
    }
    for (const StoredPlanes& planes : stored_planes_) {
        auto* const rows = reinterpret_cast<std::byte*>(stored(static_cast<std::int64_t>(planes.first)));
        const std::size_t plane_bytes = planes.distance * sizeof(float);
        move_rows(exec, {.src = rows,
                         .src_plane_bytes = plane_bytes,
                         .dst = rows,
                         .dst_plane_bytes = plane_bytes,
                         .n_planes = planes.n_layers,
                         .row_bytes = row_bytes(DType::F32, layouts_[planes.first].state.row_cols()),
                         .src_rows = rows_from_.data(),
                         .dst_rows = rows_to_.data(),
                         .n_rows = n});
    }
    n_pending_ += n;
    drop_next();
}

void RecurrentStates::keep_prompt(std::int64_t position) {
    check_all_at(prompt_, position);
    std::swap(kept_plane_, prompt_plane_);
    kept_is_in_checkpoint_ = false;
    kept_ = position;
    n_pending_ = 0;
    std::ranges::fill(prompt_, -1);
}

void RecurrentStates::check_all_at(std::span<const std::int64_t> positions, std::int64_t position) const {
    for (std::size_t layer = 0; layer < layouts_.size(); ++layer)
        CHECK(layouts_[layer].state.empty() || positions[layer] == position,
              "the state of layer {} is after {} positions, not {}", layer, positions[layer], position);
}

void RecurrentStates::bring_back(ExecRef exec) {
    if (!kept_is_in_checkpoint_) return;
    const auto from = std::ranges::find(checkpoints_, kept_, &Checkpoint::position);
    CHECK(from != checkpoints_.end(), "no checkpoint at {}", kept_);
    for (std::size_t layer = 0; layer < layouts_.size(); ++layer)
        if (!layouts_[layer].state.empty())
            exec.stream.copy(state_at(static_cast<std::int64_t>(layer), kept_plane_).state,
                             from->memory.data() + checkpoint_begin_[layer], bytes_at_once(layer));
    kept_is_in_checkpoint_ = false;
}

void RecurrentStates::store_drafts(ExecRef exec, std::int64_t layer, const ConstTensorView& inputs,
                                   std::int64_t first_row, std::span<const std::int32_t> drafts) {
    CHECK(inputs.packed(), "rows of inputs that do not follow one another");
    rows_from_.clear();
    for (std::size_t i = 0; i < drafts.size(); ++i)
        rows_from_.push_back(static_cast<std::int32_t>(first_row) + static_cast<std::int32_t>(i));
    move_rows(exec, {.src = inputs.data,
                     .dst = reinterpret_cast<std::byte*>(stored(layer)),
                     .n_planes = 1,
                     .row_bytes = row_bytes(DType::F32, layouts_[layer].state.row_cols()),
                     .src_rows = rows_from_.data(),
                     .dst_rows = drafts.data(),
                     .n_rows = std::ssize(drafts)});
}

std::int64_t RecurrentStates::checkpoint_within(std::int64_t begin, std::int64_t end, std::int64_t n_certain) const {
    if (max_checkpoints_ == 0) return 0;
    const bool ends_a_prompt = n_certain > kPromptEndTokens && end % kPrefillChunkTokens != 0;
    if (ends_a_prompt) return end - kPromptEndTokens;
    const std::int64_t border = (end - 1) / kPrefillChunkTokens * kPrefillChunkTokens;
    return border > begin ? border : 0;
}

void RecurrentStates::make_checkpoint(ExecRef exec, std::int64_t layer, std::int64_t position, const State& state) {
    const auto found = std::ranges::find(checkpoints_, position, &Checkpoint::position);
    if (found != checkpoints_.end() && found->n_filled == n_recurrent_) return;
    if (layer == first_recurrent_) {
        // Of a pass that did not reach all layers.
        drop_checkpoints([&](const Checkpoint& each) { return each.position == position; });
        if (!add_checkpoint(position)) return;
    }
    const auto to = std::ranges::find(checkpoints_, position, &Checkpoint::position);
    if (to == checkpoints_.end()) return;
    exec.stream.copy(to->memory.data() + checkpoint_begin_[layer], state.state, bytes_at_once(layer));
    ++to->n_filled;
}

// Returns the bytes of a state with its taps, which follow it.
std::size_t RecurrentStates::bytes_at_once(std::int64_t layer) const {
    return state_floats(layouts_[layer].state) * sizeof(float);
}

// Drops the checkpoints for which drop() is true. Their memory is kept: copies may be under way.
template <typename Drop>
void RecurrentStates::drop_checkpoints(const Drop& drop) {
    for (Checkpoint& each : checkpoints_)
        if (drop(each)) spare_.push_back(std::move(each.memory));
    std::erase_if(checkpoints_, [](const Checkpoint& each) { return each.memory.data() == nullptr; });
}

// Takes memory for a checkpoint. Returns false if the system has none left.
bool RecurrentStates::take_memory(CheckpointMemory& memory) {
    if (!spare_.empty()) {
        memory = std::move(spare_.back());
        spare_.pop_back();
        return true;
    }
    return allocate_memory(memory);
}

bool RecurrentStates::allocate_memory(CheckpointMemory& memory) const {
    if (device_->shares_host_memory()) {
        memory.plain.reset(new (std::nothrow) float[checkpoint_floats_]);
        return memory.plain != nullptr;
    }
    try {
        memory.locked = device_->allocate_host(checkpoint_floats_ * sizeof(float), MemoryTag::Kv,
                                               "a checkpoint of recurrent layers");
    } catch (const OutOfBudget&) {
        return false;
    }
    return true;
}

// Makes room for a checkpoint and adds it, empty. Returns whether there is memory.
bool RecurrentStates::add_checkpoint(std::int64_t position) {
    Checkpoint fresh{.position = position};
    if (checkpoints_.size() < max_checkpoints_ && !take_memory(fresh.memory)) max_checkpoints_ = checkpoints_.size();
    if (max_checkpoints_ == 0) return false;
    if (fresh.memory.data() == nullptr) {
        // The distance between the neighbours of each checkpoint but the last; the position before the first is 0.
        const auto gap = [&](std::size_t i) {
            return (i + 1 < checkpoints_.size() ? checkpoints_[i + 1].position : position) -
                   (i > 0 ? checkpoints_[i - 1].position : 0);
        };
        std::size_t closest = 0;
        for (std::size_t i = 1; i + 1 < checkpoints_.size(); ++i)
            if (gap(i) < gap(closest)) closest = i;
        fresh.memory = std::move(checkpoints_[closest].memory);
        checkpoints_.erase(checkpoints_.begin() + static_cast<std::ptrdiff_t>(closest));
    }
    const auto after = std::ranges::upper_bound(checkpoints_, position, {}, &Checkpoint::position);
    checkpoints_.insert(after, std::move(fresh));
    return true;
}

std::int64_t RecurrentStates::positions_after_cut(std::int64_t n_tokens) const {
    if (n_tokens >= kept_) return n_tokens;
    std::int64_t last = 0;
    for (const Checkpoint& checkpoint : checkpoints_)
        if (checkpoint.position <= n_tokens && checkpoint.n_filled == n_recurrent_) last = checkpoint.position;
    return last;
}

std::int64_t RecurrentStates::last_readable(std::int64_t n_tokens, std::int64_t step) const {
    if (kept_ <= n_tokens && kept_ % step == 0) return kept_;
    std::int64_t last = 0;
    for (const Checkpoint& checkpoint : checkpoints_)
        if (checkpoint.position % step == 0 && checkpoint.position <= std::min(n_tokens, kept_) &&
            checkpoint.n_filled == n_recurrent_)
            last = checkpoint.position;
    return last;
}

void RecurrentStates::read_states(ExecRef exec, std::int64_t layer, std::int64_t position, std::byte* out) const {
    if (position == kept_ && !kept_is_in_checkpoint_) {
        exec.stream.copy(out, state_at(layer, kept_plane_).state, bytes_at_once(layer));
        return exec.stream.synchronize();
    }
    const auto from = std::ranges::find(checkpoints_, position, &Checkpoint::position);
    CHECK(from != checkpoints_.end() && from->n_filled == n_recurrent_, "no checkpoint at {}", position);
    exec.stream.synchronize();
    const auto* const bytes = reinterpret_cast<const std::byte*>(from->memory.data() + checkpoint_begin_[layer]);
    std::copy_n(bytes, bytes_at_once(layer), out);
}

void RecurrentStates::write_kept(ExecRef exec, std::int64_t layer, const std::byte* from) {
    CHECK(kept_ == 0 && n_pending_ == 0, "states are filled after {} positions, {} pending", kept_, n_pending_);
    exec.stream.copy(state_at(layer, kept_plane_).state, from, bytes_at_once(layer));
    exec.stream.synchronize();
}

void RecurrentStates::keep_written(std::int64_t position) {
    reset();
    kept_ = position;
}

void RecurrentStates::cut(std::int64_t n_tokens) {
    CHECK(positions_after_cut(n_tokens) == n_tokens, "a cut to {} of {} positions", n_tokens, kept_);
    if (n_tokens >= kept_) {
        n_pending_ = std::min(n_pending_, n_tokens - kept_);
    } else {
        n_pending_ = 0;
        kept_ = n_tokens;
        kept_is_in_checkpoint_ = n_tokens > 0;
    }
    drop_checkpoints([&](const Checkpoint& each) { return each.position > n_tokens; });
    drop_next();
}

void RecurrentStates::reset() {
    kept_ = 0;
    n_pending_ = 0;
    kept_is_in_checkpoint_ = false;
    drop_checkpoints([](const Checkpoint&) { return true; });
    drop_next();
}

void RecurrentStates::drop_next() {
    std::ranges::fill(next_, -1);
    std::ranges::fill(prompt_, -1);
    drop_checkpoints([&](const Checkpoint& each) { return each.n_filled < n_recurrent_ || each.position > kept_; });
}

}  // namespace slipstream
