// Hardware as `plan` sees it: devices with memory budgets, their links to the host, and the host, which all devices
// share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/plan/pass_cost.h"

namespace slipstream::tools {

/// Devices, links and host. The DeviceSpeed is that of each device; its memory bandwidth is the host's, which all links
/// (and CPU devices) share.
struct Hardware : DeviceSpeed {
    std::string name;    // "2x4090", "this machine"
    std::string device;  // name of each device: "RTX 4090", "cpu"
    std::string link;    // link of each device: "PCIe 4.0 x8", "memory, measured", "throttled"
    int n_devices = 1;
    std::size_t device_bytes = 0;          // budget of each device; SIZE_MAX: no budget
    std::vector<std::size_t> budgets{};    // bytes, [n_devices], if given for each device, else empty
    std::size_t workspace_bytes = 0;       // workspace of ops, in each budget; ignored if PlanRequest::run is set
    std::vector<double> links{};           // bytes per second, [n_devices], if given for each device, else empty
    std::size_t host_bytes = 0;            // host memory; 0: unknown
    std::size_t host_budget_bytes = 0;     // most host memory for what streams; 0: unknown
    bool devices_in_host_memory = false;   // CPU devices: resident items take host memory, too
    PassRates host_rates;                  // rates of all host cores together, which compute on weights in host memory
    std::string rates_source = "profile";  // origin of `rates`: "profile", or of this machine "kept" or "measured"
    double rates_spread = 0.0;             // MachineRates::spread of this machine's rates; 0 for a profile

    [[nodiscard]] std::size_t budget_of(std::size_t index) const {
        return budgets.empty() ? device_bytes : budgets[index];
    }
    [[nodiscard]] double link_of(std::size_t index) const {
        return links.empty() ? link_bytes_per_second : links[index];
    }
    [[nodiscard]] DeviceSpeed speed_of(std::size_t index) const {
        DeviceSpeed speed = *this;
        speed.link_bytes_per_second = link_of(index);
        return speed;
    }
};

}  // namespace slipstream::tools
