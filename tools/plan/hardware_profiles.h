// Named machines for planning, which need not exist here: memory, speed and link of a GPU, the number of GPUs, and the
// host. Peak figures are from public data sheets; the fraction of a peak that is reached is an estimate, stated in
// hardware_profiles.cpp. Nothing was measured on such a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/dtype.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "tools/plan/hardware.h"

namespace slipstream::tools {

struct CardModel {
    std::string_view name;
    double memory_mib = 0.0;       // memory of the GPU in MiB, as the driver reports it
    double memory_gb_per_s = 0.0;  // peak of the GPU's memory, in 10^9 bytes per second
    double tensor_tflops = 0.0;    // peak in 10^12 FLOP per second: dense, 16-bit floats accumulated in 32 bits
    int pcie_generation = 4;
};

enum class Board : std::uint8_t {
    Consumer,     // 16 PCIe lanes for all GPUs together
    Workstation,  // 16 PCIe lanes for each of two GPUs
    Laptop,       // no GPU and no memory can be added
};

struct HardwareProfile {
    std::string_view name;
    CardModel card;
    int n_cards = 1;
    int lanes = 16;  // PCIe lanes of each GPU
    double host_gib = 0.0;
    double host_gb_per_s = 0.0;  // peak of the host's memory, in 10^9 bytes per second
    Board board = Board::Consumer;
};

/// Returns all profiles.
[[nodiscard]] const std::vector<HardwareProfile>& hardware_profiles();
/// Returns the profile of that name, in any case ("1x5090" also means "5090"), or nullopt if there is none.
[[nodiscard]] std::optional<HardwareProfile> find_profile(std::string_view name);

/// Returns the link of a GPU as text: "PCIe 4.0 x8".
[[nodiscard]] std::string link_text(const HardwareProfile& profile);
/// Returns the rate, in bytes per second, that large copies from pinned memory are estimated to reach.
[[nodiscard]] double link_bytes_per_second(int pcie_generation, int lanes);

/// Returns the hardware of `profile` for planning a model of shape `config` with KV of type `kv_dtype`. With several
/// GPUs, the time of each layer includes transfers of its hidden-state rows through host memory: one transfer if the
/// GPUs have different layers (SplitKind::Layers), two sums of rows if they share matrices (SplitKind::Tensor).
[[nodiscard]] Hardware profile_hardware(const HardwareProfile& profile, const ModelConfig& config, DType kv_dtype,
                                        SplitKind split = SplitKind::Layers);

}  // namespace slipstream::tools
