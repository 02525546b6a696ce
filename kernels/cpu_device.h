// The CPU as a device: a budget, a thread pool, an op table chosen for the machine, asynchronous copy streams. With a
// budget and a throttled link it stands in for a card: what it holds, and when bytes get there, is then as on one.
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

/// Instruction forms of the CPU kernels, weakest first. Results of two forms agree to rounding, not to the bit.
enum class CpuForm : std::uint8_t { Scalar, Avx2, Avx512, Avx512Vnni, Avx512Bf16 };
inline constexpr CpuForm kCpuForms[] = {CpuForm::Scalar, CpuForm::Avx2, CpuForm::Avx512, CpuForm::Avx512Vnni,
                                        CpuForm::Avx512Bf16};
[[nodiscard]] std::string_view cpu_form_name(CpuForm form);
/// Whether this machine has the instructions of a form (AVX2 means with FMA and F16C; AVX-512 means F, BW, VL, DQ;
/// Avx512Vnni adds VNNI, Avx512Bf16 adds BF16 to that).
[[nodiscard]] bool cpu_has_form(CpuForm form);
/// The strongest form that pays on this machine: Avx512Bf16 where bfloat16 dot products take half of the time of float
/// ones (AMD since Zen 4), not where they take twice as long (Intel's without tiles).
[[nodiscard]] CpuForm best_cpu_form();

struct CpuDeviceOptions {
    int n_threads = 1;                              // the caller's thread included
    std::size_t memory_bytes = Budget::kUnlimited;  // budget
    std::optional<CpuForm> form;                    // forced form, for tests; must be one the machine has
    std::string name = "cpu";                       // in messages
    double link_bytes_per_second = 0.0;             // of copy streams, each direction; 0: as fast as memory is
    CpuFaults* faults = nullptr;                    // for tests (cpu_faults.h); must outlive the device
};

/// Memory that an op needs beside its arguments.
struct CpuScratch {
    std::size_t thread_bytes = 0;  // of each thread of the pool
    std::size_t shared_bytes = 0;  // one region that an op's pieces share
};
[[nodiscard]] constexpr CpuScratch larger_of(const CpuScratch& a, const CpuScratch& b) {
    return {std::max(a.thread_bytes, b.thread_bytes), std::max(a.shared_bytes, b.shared_bytes)};
}

/// Also the context that CPU kernels get: they reach the pool through here.
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
    /// False where the system hands huge pages out so slowly that weights went to small ones; decoding is a little
    /// slower.
    [[nodiscard]] bool huge_pages_come_quickly() const { return huge_pages_come_quickly_; }

    /// Makes sure that so much scratch is there; called by an op before it uses the pool. Grows only, so that steady
    /// state allocates nothing; what was in scratch that grows is lost. Not to be used by two ops at once.
    void reserve_scratch(const CpuScratch& scratch);
    /// What `scratch` takes of the budget of a device that has reserved none.
    [[nodiscard]] std::size_t scratch_bytes(const CpuScratch& scratch) const;
    /// 64-byte aligned; valid until the next reserve_scratch. `thread` as the pool gives it.
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
    bool huge_pages_come_quickly_ = true;   // until an allocation of weights finds otherwise
    std::size_t thread_scratch_bytes_ = 0;  // of each thread
    Buffer thread_scratch_;
    Buffer shared_scratch_;
};

}  // namespace slipstream
