#include "kernels/cpu/stream.h"

#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cpu/event.h"

namespace slipstream::cpu {

namespace {

class ComputeStream final : public Stream {
public:
    void copy(void* dst, const void* src, std::size_t bytes) override {
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
};

}  // namespace

std::unique_ptr<Stream> make_compute_stream() {
    return std::make_unique<ComputeStream>();
}

}  // namespace slipstream::cpu
