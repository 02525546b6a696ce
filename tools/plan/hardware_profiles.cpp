#include "tools/plan/hardware_profiles.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "runtime/plan/expert_bytes.h"

namespace slipstream::tools {

namespace {

// Peak figures of the GPUs. Memory and bandwidth: product pages. Tensor throughput with 32-bit accumulation: tables in
// the architecture papers of GA102 (71), Ada (165.2) and Blackwell RTX (209.5); of the laptop GPU: computed from its 36
// multiprocessors at about 2 GHz (0.512 TFLOPS per multiprocessor and GHz, as in the 4090).
constexpr CardModel kRtx3090{"RTX 3090", 24576, 936.2, 71.0, 4};
constexpr CardModel kRtx4090{"RTX 4090", 24564, 1008.0, 165.2, 4};
constexpr CardModel kRtx5090{"RTX 5090", 32607, 1792.0, 209.5, 5};
constexpr CardModel kRtx4070Laptop{"RTX 4070 Laptop", 8188, 256.0, 36.0, 4};

// Fractions of the peaks that are reached (estimated).
constexpr double kMemoryReached = 0.85;  // fraction of memory bandwidth, by large sequential reads of a kernel
constexpr double kFloatReached = 0.50;   // fraction of tensor throughput, in passes of up to some hundred tokens
constexpr double kCodesReached = 0.30;   // fraction of peak tensor throughput (estimated), if a kernel unpacks weights
constexpr double kAttentionReached = 0.25;  // fraction of tensor throughput, by attention
// Fraction of the PCIe rate of a lane after 128b/130b coding: packet headers and flow control leave about 80 % to
// copies, 25.2 GB/s for 4.0 x16 (TriForce's figures imply 25.4 GB/s: Sun et al. 2024, arXiv 2404.11912, section 5).
constexpr double kLinkReached = 0.80;
constexpr double kHostReached = 0.75;  // fraction of the peak of DDR5 channels, when GPUs read host memory
// Floating-point operations per second of the host's CPU (estimated): 16 cores at 4 GHz, 32 operations per cycle
// (AVX2), half of them reached. In a pass of one token memory bandwidth is the limit even with four channels. All
// profiles use this value: a profile states the host's memory, not its processor; a laptop has fewer cores.
constexpr double kHostFlops = 1.0e12;
// MiB of GPU memory that a plan leaves free: driver, context and display, and the 1 GiB that --device-memory leaves
// free by default.
constexpr double kReservedMib = 600.0 + 1024.0;
constexpr std::size_t kWorkspaceBytes = std::size_t{256} << 20;  // workspace of kernels
constexpr double kHostShare = 0.8;       // fraction of host memory that may be pinned by default
constexpr double kLayerSeconds = 30e-6;  // per layer: about twelve kernel launches from a CUDA graph
// Per layer with experts, beside that: launches one by one, three copies and a wait for the host (estimated from an
// H200).
constexpr double kExpertLayerSeconds = 80e-6;
// Per layer of a model with recurrent layers, whose passes use no graphs: twelve launches one by one.
constexpr double kUngraphedLayerSeconds = 28e-6;
constexpr double kPassSeconds = 300e-6;     // per pass: embedding, logits to the host, sampling
constexpr double kTransferSeconds = 30e-6;  // per transfer through host memory, both ways, of any size

constexpr double kMib = 1024.0 * 1024.0;

double lane_bytes_per_second(int pcie_generation) {
    switch (pcie_generation) {
        case 3:
            return 8e9 / 8.0 * 128.0 / 130.0;
        case 4:
            return 16e9 / 8.0 * 128.0 / 130.0;
        case 5:
            return 32e9 / 8.0 * 128.0 / 130.0;
        default:
            break;
    }
    check_failed(__FILE__, __LINE__, "pcie_generation", fmt::format("generation {}", pcie_generation));
}

}  // namespace

const std::vector<HardwareProfile>& hardware_profiles() {
    // A consumer board gives two GPUs 8 PCIe lanes each; 16 lanes each need a workstation board. DDR5 in two channels
    // runs at 5600 MT/s with two modules and at 4800 MT/s with four; in eight channels at 4400 MT/s.
    static const std::vector<HardwareProfile> kProfiles{
        {"1x3090", kRtx3090, 1, 16, 128, 76.8, Board::Consumer},
        {"2x3090", kRtx3090, 2, 8, 192, 76.8, Board::Consumer},
        {"2x3090-x16", kRtx3090, 2, 16, 256, 281.6, Board::Workstation},
        {"1x4090", kRtx4090, 1, 16, 128, 76.8, Board::Consumer},
        {"2x4090", kRtx4090, 2, 8, 192, 76.8, Board::Consumer},
        {"2x4090-x16", kRtx4090, 2, 16, 256, 281.6, Board::Workstation},
        {"5090", kRtx5090, 1, 16, 96, 89.6, Board::Consumer},
        {"2x5090", kRtx5090, 2, 8, 192, 76.8, Board::Consumer},
        {"laptop-8gb", kRtx4070Laptop, 1, 8, 32, 89.6, Board::Laptop},
    };
    return kProfiles;
}

std::optional<HardwareProfile> find_profile(std::string_view name) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    const auto same = [&](std::string_view other) {
        return std::equal(name.begin(), name.end(), other.begin(), other.end(),
                          [&](char a, char b) { return lower(a) == lower(b); });
    };
    for (const HardwareProfile& profile : hardware_profiles())
        if (same(profile.name) || (profile.name == "5090" && same("1x5090"))) return profile;
    return std::nullopt;
}

