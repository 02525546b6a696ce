// A card as a device: memory under a budget, streams, events, ops, all through the table of functions of a module
// (module_api.h). No CUDA header and no driver needed to compile or to test: on the emulation's table the same class
// runs on the host.
//
// Ops that take host arrays (positions, tables of chunks) stage them (cuda/staging.h), and share one region of scratch.
// Both belong to the device, so its compute streams take turns: one that comes to an op waits for what the one before
// had enqueued. What a stream copies is ordered by its own calls and by events alone.
//
// A device is used by one host thread at a time; buffers may be dropped by any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/thread_pool.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/module_api.h"
#include "kernels/device.h"

namespace slipstream {

namespace cuda {
class AttentionPlanner;
class CudaStream;
class LinkMeter;
class LinkPace;
class MemoryRegions;
class Staging;
struct RegionFigures;

/// Activations that lie in scratch, rounded for matmuls, and the op that left them there.
struct PreparedActivations {
    const float* x = nullptr;  // null: none
    std::int64_t x_stride = 0;
    std::int64_t k = 0;
    std::int64_t n_tokens = 0;
    std::int32_t kind = 0;  // matmul_scratch_kind()
    const void* scratch = nullptr;
    std::uint64_t change = 0;  // n_changes() in that op
};
}  // namespace cuda

struct CudaDeviceOptions {
    int ordinal = 0;                          // as the driver counts cards
    std::optional<std::size_t> memory_bytes;  // budget; not given: what is free now, less a margin
    int n_threads = 1;                        // of the host, to pack weights and gather embeddings
    // What the driver rounds allocations up to, where not as the card says; 1: a buffer is an allocation, for tools
    // that look at the borders of those (compute-sanitizer).
    std::optional<std::size_t> allocation_bytes{};
    std::function<void(std::string_view)> on_announcement{};  // hears Device::announce(), on the thread of the call
    // Both directions of the link seem to carry no more than this, also in the figures; 0: as it is.
    double link_bytes_per_second = 0.0;
    // Passes of few tokens read weights by the form before the ring in shared memory: the same bits, for comparison.
    bool weights_by_registers = false;
};

/// What the bits of card `ordinal` depend on, its instruction_form(): the compute capability and, where prompts go
/// through cuBLASLt, what its choice of algorithms looks at: multiprocessors, and its version
/// ("sm_89x128+cublaslt-130100"). Loads the library and opens it on the card, as a device does.
[[nodiscard]] std::string card_form(const cuda::Module& module, std::int32_t ordinal,
                                    const cuda::DeviceProperties& card);

/// What a budget that nobody names leaves free on the card: for the driver, the desktop, fragmentation.
inline constexpr std::size_t kCardMarginBytes = std::size_t{1} << 30;

class CudaDevice final : public Device {
public:
    /// `module` outlives the device. Throws CudaError where there is no such card, it is too old, or the module holds
    /// no code that it runs.
    CudaDevice(const cuda::Module& module, const CudaDeviceOptions& options);
    ~CudaDevice() override;
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::Cuda; }
    [[nodiscard]] std::string_view name() const override { return name_; }
    [[nodiscard]] std::string_view instruction_form() const override { return form_; }
    [[nodiscard]] bool has_prompt_kernels() const override { return blas_ != nullptr; }
    [[nodiscard]] Budget& budget() override { return budget_; }
    [[nodiscard]] Buffer allocate(std::size_t bytes, MemoryTag tag, std::string_view what) override;
    [[nodiscard]] Buffer allocate_host(std::size_t bytes, MemoryTag tag, std::string_view what) override;
    [[nodiscard]] std::string register_host(std::byte* data, std::size_t bytes) override;
    void unregister_host(std::byte* data) noexcept override;
    [[nodiscard]] std::unique_ptr<Stream> make_stream(StreamKind kind) override;
    [[nodiscard]] std::unique_ptr<Event> make_event() override;
    /// Sums over streams: two that copy the same way at once count twice.
    [[nodiscard]] LinkFigures link_in() const override;
    [[nodiscard]] LinkFigures link_out() const override;
    [[nodiscard]] const OpTable& ops() const override;
    void announce(std::string_view line) override {
        if (on_announcement_) on_announcement_(line);
    }

