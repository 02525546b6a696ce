// What becomes of the experts that a pass needs and the device lacks. It changes no bit of a text.
#pragma once

#include <cstdint>
#include <optional>

namespace slipstream {

/// Copy: they are copied over the link. Cpu: the CPU computes them where they are in host memory.
enum class ExpertMisses : std::uint8_t { Copy, Cpu };

struct MissRules {
    ExpertMisses misses = ExpertMisses::Copy;
    /// For tests, with Copy: who is copied, who is computed by the CPU, and who gets which slot is drawn by (this seed,
    /// pass, layer, expert).
    std::optional<std::uint64_t> shuffle_seed{};
};

}  // namespace slipstream