std::string link_text(const HardwareProfile& profile) {
    return fmt::format("PCIe {}.0 x{}", profile.card.pcie_generation, profile.lanes);
}

double link_bytes_per_second(int pcie_generation, int lanes) {
    return kLinkReached * lanes * lane_bytes_per_second(pcie_generation);
}

Hardware profile_hardware(const HardwareProfile& profile, const ModelConfig& config, DType kv_dtype, SplitKind split) {
    const CardModel& card = profile.card;
    Hardware hardware;
    hardware.name = profile.name;
    hardware.device = card.name;
    hardware.link = link_text(profile);
    hardware.n_devices = profile.n_cards;
    hardware.device_bytes = static_cast<std::size_t>((card.memory_mib - kReservedMib) * kMib);
    hardware.workspace_bytes = kWorkspaceBytes;
    hardware.link_bytes_per_second = link_bytes_per_second(card.pcie_generation, profile.lanes);
    hardware.memory_bytes_per_second = kHostReached * profile.host_gb_per_s * 1e9;
    hardware.host_bytes = static_cast<std::size_t>(profile.host_gib * 1024.0 * kMib);
    hardware.host_budget_bytes = static_cast<std::size_t>(kHostShare * static_cast<double>(hardware.host_bytes));

    const double bytes_per_second = kMemoryReached * card.memory_gb_per_s * 1e9;
    const double flops_per_second = card.tensor_tflops * 1e12;
    for (int i = 0; i < kDTypeCount; ++i) {
        const DTypeInfo& type = dtype_info(static_cast<DType>(i));
        const double flops_per_byte =
            2.0 * static_cast<double>(type.block_elements) / static_cast<double>(type.block_bytes);
        hardware.rates.weights[i] = ByteCost::roofline(
            bytes_per_second, (type.block_elements > 1 ? kCodesReached : kFloatReached) * flops_per_second,
            flops_per_byte);
        hardware.host_rates.weights[i] =
            ByteCost::roofline(hardware.memory_bytes_per_second, kHostFlops, flops_per_byte);
    }
    const KvLayout kv = config.kv_layout(config.first_attention_layer(), kv_dtype);
    const double kv_flops_per_byte = 2.0 * static_cast<double>(kv.head_dim) / static_cast<double>(kv.head_row_bytes());
    hardware.rates.kv = ByteCost::roofline(bytes_per_second, kAttentionReached * flops_per_second, kv_flops_per_byte);
    hardware.host_rates.kv = ByteCost::roofline(hardware.memory_bytes_per_second, kHostFlops, kv_flops_per_byte);
    hardware.rates.layer_seconds = kLayerSeconds + kExpertLayerSeconds * static_cast<double>(n_expert_layers(config)) /
                                                       static_cast<double>(config.n_layers());
    if (config.is_recurrent()) hardware.rates.layer_seconds += kUngraphedLayerSeconds;
    hardware.rates.pass_seconds = kPassSeconds;
    // Seconds for each token in a layer, beside products: norms, RoPE and gates read and write the token's activations,
    // floats, about four times.
    hardware.rates.layer_token_seconds =
        4.0 * sizeof(float) * static_cast<double>(3 * config.d_model + config.max_d_ff()) / bytes_per_second;
    if (profile.n_cards > 1) {
        // The hidden-state rows of a layer are copied to the host, then to the GPU of the next layer, or to all GPUs
        // that sum them.
        const double n_transfers = split == SplitKind::Layers ? 1.0 : 2.0;
        const double n_in = split == SplitKind::Layers ? 1.0 : profile.n_cards - 1.0;
        const double bytes = (1.0 + n_in) * sizeof(float) * static_cast<double>(config.d_model);
        hardware.rates.layer_seconds += n_transfers * kTransferSeconds;
        hardware.rates.layer_token_seconds += n_transfers * bytes / hardware.link_bytes_per_second;
    }
    return hardware;
}

}  // namespace slipstream::tools
