// The device that computes: what a list of devices names, whether it is there, and the device itself.
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

/// The cards of this machine, through the module that lies beside the program or in its folder of libraries.
[[nodiscard]] CudaCards cuda_cards();

/// A device that was chosen and not made yet.
struct DeviceChoice {
    std::optional<int> card;               // nothing: the CPU
    const cuda::Module* module = nullptr;  // of the card
    std::string why;                       // it was chosen, where no option says so
    std::string form;                      // the instruction form of its kernels

    [[nodiscard]] DeviceKind kind() const { return card ? DeviceKind::Cuda : DeviceKind::Cpu; }
    /// "cpu", "cuda:0".
    [[nodiscard]] std::string name() const;
};

/// What `list` names, in its order: "auto" is the first card that serves, or the CPU where there is none; a CPU may be
/// there several times, a card once. UsageError where the list is malformed; RequestError where it names what is not
/// there, with the reason. `where` is who said so, for messages: "--devices".
[[nodiscard]] std::vector<DeviceChoice> choose_devices(std::string_view list = "auto",
                                                       std::string_view where = "--devices");

/// "cpu", "cuda": what a session remembers.
[[nodiscard]] std::string_view device_kind_name(DeviceKind kind);

/// What decides the bits of a text, of all devices together.
struct DeviceForms {
    std::string kinds;   // "cpu", "cuda,cpu"; once where all are of one kind and form
    std::string forms;   // "avx512", "sm_89,avx512"
    bool is_one = true;  // all are of one kind and form
};
[[nodiscard]] DeviceForms device_forms(const std::vector<DeviceChoice>& devices);

struct DeviceRequest {
    int n_threads = 1;
    std::optional<std::size_t> memory_bytes;  // not given: no limit on a CPU; on a GPU what is free, less a margin
    double link_bytes_per_second = 0.0;       // 0: not throttled
    int number = 0;                           // among several devices, from 1, for messages; 0: it is the only one
    std::function<void(std::string_view)> on_announcement{};  // hears Device::announce()
    CpuFaults* faults = nullptr;                              // of a CPU device: how it hears of a stop; outlives it
};
/// Throws CudaError, OutOfBudget.
[[nodiscard]] std::unique_ptr<Device> make_compute_device(const DeviceChoice& choice, const DeviceRequest& request);

}  // namespace slipstream::tools
