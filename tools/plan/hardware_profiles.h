// Machines by name that need not be there, for planning: a card's memory, speed and link, how many of them, and the
// host. Peaks are from public data sheets; what of them is reached is an estimate, stated beside each in the source.
// Nothing here has been measured on such a machine.
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
    double memory_mib = 0.0;       // as the driver reports it
    double memory_gb_per_s = 0.0;  // peak, 10^9 bytes
    double tensor_tflops = 0.0;    // peak, 16-bit floats accumulated in 32 bits, dense
    int pcie_generation = 4;
};

enum class Board : std::uint8_t {
    Consumer,     // 16 lanes for cards, together
    Workstation,  // 16 lanes for each of two
    Laptop,       // nothing can be added
};

struct HardwareProfile {
    std::string_view name;
    CardModel card;
    int n_cards = 1;
    int lanes = 16;  // of each card
    double host_gib = 0.0;
    double host_gb_per_s = 0.0;  // peak of its memory
    Board board = Board::Consumer;
};

/// All there are.
[[nodiscard]] const std::vector<HardwareProfile>& hardware_profiles();
/// Case does not matter; nothing for a name that is none.
[[nodiscard]] std::optional<HardwareProfile> find_profile(std::string_view name);

/// "PCIe 4.0 x8".
[[nodiscard]] std::string link_text(const HardwareProfile& profile);
/// What large copies out of page-locked memory reach.
[[nodiscard]] double link_bytes_per_second(int pcie_generation, int lanes);

/// The profile as hardware for a model of that shape with that KV type. Several cards pay for a transfer of hidden rows
/// at each layer, through host memory; where matrices are split, for two sums of such rows.
[[nodiscard]] Hardware profile_hardware(const HardwareProfile& profile, const ModelConfig& config, DType kv_dtype,
                                        SplitKind split = SplitKind::Layers);

}  // namespace slipstream::tools
