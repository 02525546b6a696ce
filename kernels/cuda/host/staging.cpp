#include "kernels/cuda/host/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/host/cuda_graph.h"
#include "kernels/cuda/host/cuda_stream.h"

namespace slipstream::cuda {

namespace {

constexpr std::size_t kAlignBytes = 64;
// Bytes of a ring beside the arrays of the largest op: the block of graphs, and 512 KiB for small arrays of many
// layers.
constexpr std::size_t kTableBytes = kGraphBlockBytes + (std::size_t{512} << 10);
// Least bytes of the ring of rows, for all its slots together; it is larger if rows are longer than a slot.
constexpr std::size_t kRowBytes = std::size_t{4} << 20;

// Returns a hash that tells arrays apart before their bytes are compared: multiply and shift, four words at a time.
std::uint64_t digest_of(const std::byte* data, std::size_t bytes) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
    std::uint64_t lanes[4] = {bytes * kOdd, kOdd, ~kOdd, 1};
    const auto mix = [](std::uint64_t lane, std::uint64_t word) {
        lane = (lane ^ word) * kOdd;
        return lane ^ (lane >> 29);
    };
    std::size_t at = 0;
    for (; at + 32 <= bytes; at += 32) {
        std::uint64_t words[4];
        std::memcpy(words, data + at, 32);
        for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
    }
    for (; at < bytes; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, data + at, std::min<std::size_t>(8, bytes - at));
        lanes[0] = mix(lanes[0], word);
    }
    return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

}  // namespace

Staging::Staging(CudaDevice& device)
    : device_(device),
      copied_(std::make_unique<CudaEvent>(device)),
      rows_copied_(std::make_unique<CudaEvent>(device)) {}

Staging::~Staging() = default;

std::size_t Staging::device_bytes(std::size_t op_bytes) {
    return round_up(2 * op_bytes + kTableBytes, kAlignBytes);
}

void Staging::reserve(CudaStream* stream, std::size_t op_bytes) {
    const std::size_t bytes = device_bytes(op_bytes);
    if (bytes <= on_device_.size_bytes()) return;
    // Waits before the old rings are freed, since enqueued work may still read them.
    if (stream != nullptr) stream->synchronize();
    copied_->await(copied_->recorded());
    device_.count_workspace_move();
    entries_.clear();
    head_ = kGraphBlockBytes;
    on_device_ = Buffer();
    host_ = Buffer();
    host_ = device_.allocate_host(bytes, MemoryTag::Workspace, "arrays that ops are given");
    on_device_ = device_.allocate(bytes, MemoryTag::Workspace, "arrays that ops are given");
    GraphArrays::forget(host_.data(), kGraphBlockBytes);
}

// Moves head_ around the circle until `bytes` fit there. Entries in the way are dropped, after their copy is done, or
// skipped if the running op uses them. Returns false if the entries of the running op leave no such room.
bool Staging::make_room(std::size_t bytes) {
    const std::size_t size = on_device_.size_bytes();
    std::size_t n_held = 0;  // entries of the running op that were skipped
    for (;;) {
        const bool to_front = head_ + bytes > size;
        const std::size_t end = to_front ? size : head_ + bytes;
        const bool meets = !entries_.empty() && entries_.front().offset >= head_ && entries_.front().offset < end;
        if (!meets) {
            if (!to_front) return true;
            if (head_ == kGraphBlockBytes) return false;
            head_ = kGraphBlockBytes;
            continue;
        }
        Entry oldest = entries_.front();
        if (oldest.last_op == op_) {
            if (++n_held > entries_.size()) return false;
            head_ = oldest.offset + round_up(oldest.bytes, kAlignBytes);
            entries_.push_back(oldest);
        } else {
            copied_->await(oldest.copied);
        }
        entries_.pop_front();
    }
}

