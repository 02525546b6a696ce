// All parts of all items are cut into steps of 32 MiB of the files, in reading order. Readers take the next step each,
// and bring its pages in (if weights are rounded, or their rows are not together in the file, they make its rows in a
// buffer of the step); the caller takes the steps in order, packs each with the device's threads, and releases its
// pages. Readers stay within a window of bytes before the caller, so that the memory in use besides the destinations is
// bounded however fast the disk is.
//
// A mapped file must not be touched past an end at which it was cut short: that would end the process. A cut takes away
// everything after it, so before a step is packed its last byte is requested again, which costs nothing if it is still
// there and is an IoError if it is not. A cut in the milliseconds in which a step is packed remains possible.
#include "runtime/model/weight_loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/cpu/matmul/quantize.h"
#include "kernels/pack_weights.h"

namespace slipstream {

namespace {

// Bytes of the files in one step, which is packed between two reports of progress; four steps are a window. (In a
// virtual machine of 2 cores with 9 busy threads, 2.2 GB from the disk took 5 s with steps of this size and 11 s in
// steps of 8 MiB, medians of 9: the system then keeps the file in huge pages, which are slow at the first touch if the
// host backs them only then.)
constexpr std::size_t kStepBytes = 32U << 20;

constexpr std::size_t kPackAlignBytes = 64;  // as pack_weights() asks

/// Rows of one part that are read and packed at once.
struct Step {
    ConstTensorView rows;  // the rows as the file stores them, in a mapped file; no data if they are `stored` otherwise
    StoredMatrix stored;   // of the whole matrix; empty: `rows` has them
    std::int64_t first_row = 0;  // in `stored`
    TensorView packed;
    std::byte* end = nullptr;     // end of what this step writes: of `packed`, or of the padding after the part
    bool is_sent = false;         // `packed` is memory that only the device's streams reach
    std::size_t begin_bytes = 0;  // bytes of the files that are packed before this step

    using FileBytes = std::array<std::span<const std::byte>, 2>;  // the second may be empty
    [[nodiscard]] FileBytes file_bytes() const {
        if (!stored.empty()) return stored.bytes_of(rows.dtype, first_row, rows.shape[0], rows.cols());
        const std::size_t before_last = (rows.shape[0] - 1) * rows.row_stride_bytes;
        return {std::span(rows.data, before_last + row_bytes(rows.dtype, rows.cols())), {}};
    }
    [[nodiscard]] std::size_t end_bytes() const {
        const FileBytes bytes = file_bytes();
        return begin_bytes + bytes[0].size() + bytes[1].size();
    }
    /// Whether readers make the rows that are packed: rounded, or put together.
    [[nodiscard]] bool is_made() const { return !stored.empty() || rows.dtype != packed.dtype; }
};

/// Cuts part `index` of an item that is loaded to `item_data`; appends to `steps`.
void cut_part(std::vector<Step>& steps, const WeightLoadRequest& request, Layout layout, const WeightItem& item,
              std::size_t index, std::byte* item_data) {
    const WeightPart& part = item.parts[index];
    const ConstTensorView& matrix = request.weights->tensor(part.layer, part.role, part.expert);
    const ConstTensorView rows = matrix.slice_rows(part.first_row, part.n_rows);
    const TensorView packed =
        packed_view(item_data + part.offset, packed_type(matrix, item.rounding), part.n_rows, matrix.cols(), layout);
    const std::size_t end = index + 1 < item.parts.size() ? item.parts[index + 1].offset : item.bytes;
    CHECK(part.offset <= end && end <= item.bytes &&
              packed_bytes(packed.dtype, part.n_rows, matrix.cols()) <= end - part.offset,
          "a part at {} of {} bytes, the next at {}", part.offset, item.bytes, end);
    const auto fitting = static_cast<std::int64_t>(kStepBytes / std::max<std::size_t>(matrix.row_stride_bytes, 1));
    // Packs begin at multiples of 64 bytes, and so must steps: a group of rows may have an odd multiple of 16 or 32.
    const std::size_t group_bytes = packed_bytes(packed.dtype, kInterleavedRows, matrix.cols());
    const auto n_aligned =
        kInterleavedRows * static_cast<std::int64_t>(kPackAlignBytes / std::gcd(group_bytes, kPackAlignBytes));
    const std::int64_t n_step = std::max(fitting / n_aligned * n_aligned, n_aligned);
    for (std::int64_t row = 0; row < part.n_rows; row += n_step) {
        const std::int64_t n = std::min(n_step, part.n_rows - row);
        Step step{.rows = rows.slice_rows(row, n),
                  .stored = request.weights->stored(part.layer, part.role, part.expert),
                  .first_row = part.first_row + row,
                  .packed = packed.slice_rows(row, n)};
        step.end =
            row + n < part.n_rows ? step.packed.data + packed_bytes(packed.dtype, n, matrix.cols()) : item_data + end;
        if (!steps.empty()) step.begin_bytes = steps.back().end_bytes();
        steps.push_back(step);
    }
}

std::vector<Step> cut_steps(const Device& device, const WeightLoadRequest& request) {
    const Layout layout = packed_layout(device.kind());
    std::vector<Step> steps;
    for (std::size_t i = 0; i < request.items.size(); ++i) {
        const std::size_t first = steps.size();
        for (std::size_t part = 0; part < request.items[i].parts.size(); ++part)
            cut_part(steps, request, layout, request.items[i], part, request.destinations[i]);
        const bool in_host_memory = request.in_host_memory != nullptr && (*request.in_host_memory)[i];
        if (!device.shares_host_memory() && !in_host_memory)
            for (std::size_t step = first; step < steps.size(); ++step) steps[step].is_sent = true;
    }
    return steps;
}

/// Packs steps into their destinations: directly, or in host memory, followed by a copy to the device.
class Packer {
public:
    Packer(Device& device, std::span<const Step> steps)
        : device_(device), stream_(device.make_stream(StreamKind::Compute)) {
        std::size_t most = 0;
        for (const Step& step : steps)
            if (step.is_sent) most = std::max(most, bytes_of(step));
        if (most > 0) sent_ = device.allocate_host(most, MemoryTag::Workspace, "weights on their way to the device");
    }

