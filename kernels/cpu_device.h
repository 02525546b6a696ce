// The CPU as a device: a budget, a thread pool, an op table chosen for the machine, asynchronous copy streams. With a
// budget and a throttled link it emulates a GPU in what it holds and in when bytes arrive.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/thread_pool.h"
#include "kernels/device.h"

namespace slipstream {

struct CpuFaults;
namespace cpu {
class LinkClock;
}

/// Kernel variants of the CPU, weakest first. Results of two variants agree up to rounding, not to the bit.
enum class CpuForm : std::uint8_t { Scalar, Avx2, Avx512, Avx512Vnni, Avx512Bf16 };
inline constexpr CpuForm kCpuForms[] = {CpuForm::Scalar, CpuForm::Avx2, CpuForm::Avx512, CpuForm::Avx512Vnni,
                                        CpuForm::Avx512Bf16};
[[nodiscard]] std::string_view cpu_form_name(CpuForm form);
/// Whether this machine has the instructions of a kernel variant (AVX2 means with FMA and F16C; AVX-512 means F, BW,
/// VL, DQ; Avx512Vnni adds VNNI, Avx512Bf16 adds BF16 to that).
[[nodiscard]] bool cpu_has_form(CpuForm form);
/// Returns the strongest kernel variant that pays on this machine. Avx512Bf16 pays if bfloat16 dot products take half
/// of the time of float ones (AMD since Zen 4), not if they take twice as long (Intel CPUs without tiles).
[[nodiscard]] CpuForm best_cpu_form();

struct CpuDeviceOptions {
    int n_threads = 1;                              // compute threads, the thread that calls ops included
    std::size_t memory_bytes = Budget::kUnlimited;  // memory budget
    std::optional<CpuForm> form;                    // forces a kernel variant, for tests; the machine must have it
    std::string name = "cpu";                       // name of the device in messages
    double link_bytes_per_second = 0.0;             // rate of copy streams, per direction; 0: as fast as memory
    CpuFaults* faults = nullptr;  // faults for tests, stop flag (cpu_faults.h); must outlive the device
};

/// Sizes of the scratch memory that an op needs beside its arguments. The device owns the memory.
struct CpuScratch {
    std::size_t thread_bytes = 0;  // bytes of scratch for each thread of the pool
    std::size_t shared_bytes = 0;  // bytes of one region of scratch that all threads of an op share
};
[[nodiscard]] constexpr CpuScratch larger_of(const CpuScratch& a, const CpuScratch& b) {
    return {std::max(a.thread_bytes, b.thread_bytes), std::max(a.shared_bytes, b.shared_bytes)};
}

/// The CPU as a device. It is also the context of CPU kernels, which use its thread pool and scratch.
class CpuDevice final : public Device {
public:
    explicit CpuDevice(const CpuDeviceOptions& options);
    ~CpuDevice() override;
    CpuDevice(const CpuDevice&) = delete;
    CpuDevice& operator=(const CpuDevice&) = delete;

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::Cpu; }
    [[nodiscard]] std::string_view name() const override { return name_; }
    [[nodiscard]] std::string_view instruction_form() const override { return cpu_form_name(form_); }
    [[nodiscard]] Budget& budget() override { return budget_; }
    [[nodiscard]] Buffer allocate(std::size_t bytes, MemoryTag tag, std::string_view what) override;
    [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamKind kind) override;
    [[nodiscard]] std::unique_ptr<Event> make_event() override;
    [[nodiscard]] LinkFigures link_in() const override;
    [[nodiscard]] LinkFigures link_out() const override;
    [[nodiscard]] const OpTable& ops() const override;

    [[nodiscard]] ThreadPool& pool() { return pool_; }
    [[nodiscard]] CpuForm form() const { return form_; }
    /// False if the system gave huge pages so slowly that weights got small ones; decoding is then a little slower.
    [[nodiscard]] bool huge_pages_come_quickly() const { return huge_pages_come_quickly_; }

    /// Allocates scratch up to the size of `scratch`; an op calls it before it uses the pool. Scratch only grows, so
    /// that steady state allocates nothing; the contents of scratch that grows are lost. Two ops must not use scratch
    /// at the same time.
    void reserve_scratch(const CpuScratch& scratch);
    /// Returns the bytes of the budget that `scratch` takes on a device that has reserved none.
    [[nodiscard]] std::size_t scratch_bytes(const CpuScratch& scratch) const;
    /// Returns the scratch of one thread, 64-byte aligned, valid until the next reserve_scratch(). `thread` is the
    /// number that the pool passes to a job.
    [[nodiscard]] std::byte* thread_scratch(int thread) const {
        return thread_scratch_.data() + static_cast<std::size_t>(thread) * thread_scratch_bytes_;
    }
    [[nodiscard]] std::byte* shared_scratch() const { return shared_scratch_.data(); }

private:
    std::string name_;
    CpuForm form_;
    Budget budget_;
    ThreadPool pool_;
    const OpTable* ops_;
    CpuFaults* faults_;
    std::unique_ptr<cpu::LinkClock> link_in_;
    std::unique_ptr<cpu::LinkClock> link_out_;
    bool huge_pages_come_quickly_ = true;   // false once they came slowly to an allocation of weights
    std::size_t thread_scratch_bytes_ = 0;  // scratch of each thread
    Buffer thread_scratch_;
    Buffer shared_scratch_;
};

}  // namespace slipstream