const std::byte* Staging::stage(CudaStream& stream, const std::byte* data, std::size_t bytes) {
    CHECK(bytes > 0 && data != nullptr);
    const std::uint64_t digest = digest_of(data, bytes);
    // Searches from the latest entry: most arrays are those of the previous layer.
    const auto known = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
        return entry.digest == digest && entry.bytes == bytes &&
               std::memcmp(host_.data() + entry.offset, data, bytes) == 0;
    });
    if (known != entries_.rend()) {
        known->last_op = op_;
        ++n_found_;
        return on_device_.data() + known->offset;
    }
    const std::size_t room = round_up(bytes, kAlignBytes);
    const bool holds_none =
        entries_.empty() || std::ranges::none_of(entries_, [this](const Entry& entry) { return entry.last_op == op_; });
    if (holds_none) reserve(&stream, room);
    CHECK(make_room(room), "an op stages {} bytes and more in {}; reserve_workspace() with the tokens of its calls",
          bytes, on_device_.size_bytes());
    Entry entry{.offset = head_, .bytes = bytes, .digest = digest, .last_op = op_};
    head_ += room;
    std::memcpy(host_.data() + entry.offset, data, bytes);
    stream.copy(on_device_.data() + entry.offset, host_.data() + entry.offset, bytes);
    entry.copied = copied_->record(stream.place());  // before push_back: if it throws, no entry is left that could be
                                                     // overwritten without waiting for its copy
    entries_.push_back(entry);
    ++n_copied_;
    return on_device_.data() + entry.offset;
}

bool Staging::send_graph_arrays(CudaStream& stream, CudaGraph& graph, const GraphNumbers& numbers) {
    copied_->await(graph_use_);
    const std::optional<GraphChanges> changes = graph.arrays().refresh(host_.data(), numbers);
    if (!changes) {
        // What refresh() wrote to the host's block is not copied to the device, so it must be sent again next time.
        GraphArrays::forget(host_.data(), kGraphBlockBytes);
        return false;
    }
    const auto copy = [&](std::size_t begin, std::size_t end) {
        if (begin < end) stream.copy(on_device_.data() + begin, host_.data() + begin, end - begin);
    };
    try {
        copy(0, changes->front_end);
        copy(changes->tables_begin, changes->tables_end);
        graph_use_ = copied_->record(stream.place());
    } catch (...) {
        GraphArrays::forget(host_.data(), kGraphBlockBytes);
        throw;
    }
    return true;
}

void Staging::send_rows(CudaStream& stream, std::byte* dst, std::size_t bytes_a_row, std::int64_t n_rows,
                        const std::function<void(std::byte*, std::int64_t, std::int64_t)>& fill) {
    if (n_rows == 0 || bytes_a_row == 0) return;
    const std::size_t wanted = std::max(kRowBytes, kRowSlots * bytes_a_row);
    if (rows_.size_bytes() < wanted) {
        rows_copied_->await(rows_copied_->recorded());
        rows_ = device_.allocate_host(wanted, MemoryTag::Workspace, "rows on their way to the GPU");
    }
    const std::size_t slot_bytes = rows_.size_bytes() / kRowSlots;
    const auto piece = static_cast<std::int64_t>(slot_bytes / bytes_a_row);
    for (std::int64_t first = 0; first < n_rows; first += piece) {
        const std::int64_t n = std::min(piece, n_rows - first);
        std::uint64_t& slot_use = slot_use_[next_slot_];
        std::byte* slot = rows_.data() + next_slot_ * slot_bytes;
        rows_copied_->await(slot_use);
        fill(slot, first, n);
        stream.copy(dst + first * bytes_a_row, slot, n * bytes_a_row);
        slot_use = rows_copied_->record(stream.place());
        next_slot_ = (next_slot_ + 1) % kRowSlots;
    }
}

std::byte* Staging::inbox(std::size_t bytes) {
    if (inbox_.size_bytes() < bytes) {
        inbox_ = Buffer();
        inbox_ = device_.allocate_host(bytes, MemoryTag::Workspace, "results that the host reads");
    }
    return inbox_.data();
}

}  // namespace slipstream::cuda