    [[nodiscard]] const cuda::Module& table() const { return *module_; }
    [[nodiscard]] std::int32_t ordinal() const { return ordinal_; }
    [[nodiscard]] const cuda::DeviceProperties& properties() const { return *properties_; }
    [[nodiscard]] bool weights_by_registers() const { return weights_by_registers_; }
    [[nodiscard]] cuda::AttentionCard attention_card() const {
        return {properties_->n_multiprocessors, static_cast<std::size_t>(properties_->l2_bytes)};
    }
    /// cuBLASLt of this device, for prompts; null where the library is not there or does not open: own kernels then
    /// compute them.
    [[nodiscard]] void* blas() const { return blas_; }
    /// Why there is none, in a line; empty where there is one.
    [[nodiscard]] const std::string& no_blas() const { return no_blas_; }
    /// Threads of the host that prepare what the card gets.
    [[nodiscard]] ThreadPool& pool() { return pool_; }

    /// Throws CudaError "<device>: <what>: <error>" unless `status` is Ok; OutOfBudget where the card is out of memory.
    void check(cuda::Status status, const cuda::ErrorText& error, std::string_view what) const;

    // For ops (cuda/cuda_op.h).

    /// From here on `stream` alone uses scratch and staging, behind what the streams before it had enqueued.
    void begin_turn(cuda::CudaStream& stream);
    /// A stream that has ended takes no turns any more.
    void end_turn(const cuda::CudaStream& stream) noexcept;
    [[nodiscard]] cuda::Staging& staging() { return *staging_; }
    /// At least `bytes` of device memory, 256-byte aligned, for the op whose turn it is. Grows; what reserve_scratch()
    /// took is never asked for again.
    [[nodiscard]] std::byte* scratch(std::size_t bytes);
    void reserve_scratch(std::size_t bytes);
    /// What reserve_scratch() takes of the budget of a device that has none.
    [[nodiscard]] static std::size_t scratch_size(std::size_t bytes);
    /// Room for ops that stage up to `op_bytes` (Staging::device_bytes).
    void reserve_staging(std::size_t op_bytes);

    /// Ops begun, and what else on compute streams may have written device memory: so that an op can tell that nothing
    /// came between it and the one before.
    [[nodiscard]] std::uint64_t n_changes() const { return n_changes_; }
    void count_change() { ++n_changes_; }
    /// Times that scratch or staging have got another place; graphs hold addresses in them.
    [[nodiscard]] std::uint64_t n_workspace_moves() const { return n_workspace_moves_; }
    void count_workspace_move() { ++n_workspace_moves_; }
    /// What the driver has given for what the budget counts.
    [[nodiscard]] cuda::RegionFigures memory() const;
    [[nodiscard]] cuda::AttentionPlanner& planner() { return *planner_; }
    /// What the op before left, where these are among it; null: they are not.
    [[nodiscard]] const cuda::PreparedActivations* find_prepared(const cuda::PreparedActivations& wanted) const;
    void keep_prepared(const cuda::PreparedActivations& prepared) { prepared_ = prepared; }
    /// A copy stream is to write [data, data + bytes) from here on: what was prepared of rows there is forgotten.
    /// Whoever orders its streams by events enqueues such a copy behind the op that read the rows.
    void count_copy(const void* data, std::size_t bytes);

private:
    friend class cuda::CudaStream;
    static void release(void* owner, std::byte* data, std::size_t bytes) noexcept;

    const cuda::Module* module_;
    std::int32_t ordinal_;
    std::string name_;
    std::unique_ptr<cuda::DeviceProperties> properties_;
    std::string form_;
    Budget budget_;
    std::function<void(std::string_view)> on_announcement_;
    std::unique_ptr<cuda::MemoryRegions> regions_;
    ThreadPool pool_;
    bool weights_by_registers_;
    std::unique_ptr<cuda::LinkMeter> link_in_;
    std::unique_ptr<cuda::LinkMeter> link_out_;
    std::unique_ptr<cuda::LinkPace> pace_in_;  // null: as the link is
    std::unique_ptr<cuda::LinkPace> pace_out_;
    std::uint64_t n_changes_ = 0;
    std::uint64_t n_workspace_moves_ = 0;
    void* blas_ = nullptr;
    std::string no_blas_;
    cuda::PreparedActivations prepared_;
    cuda::CudaStream* turn_ = nullptr;
    std::unique_ptr<Event> turn_ended_;
    Buffer scratch_;
    std::unique_ptr<cuda::Staging> staging_;
    std::unique_ptr<cuda::AttentionPlanner> planner_;
};

}  // namespace slipstream