    /// Packs `rows` into the destination of `step`, with zeros in the padding. Complete when it returns.
    void pack(const ConstTensorView& rows, const Step& step) {
        TensorView packed = step.packed;
        if (step.is_sent) packed.data = sent_.data();
        pack_weights({device_, *stream_}, {.weights = rows, .packed = packed});
        const std::size_t n_packed = packed_bytes(packed.dtype, packed.shape[0], packed.cols());
        std::memset(packed.data + n_packed, 0, bytes_of(step) - n_packed);
        if (step.is_sent) stream_->copy(step.packed.data, packed.data, bytes_of(step));
        stream_->synchronize();
    }

private:
    static std::size_t bytes_of(const Step& step) { return step.end - step.packed.data; }

    Device& device_;
    std::unique_ptr<Stream> stream_;
    Buffer sent_;
};

/// Threads that read the steps ahead, in order, within the window. One caller takes the steps, in order, each once.
class ReadAhead {
public:
    ReadAhead(const WeightSource& source, std::span<const Step> steps, int n_readers)
        : source_(source), steps_(steps), incoming_(steps.size()) {
        readers_.reserve(n_readers);
        try {
            for (int i = 0; i < n_readers; ++i) readers_.emplace_back([this] { read_steps(); });
        } catch (const std::system_error& error) {
            const std::size_t n_started = readers_.size();
            stop();
            throw OutOfBudget(
                fmt::format("the system starts {} of {} threads that read weights ({}); end other programs", n_started,
                            n_readers, error.what()));
        }
    }
    ~ReadAhead() { stop(); }
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    /// Waits until step `index` is read; returns the rows to be packed, valid until done(index). Rethrows the error of
    /// a reader.
    [[nodiscard]] ConstTensorView take(std::size_t index) {
        const Step& step = steps_[index];
        std::unique_lock lock(mutex_);
        step_came_.wait(lock, [&] { return failure_ != nullptr || incoming_[index].came; });
        if (failure_ != nullptr) std::rethrow_exception(failure_);
        lock.unlock();
        const std::byte* made = incoming_[index].made.get();
        if (made != nullptr) return matrix_view(made, step.packed.dtype, step.rows.shape[0], step.rows.cols());
        source_.prefetch(step.file_bytes()[0].last(1));
        return step.rows;
    }

    /// Call when step `index` is packed: releases its memory and lets readers go on.
    void done(std::size_t index) {
        if (incoming_[index].made == nullptr) release(steps_[index]);
        incoming_[index].made.reset();
        {
            const std::lock_guard lock(mutex_);
            done_bytes_ = steps_[index].end_bytes();
        }
        room_came_.notify_all();
    }

private:
    struct Incoming {
        bool came = false;
        std::unique_ptr<std::byte[]> made;  // rows in the packed type, row-major, if Step::is_made(); else null
    };

    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
        }
        room_came_.notify_all();
        for (std::thread& reader : readers_) reader.join();
        readers_.clear();
    }

