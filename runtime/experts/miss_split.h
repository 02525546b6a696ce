// Which of the experts that a pass needs and the device lacks are copied over the link, and which are computed from
// host memory by the CPU. Pure: no clocks, no devices. The rates are those of the plan, so that the same text is served
// in the same way at each run; its bits do not depend on it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "offload/byte_cost.h"

namespace slipstream {

/// What happens to a needed expert that is not on the device: it is copied over the link, computed from host memory by
/// the CPU, or (Auto) whichever ends first by the plan's rates.
enum class ExpertMisses : std::uint8_t { Auto, Copy, Cpu };
/// Returns "auto", "copy" or "cpu".
[[nodiscard]] std::string_view expert_misses_name(ExpertMisses misses);

/// Rates of what misses use.
struct MissRates {
    double link_bytes_per_second = 0.0;
    double memory_bytes_per_second = 0.0;     // of host memory; 0: no limit
    double host_bytes_per_copied_byte = 1.0;  // bytes of host memory's bandwidth that a copied byte takes
};

/// What one missed expert of a layer costs.
struct MissCost {
    struct Part {
        double bytes = 0.0;
        ByteCost cost{};  // of the CPU
    };
    std::vector<Part> parts{};
    MissRates rates{};

    [[nodiscard]] double bytes() const;
    /// Returns the seconds in which the CPU computes it for so many tokens.
    [[nodiscard]] double compute_seconds(double n_tokens) const;
    /// Returns the seconds that its copy takes on the link.
    [[nodiscard]] double copy_seconds() const { return bytes() / rates.link_bytes_per_second; }
    /// Returns the seconds in which host memory is read once for it; 0: memory is no limit.
    [[nodiscard]] double memory_seconds() const {
        return rates.memory_bytes_per_second > 0.0 ? bytes() / rates.memory_bytes_per_second : 0.0;
    }
};

/// Returns how many of a layer's missed experts, the first ones, should be copied; the CPU computes the others
/// meanwhile. `n_tokens`: of each missed expert, how many tokens chose it. Copies, computing and host memory work at
/// the same time, so the longest of the three decides: returns the number for which it is least (ties: the smallest).
[[nodiscard]] std::int64_t missed_to_copy(std::span<const std::int64_t> n_tokens, const MissCost& cost);

/// Returns missed_to_copy() as a share, 0 to 1, of very many missed experts that `n_tokens` tokens chose each: what a
/// plan expects.
[[nodiscard]] double share_to_copy(double n_tokens, const MissCost& cost);

/// How passes serve the experts that they need and the device lacks.
struct MissRules {
    ExpertMisses misses = ExpertMisses::Copy;
    std::vector<MissCost> costs{};  // [layers of the device's model]; only of Auto
    /// For tests: who is copied, and who gets which slot, is drawn by (this seed, pass, layer, expert) instead. Any
    /// choice must give the same bits. Only of Auto.
    std::optional<std::uint64_t> shuffle_seed{};
};

}  // namespace slipstream
