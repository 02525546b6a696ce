// Compute devices: parses a list of devices, finds them on this machine, and makes them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu_faults.h"
#include "kernels/cuda/host/cuda_module.h"
#include "kernels/device.h"

namespace slipstream::tools {

/// Returns the GPUs of this machine. The CUDA module is searched in the program's folder, in ../lib/slipstream and in
/// ../lib from there.
[[nodiscard]] CudaCards cuda_cards();

/// A device that was chosen but not made yet.
struct DeviceChoice {
    std::optional<int> card;               // ordinal of the GPU; nothing: the CPU
    const cuda::Module* module = nullptr;  // CUDA module of the GPU; null: the CPU
    std::string why;                       // why `auto` chose this device; empty for a CPU that was named
    std::string form;                      // kernel variant (Device::instruction_form())

    [[nodiscard]] DeviceKind kind() const { return card ? DeviceKind::Cuda : DeviceKind::Cpu; }
    /// Returns "cpu" or "cuda:0".
    [[nodiscard]] std::string name() const;
};

/// Returns the devices that `list` names, in its order. "auto" is the first GPU that can be used and has enough free
/// memory, or the CPU if there is none. A list may name the CPU several times, but a GPU only once. `where` names the
/// option in errors: "--devices". Throws UsageError if the list is malformed or names a GPU twice; RequestError, with
/// the reason, if a named GPU does not exist or cannot be used.
[[nodiscard]] std::vector<DeviceChoice> choose_devices(std::string_view list = "auto",
                                                       std::string_view where = "--devices");

/// Returns "cpu" or "cuda", as sessions store it.
[[nodiscard]] std::string_view device_kind_name(DeviceKind kind);

/// Kinds and kernel variants of several devices: all that the bits of a text depend on in its devices.
struct DeviceForms {
    std::string kinds;   // "cpu", "cuda,cpu"; a single name if is_one
    std::string forms;   // kernel variants: "avx512", "sm_89,avx512"; a single one if is_one
    bool is_one = true;  // whether all devices have the same kind and kernel variant
};
/// Returns the kinds and kernel variants of `devices` (at least one), in their order.
[[nodiscard]] DeviceForms device_forms(const std::vector<DeviceChoice>& devices);

/// Limits of one device.
struct DeviceLimits {
    std::optional<std::size_t> memory_bytes;  // memory budget; not given: none on a CPU, which computes in place; on a
                                              // GPU what is free less a margin
    // Rate of each direction of the link; 0: not throttled. Has no effect on a CPU without memory_bytes.
    double link_bytes_per_second = 0.0;
    bool operator==(const DeviceLimits&) const = default;
};

struct DeviceRequest {
    int n_threads = 1;
    DeviceLimits limits{};
    int number = 0;  // number among several devices, from 1, for messages; 0: the only one
    std::function<void(std::string_view)> on_announcement{};  // GPU: gets the lines of Device::announce()
    CpuFaults* faults = nullptr;  // CPU: faults and stop flag; must outlive the device; null: none
};
/// Makes the device. Throws CudaError, OutOfBudget.
[[nodiscard]] std::unique_ptr<Device> make_compute_device(const DeviceChoice& choice, const DeviceRequest& request);

}  // namespace slipstream::tools
