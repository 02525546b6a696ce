#include "kernels/host_collective.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/elementwise.h"

namespace slipstream {

class HostCollective::Rank final : public Collective {
public:
    Rank(HostCollective& all, std::size_t index, Device& device)
        : all_(all), index_(index), device_(device), copied_(device.make_event()) {
        slots_ = device.allocate_host(device_bytes(all.slot_bytes_), MemoryTag::Activations, "sums between devices");
    }

    void all_reduce(ExecRef exec, const TensorView& y) override;
    void abort() noexcept override { all_.meeting_.abort(); }
    void restart() override { all_.restart(); }

    [[nodiscard]] bool has_come(std::uint64_t call) const { return come_.load() >= call; }
    void begin_anew() {
        n_calls_ = 0;
        come_ = 0;
    }

private:
    // One rank's part of a sum, [n_rows, d], that was copied to a slot; use `use` of copied_ was recorded after the
    // copy.
    struct Part {
        std::int64_t n_rows = 0;
        std::int64_t d = 0;
        std::uint64_t use = 0;
    };

    [[nodiscard]] std::byte* slot(std::uint64_t call) const { return slots_.data() + call % 2 * all_.slot_bytes_; }
    void copy_out(ExecRef exec, const TensorView& y);
    void add_parts(ExecRef exec, const TensorView& y);

    HostCollective& all_;
    const std::size_t index_;
    Device& device_;
    std::unique_ptr<Event> copied_;
    Buffer slots_;                 // [2][slot_bytes_], host memory
    std::array<Part, 2> parts_{};  // what the slots hold; other ranks read it after has_come()
    std::uint64_t n_calls_ = 0;
    std::atomic<std::uint64_t> come_{0};  // number of calls whose parts other ranks may read
};

void HostCollective::Rank::all_reduce(ExecRef exec, const TensorView& y) {
    CHECK(y.dtype == DType::F32 && y.packed() && &exec.device == &device_);
    CHECK(y.rows() * y.row_stride_bytes <= all_.slot_bytes_, "{} rows of {} bytes in {}", y.rows(), y.row_stride_bytes,
          all_.slot_bytes_);
    if (all_.meeting_.aborted()) RankMeeting::throw_aborted();
    ++n_calls_;
    try {
        copy_out(exec, y);
        come_ = n_calls_;
        all_.meeting_.announce();
        for (const auto& other : all_.ranks_)
            all_.meeting_.await([&] { return other->has_come(n_calls_); },
                                [&] { return fmt::format("{} has not arrived", other->device_.name()); });
        add_parts(exec, y);
    } catch (const CollectiveAborted&) {
        throw;
    } catch (const Error& error) {
        throw IoError(fmt::format("sums: {}", error.what()));
    }
}

void HostCollective::Rank::copy_out(ExecRef exec, const TensorView& y) {
    exec.stream.copy(slot(n_calls_), y.data, y.rows() * y.row_stride_bytes);
    parts_[n_calls_ % 2] = {.n_rows = y.rows(), .d = y.cols(), .use = exec.stream.record(*copied_)};
}

// Adds the parts of all ranks in the order of the ranks, with the result in y. Two terms have the same sum in either
// order, so ranks 0 and 1 start with their own part and add the other.
void HostCollective::Rank::add_parts(ExecRef exec, const TensorView& y) {
    for (const auto& other : all_.ranks_) {
        const Part& part = other->parts_[n_calls_ % 2];
        CHECK(part.n_rows == y.rows() && part.d == y.cols(), "call {}: [{}, {}] of {}, [{}, {}] of {}: out of step",
              n_calls_, y.rows(), y.cols(), device_.name(), part.n_rows, part.d, other->device_.name());
        if (other.get() != this) exec.stream.wait(*other->copied_, part.use);
    }
    std::size_t next = 0;
    if (index_ >= 2) {
        exec.stream.copy(y.data, all_.ranks_.front()->slot(n_calls_), y.rows() * y.row_stride_bytes);
        next = 1;
    }
    for (; next < all_.ranks_.size(); ++next) {
        if (next == index_ && index_ < 2) continue;
        const std::byte* part = all_.ranks_[next]->slot(n_calls_);
        add(exec, {.x = matrix_view(part, DType::F32, y.rows(), y.cols()), .y = y});
    }
}

HostCollective::HostCollective(std::span<Device* const> devices, std::size_t bytes, std::chrono::nanoseconds lost_after)
    : slot_bytes_(bytes), meeting_(lost_after) {
    CHECK(!devices.empty());
    for (Device* device : devices) {
        CHECK(device->kind() == devices.front()->kind(), "sums between devices of several kinds");
        ranks_.push_back(std::make_unique<Rank>(*this, ranks_.size(), *device));
    }
}

HostCollective::~HostCollective() = default;

Collective& HostCollective::rank(std::size_t rank) {
    return *ranks_.at(rank);
}

void HostCollective::restart() {
    meeting_.restart();
    for (const auto& rank : ranks_) rank->begin_anew();
}

}  // namespace slipstream
