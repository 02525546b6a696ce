#include "kernels/cpu/stream.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu/event.h"

namespace slipstream::cpu {

namespace {

class ComputeStream final : public Stream {
public:
    ComputeStream(CpuFaults* faults, std::string place) : faults_(faults), place_(std::move(place)) {}

    void copy(void* dst, const void* src, std::size_t bytes) override {
        if (faults_ != nullptr && fault_is_due(faults_->rows_until_failure))
            throw IoError(fmt::format(
                "{}: a copy of {} bytes failed, as was asked of this device; take the fault out of its options", place_,
                bytes));
        if (bytes > 0) std::memcpy(dst, src, bytes);
    }
    std::uint64_t record(Event& event) override {
        const std::uint64_t use = as_cpu(event).next_use();
        as_cpu(event).complete(use, {});
        return use;
    }
    void wait(const Event& event, std::uint64_t use) override {
        check_recorded(event, use);
        as_cpu(event).block_until(use);
        if (const std::string failure = as_cpu(event).failure_of(use); !failure.empty()) throw IoError(failure);
    }
    void synchronize() override {}

private:
    CpuFaults* faults_;
    const std::string place_;
};

}  // namespace

std::unique_ptr<Stream> make_compute_stream(CpuFaults* faults, const std::string& place) {
    return std::make_unique<ComputeStream>(faults, place);
}

}  // namespace slipstream::cpu
