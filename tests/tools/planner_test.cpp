// What the planner decides without a plan: which devices are alike, and where missing experts are computed.
#include "tools/engine/planner.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tools/engine/engine_options.h"

namespace slipstream::tools {
namespace {

TEST(AreAlike, OnlyIfNothingDiffers) {
    const DeviceTraits card{.card = "A", .card_bytes = 24, .form = "sm_90", .limits = {8, 1e9}};
    EXPECT_TRUE(are_alike(std::vector{card}));
    EXPECT_TRUE(are_alike(std::vector{card, card, card}));
    const auto differs = [&](auto&& change) {
        DeviceTraits other = card;
        change(other);
        return !are_alike(std::vector{card, card, other});
    };
    EXPECT_TRUE(differs([](DeviceTraits& other) { other.card = "B"; }));
    EXPECT_TRUE(differs([](DeviceTraits& other) { other.card_bytes = 12; }));
    EXPECT_TRUE(differs([](DeviceTraits& other) { other.form = "avx2"; }));
    EXPECT_TRUE(differs([](DeviceTraits& other) { other.limits.memory_bytes = 9; }));
    EXPECT_TRUE(differs([](DeviceTraits& other) { other.limits.memory_bytes.reset(); }));
    EXPECT_TRUE(differs([](DeviceTraits& other) { other.limits.link_bytes_per_second = 2e9; }));
}

TEST(ExpertMissesOfADevice, AreCopiedToGpus) {
    for (const std::optional<ExpertMisses> asked :
         {std::optional<ExpertMisses>(), std::optional(ExpertMisses::Copy), std::optional(ExpertMisses::Cpu)}) {
        EXPECT_EQ(expert_misses(DeviceKind::Cuda, asked), ExpertMisses::Copy);
        EXPECT_EQ(expert_misses(DeviceKind::Cpu, asked), asked.value_or(ExpertMisses::Cpu));
    }
}

}  // namespace
}  // namespace slipstream::tools