    [[nodiscard]] bool has_room(std::size_t index) const {
        return steps_[index].begin_bytes == done_bytes_ || steps_[index].end_bytes() - done_bytes_ <= kLoadWindowBytes;
    }

    void read_steps() {
        std::vector<float> values;  // of a row
        for (;;) {
            std::size_t index = 0;
            {
                std::unique_lock lock(mutex_);
                room_came_.wait(lock, [this] { return stopped_ || next_ == steps_.size() || has_room(next_); });
                if (stopped_ || next_ == steps_.size()) return;
                index = next_++;
            }
            std::exception_ptr failure;
            try {
                bring_in(steps_[index], incoming_[index].made, values);
            } catch (...) {
                failure = std::current_exception();
            }
            {
                const std::lock_guard lock(mutex_);
                incoming_[index].came = true;
                if (failure != nullptr) {
                    if (failure_ == nullptr) failure_ = failure;
                    stopped_ = true;
                }
            }
            step_came_.notify_one();
        }
    }

    void release(const Step& step) const {
        for (const std::span<const std::byte> part : step.file_bytes())
            if (!part.empty()) source_.release(part);
    }

    void bring_in(const Step& step, std::unique_ptr<std::byte[]>& made, std::vector<float>& values) const {
        for (const std::span<const std::byte> part : step.file_bytes())
            if (!part.empty()) source_.prefetch(part);
        if (!step.is_made()) return;
        ConstTensorView rows = step.rows;
        std::unique_ptr<std::byte[]> joined;
        if (!step.stored.empty()) {
            joined = std::make_unique_for_overwrite<std::byte[]>(rows.shape[0] * row_bytes(rows.dtype, rows.cols()));
            step.stored.read_rows(rows.dtype, step.first_row, rows.shape[0], rows.cols(), joined.get());
            rows = matrix_view<const std::byte>(joined.get(), rows.dtype, rows.shape[0], rows.cols());
        }
        made = rows.dtype == step.packed.dtype ? std::move(joined) : rounded(rows, values);
        release(step);
    }

    static std::unique_ptr<std::byte[]> rounded(const ConstTensorView& rows, std::vector<float>& values) {
        const std::int64_t cols = rows.cols();
        const std::size_t bytes_a_row = row_bytes(DType::Q8_0, cols);
        values.resize(cols);
        auto result = std::make_unique_for_overwrite<std::byte[]>(rows.shape[0] * bytes_a_row);
        for (std::int64_t row = 0; row < rows.shape[0]; ++row) {
            cpu::dequantize_row(rows.dtype, rows.row(row), values.data(), cols);
            cpu::quantize_row_q8_0(values, result.get() + row * bytes_a_row);
        }
        return result;
    }

    const WeightSource& source_;
    std::span<const Step> steps_;
    std::mutex mutex_;
    std::condition_variable room_came_, step_came_;
    std::vector<Incoming> incoming_;  // [steps]; `made` belongs to the reader of a step until it came
    std::size_t next_ = 0;            // next step to be read
    std::size_t done_bytes_ = 0;      // bytes of the files that are packed
    bool stopped_ = false;
    std::exception_ptr failure_;  // first error of any reader
    std::vector<std::thread> readers_;
};

}  // namespace

void load_weight_items(Device& device, const WeightLoadRequest& request) {
    CHECK(request.source != nullptr && request.weights != nullptr && request.n_readers >= 1 &&
              request.destinations.size() == request.items.size(),
          "{} items to {} places with {} readers", request.items.size(), request.destinations.size(),
          request.n_readers);
    CHECK(request.in_host_memory == nullptr || request.in_host_memory->size() == request.items.size());
    const std::vector<Step> steps = cut_steps(device, request);
    const std::size_t total = steps.empty() ? 0 : steps.back().end_bytes();
    const auto report = [&](std::size_t done) {
        if (request.on_progress) request.on_progress(done, total);
    };
    Packer packer(device, steps);
    report(0);
    ReadAhead ahead(*request.source, steps, request.n_readers);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        packer.pack(ahead.take(i), steps[i]);
        ahead.done(i);
        report(steps[i].end_bytes());
    }
}

}  // namespace slipstream
