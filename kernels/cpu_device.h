// The CPU as a device: a budget, a thread pool, an op table chosen for the machine, asynchronous copy streams.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "kernels/base/thread_pool.h"
#include "kernels/device.h"

namespace slipstream {

/// Instruction forms of the CPU kernels, weakest first. Results of two forms agree to rounding, not to the bit.
enum class CpuForm : std::uint8_t { Scalar, Avx2, Avx512, Avx512Vnni };
inline constexpr CpuForm kCpuForms[] = {CpuForm::Scalar, CpuForm::Avx2, CpuForm::Avx512, CpuForm::Avx512Vnni};
[[nodiscard]] std::string_view cpu_form_name(CpuForm form);
/// The strongest form that this machine runs (AVX2 means with FMA and F16C; AVX-512 means F, BW, VL, DQ;
/// Avx512Vnni adds VNNI).
[[nodiscard]] CpuForm best_cpu_form();

struct CpuDeviceOptions {
    int n_threads = 1;                              // the caller's thread included
    std::size_t memory_bytes = Budget::kUnlimited;  // budget
    std::optional<CpuForm> form;                    // forced form, for tests; must be one the machine runs
};

/// Also the context that CPU kernels get: they reach the pool through here.
class CpuDevice final : public Device {
public:
    explicit CpuDevice(const CpuDeviceOptions& options);

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::Cpu; }
    [[nodiscard]] std::string_view name() const override { return "cpu"; }
    [[nodiscard]] std::string_view instruction_form() const override { return cpu_form_name(form_); }
    [[nodiscard]] Budget& budget() override { return budget_; }
    [[nodiscard]] Buffer allocate(std::size_t bytes, MemoryTag tag, std::string_view what) override;
    [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamKind kind) override;
    [[nodiscard]] std::unique_ptr<Event> make_event() override;
    [[nodiscard]] const OpTable& ops() const override { return *ops_; }

    [[nodiscard]] ThreadPool& pool() { return pool_; }
    [[nodiscard]] CpuForm form() const { return form_; }
    /// False where the system hands huge pages out so slowly that weights went to small ones; decoding is a little
    /// slower.
    [[nodiscard]] bool huge_pages_come_quickly() const { return huge_pages_come_quickly_; }

    /// Makes sure that every thread of the pool has `bytes` of scratch; called by an op before it uses the pool. Grows
    /// only, so that steady state allocates nothing; what was in it is lost.
    void reserve_thread_scratch(std::size_t bytes);
    /// 64-byte aligned; valid until the next reserve_thread_scratch. `thread` as the pool gives it.
    [[nodiscard]] std::byte* thread_scratch(int thread) const {
        return scratch_.data() + static_cast<std::size_t>(thread) * scratch_bytes_;
    }

    /// The same for one region that an op's pieces share. Not to be used by two ops at once.
    void reserve_shared_scratch(std::size_t bytes);
    [[nodiscard]] std::byte* shared_scratch() const { return shared_scratch_.data(); }

private:
    CpuForm form_;
    Budget budget_;
    ThreadPool pool_;
    const OpTable* ops_;
    bool huge_pages_come_quickly_ = true;  // until an allocation of weights finds otherwise
    std::size_t scratch_bytes_ = 0;        // of each thread
    Buffer scratch_;
    Buffer shared_scratch_;
};

}  // namespace slipstream
