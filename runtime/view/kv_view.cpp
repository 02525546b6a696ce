#include "runtime/view/kv_view.h"

#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

// Returns the slots of a view together with those of its nodes: nodes have slots too, although their rows are in
// scratch.
std::int64_t all_slots(const ViewRoom& room) {
    return room.n_slots + room.max_nodes;
}

std::int64_t chunks_of(const ViewRoom& room) {
    return ceil_div(all_slots(room), kChunkTokens);
}

std::vector<std::int64_t> resident(std::span<const KvLayout> layouts, const ViewRoom& room) {
    return std::vector<std::int64_t>(layouts.size(), chunks_of(room));
}

}  // namespace

KvView::KvView(Device& device, std::span<const KvLayout> layouts, const ViewRoom& room)
    : n_slots_(room.n_slots),
      nodes_(all_slots(room), room.max_nodes),
      store_(device, layouts, chunks_of(room), room.max_nodes, resident(layouts, room)),
      written_(device.make_event()) {}

std::size_t KvView::device_bytes(std::span<const KvLayout> layouts, const ViewRoom& room) {
    return DeviceKv::bytes(layouts, chunks_of(room), room.max_nodes, resident(layouts, room));
}

void KvView::fill(Stream& writer, std::int64_t n_slots, std::int64_t n_text, std::int64_t n_recent) {
    CHECK(n_slots > 0 && n_slots <= n_slots_ && n_slots <= n_text && n_recent <= n_slots,
          "{} slots of {} for {} positions, {} recent", n_slots, n_slots_, n_text, n_recent);
    nodes_.forget();
    nodes_.set_committed(n_slots);
    n_text_ = n_text;
    recent_begin_ = n_text - n_recent;
    static_cast<void>(writer.record(*written_));
}

void KvView::append(ExecRef exec, const DeviceKv& cache, std::span<const NodeId> path) {
    if (n_text_ == 0 || path.empty()) return;
    nodes_.forget();
    const std::int64_t first = nodes_.n_committed();
    if (first + std::ssize(path) > n_slots_) return invalidate();
    store_.commit(exec, cache, path, first);
    nodes_.set_committed(first + std::ssize(path));
    n_text_ += std::ssize(path);
    static_cast<void>(exec.stream.record(*written_));
}

void KvView::truncate(std::int64_t n_text) {
    nodes_.forget();
    if (n_text >= n_text_) return;
    if (n_text <= recent_begin_) return invalidate();
    nodes_.set_committed(nodes_.n_committed() - (n_text_ - n_text));
    n_text_ = n_text;
}

void KvView::invalidate() {
    nodes_.forget();
    nodes_.set_committed(0);
    n_text_ = 0;
}

void KvView::await(Stream& reader) const {
    if (written_->recorded() > 0) reader.wait(*written_, written_->recorded());
}

}  // namespace slipstream
