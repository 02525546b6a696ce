// Hardware as a plan sees it: devices with a budget, their links, and a host that all of them share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/plan/pass_cost.h"

namespace slipstream::tools {

struct Hardware {
    std::string name;    // "2x4090", "this machine"
    std::string device;  // of each: "RTX 4090", "cpu"
    std::string link;    // of each: "PCIe 4.0 x8", "throttled", "memory"
    int n_devices = 1;
    std::size_t device_bytes = 0;          // budget of each; the largest size_t: none
    std::vector<std::size_t> budgets{};    // of the devices, where they differ
    std::size_t workspace_bytes = 0;       // of it, beside what the model's shape says
    double link_bytes_per_second = 0.0;    // of each, host to device
    std::vector<double> links{};           // of the devices, where they differ
    double memory_bytes_per_second = 0.0;  // of the host, for all links (and CPU devices) together; 0: no limit
    double host_bytes_per_copied_byte = 1.0;
    std::size_t host_bytes = 0;            // memory of the host; 0: not known
    std::size_t host_budget_bytes = 0;     // of it, for what streams; 0: not known
    bool devices_in_host_memory = false;   // CPU devices: what is resident takes host memory, too
    PassRates rates;                       // of one device
    PassRates host_rates;                  // of all of the host's cores, computing in place
    std::string rates_source = "profile";  // of `rates`; of this machine: "kept", "measured"
    double rates_spread = 0.0;             // of this machine: MachineRates::spread

    [[nodiscard]] std::size_t budget_of(std::size_t index) const {
        return budgets.empty() ? device_bytes : budgets[index];
    }
    [[nodiscard]] double link_of(std::size_t index) const {
        return links.empty() ? link_bytes_per_second : links[index];
    }
};

}  // namespace slipstream::tools
