// A GPU as a device: memory under a budget, streams, events and ops, all through the function table of a module
// (module_api.h). It needs no CUDA header and no driver to be compiled or tested: with the function table of the
// emulation the same class runs on the host.
//
// Ops that take host arrays (positions, tables of KV chunks) stage them (host/staging.h), and all ops share one region
// of scratch. Both belong to the device, so its compute streams take turns: a stream that calls an op waits for what
// the stream of the previous op had enqueued. Copies are ordered only by the calls of their stream and by events.
//
// A device must be used by one host thread at a time; buffers may be destroyed by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/thread_pool.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/delta_net_launch.h"
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

/// Activations in scratch that an op has rounded for the matmuls that follow. x, x_stride, k and n_tokens identify the
/// rows.
struct PreparedActivations {
    const float* x = nullptr;   // the rows, [n_tokens, k] floats; null: none
    std::int64_t x_stride = 0;  // floats from one row to the next
    std::int64_t k = 0;
    std::int64_t n_tokens = 0;
    std::int32_t kind = 0;          // ScratchKind, of matmul_scratch_kind()
    const void* scratch = nullptr;  // device memory in which the rounded activations are
    std::uint64_t change = 0;       // CudaDevice::n_changes() in the op that wrote these activations
};
}  // namespace cuda

struct CudaDeviceOptions {
    int ordinal = 0;                          // number of the GPU in the driver's order
    std::optional<std::size_t> memory_bytes;  // memory budget; not given: what is free now, less kCardMarginBytes
    int n_threads = 1;                        // host threads, to pack weights and gather embeddings
    // Unit to which the driver rounds allocations up, if it is not to be the GPU's. 1: each buffer is an allocation of
    // its own, for tools that check the bounds of allocations (compute-sanitizer).
    std::optional<std::size_t> allocation_bytes{};
    std::function<void(std::string_view)> on_announcement{};  // gets the lines of Device::announce(), on the calling
                                                              // thread
    // Rate to which each direction of the link is slowed down, in bytes per second, also in LinkFigures; 0: no limit.
    double link_bytes_per_second = 0.0;
    // Makes passes of few tokens read weights with the kernels that use registers instead of a ring in shared memory:
    // the same bits, for comparison.
    bool weights_by_registers = false;
};

/// Returns the instruction_form() of GPU `ordinal`, which names all that its bits depend on: the compute capability
/// and, if prompts are computed with cuBLASLt, what its choice of algorithms depends on: number of multiprocessors and
/// library version ("sm_89x128+cublaslt-130100"). Loads the library and opens it on the GPU, as a device does.
[[nodiscard]] std::string card_form(const cuda::Module& module, std::int32_t ordinal,
                                    const cuda::DeviceProperties& card);

/// Bytes left free on the GPU if no memory budget is given: for the driver, the desktop, fragmentation, and memory that
/// NCCL takes by itself.
inline constexpr std::size_t kCardMarginBytes = std::size_t{1} << 30;

class CudaDevice final : public Device {
public:
    /// `module` must outlive the device. Throws CudaError if there is no such GPU, if it is too old, or if the module
    /// has no code for it.
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
    /// link_in() and link_out() return the figures of the copies to and from the device. The figures are sums over
    /// streams: two streams that copy in the same direction at once count twice.
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
    /// Returns the cuBLASLt handle of this device, for prompts; null if the library is not installed or does not open:
    /// prompts then use our own kernels. The device owns it.
    [[nodiscard]] void* blas() const { return blas_; }
    /// Returns why blas() is null, as one line; empty if it is not null.
    [[nodiscard]] const std::string& no_blas() const { return no_blas_; }
    /// Returns the pool of host threads that pack weights and gather embeddings.
    [[nodiscard]] ThreadPool& pool() { return pool_; }

    /// Does nothing if `status` is Ok. Else throws CudaError "<device>: <what>: <error>", or OutOfBudget if the GPU is
    /// out of memory.
    void check(cuda::Status status, const cuda::ErrorText& error, std::string_view what) const;

    // The functions from here on are for ops (cuda_op.h).

    /// Gives the turn to `stream`: from now on it alone uses scratch and staging, after all work that the stream with
    /// the previous turn has enqueued so far.
    void begin_turn(cuda::CudaStream& stream);
    /// A stream calls this when it is destroyed: if it has the turn (begin_turn()), no stream has it afterwards.
    void end_turn(const cuda::CudaStream& stream) noexcept;
    [[nodiscard]] cuda::Staging& staging() { return *staging_; }
    /// Returns at least `bytes` of device memory, 256-byte aligned, for the op whose stream has the turn. Grows the
    /// region if it is smaller, which blocks the host; a size that reserve_scratch() was called with needs no
    /// allocation. Throws OutOfBudget, also if it had to grow during a capture. The contents are undefined, and the
    /// next op may overwrite them.
    [[nodiscard]] std::byte* scratch(std::size_t bytes);
    void reserve_scratch(std::size_t bytes);
    /// Returns the bytes that reserve_scratch(bytes) takes from the memory budget if there is no scratch yet.
    [[nodiscard]] static std::size_t scratch_size(std::size_t bytes);
    /// Makes room for ops that stage up to `op_bytes` (Staging::device_bytes).
    void reserve_staging(std::size_t op_bytes);

    /// Returns a count of the ops begun and of all else on compute streams that may have written device memory. An op
    /// compares it to know that nothing happened since the previous op.
    [[nodiscard]] std::uint64_t n_changes() const { return n_changes_; }
    void count_change() { ++n_changes_; }
    /// Returns how often scratch or staging were moved to another address. Graphs contain such addresses.
    [[nodiscard]] std::uint64_t n_workspace_moves() const { return n_workspace_moves_; }
    void count_workspace_move() { ++n_workspace_moves_; }
    /// Returns the bytes that the driver has allocated for buffers of this device, and how many of them buffers use.
    [[nodiscard]] cuda::RegionFigures memory() const;
    [[nodiscard]] cuda::AttentionPlanner& planner() { return *planner_; }
    /// Memory for the steps of a call of delta_net().
    [[nodiscard]] std::vector<cuda::DeltaNetStep>& delta_steps() { return delta_steps_; }
    /// Returns the prepared activations if the change before wanted.change left exactly those that `wanted` describes,
    /// in a format that serves wanted.kind; else null.
    [[nodiscard]] const cuda::PreparedActivations* find_prepared(const cuda::PreparedActivations& wanted) const;
    void keep_prepared(const cuda::PreparedActivations& prepared) { prepared_ = prepared; }
    /// Forgets prepared activations of rows that overlap [data, data + bytes), which a copy stream will overwrite. A
    /// caller that orders its streams by events must enqueue such a copy after the op that reads the rows.
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
    std::unique_ptr<cuda::LinkPace> pace_in_;  // slows the link down; null: it is not slowed down
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
    std::vector<cuda::DeltaNetStep> delta_steps_;
};

}  // namespace slipstream
