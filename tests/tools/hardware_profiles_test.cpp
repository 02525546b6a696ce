// Profiles of hardware: their names, and figures that follow from data sheets.
#include "tools/plan/hardware_profiles.h"

#include <gtest/gtest.h>

#include "tools/plan/model_shapes.h"

namespace slipstream::tools {
namespace {

Hardware hardware(std::string_view profile, std::string_view shape = "llama-70b") {
    return profile_hardware(find_profile(profile).value(), find_shape(shape).value(), DType::F16);
}

TEST(HardwareProfiles, AreFoundByName) {
    for (const std::string_view name : {"2x4090", "1x4090", "2x3090", "5090", "laptop-8gb", "2X4090", "1x5090"})
        EXPECT_TRUE(find_profile(name)) << name;
    EXPECT_FALSE(find_profile("4091"));
    EXPECT_FALSE(find_profile(""));
}

TEST(HardwareProfiles, LinksGiveFourFifthsOfTheirLanes) {
    EXPECT_NEAR(link_bytes_per_second(3, 16), 12.6e9, 0.1e9);
    EXPECT_NEAR(link_bytes_per_second(4, 16), 25.2e9, 0.1e9);
    EXPECT_NEAR(link_bytes_per_second(4, 8), 12.6e9, 0.1e9);
    EXPECT_NEAR(link_bytes_per_second(5, 16), 50.4e9, 0.1e9);
}

TEST(HardwareProfiles, ConsumerBoardsShareTheirLanes) {
    EXPECT_EQ(link_text(find_profile("1x4090").value()), "PCIe 4.0 x16");
    EXPECT_EQ(link_text(find_profile("2x4090").value()), "PCIe 4.0 x8");
    EXPECT_EQ(link_text(find_profile("2x3090").value()), "PCIe 4.0 x8");
    EXPECT_EQ(link_text(find_profile("2x4090-x16").value()), "PCIe 4.0 x16");
    EXPECT_EQ(link_text(find_profile("5090").value()), "PCIe 5.0 x16");
    EXPECT_EQ(link_text(find_profile("laptop-8gb").value()), "PCIe 4.0 x8");
}

TEST(HardwareProfiles, FiguresOfA4090) {
    const Hardware card = hardware("1x4090");
    EXPECT_EQ(card.n_devices, 1);
    EXPECT_NEAR(static_cast<double>(card.device_bytes) / (1 << 30), 22.4, 0.05);
    EXPECT_NEAR(card.memory_bytes_per_second, 57.6e9, 0.1e9);
    EXPECT_EQ(card.host_bytes, std::size_t{128} << 30);
    EXPECT_NEAR(static_cast<double>(card.host_budget_bytes) / static_cast<double>(card.host_bytes), 0.8, 1e-6);
    EXPECT_FALSE(card.devices_in_host_memory);
    EXPECT_EQ(card.rates.host_bytes_per_second, 0.0);
    // One token: 85 % of 1008 GB/s. A thousand: half of 165 TFLOP/s, an operation a byte and token.
    const ByteCost& f16 = card.rates.weights[static_cast<std::size_t>(DType::F16)];
    EXPECT_NEAR(1.0 / f16.seconds(1), 857e9, 1e9);
    EXPECT_NEAR(1000.0 / f16.seconds(1000), 82.6e12, 0.1e12);
    // Codes hold more weights a byte, and cost more to unpack.
    const ByteCost& q4 = card.rates.weights[static_cast<std::size_t>(DType::Q4_K)];
    EXPECT_NEAR(1.0 / q4.seconds(1), 857e9, 1e9);
    EXPECT_NEAR(1000.0 * 256.0 * 2.0 / 144.0 / q4.seconds(1000), 49.6e12, 0.1e12);
}

TEST(HardwareProfiles, SeveralCardsPayForHiddenStateTransfers) {
    const Hardware one = hardware("1x4090");
    const Hardware two = hardware("2x4090");
    EXPECT_EQ(two.n_devices, 2);
    EXPECT_NEAR(two.rates.layer_seconds - one.rates.layer_seconds, 30e-6, 1e-9);
    // 8192 floats to the host and on, once a layer, over x8.
    EXPECT_NEAR(two.rates.layer_token_seconds - one.rates.layer_token_seconds, 2 * 8192 * 4 / 12.6e9, 1e-7);
}

// By the share of layers that have experts.
TEST(HardwareProfiles, LayersOfExpertsPayForTheHostsChoice) {
    const double dense = hardware("1x4090").rates.layer_seconds;
    EXPECT_NEAR(hardware("1x4090", "qwen3-30b-a3b").rates.layer_seconds - dense, 80e-6, 1e-9);
    EXPECT_NEAR(hardware("1x4090", "glm-4.5-air").rates.layer_seconds - dense, 80e-6 * 45.0 / 46.0, 1e-9);
}

}  // namespace
}  // namespace slipstream::tools
