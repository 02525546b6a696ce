// Measures how long this machine's CPU, or a GPU, takes per byte of weights and of KV, and per copied byte: with the
// kernels and copy streams of a run, in about a second, for the types and sizes of one model. kept_rates.h keeps the
// rates, so that a start seldom measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/device.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weights.h"
#include "runtime/plan/pass_cost.h"

namespace slipstream::tools {

enum class RateEffort : std::uint8_t {
    All,      // compute and copies, over much memory
    Compute,  // compute only, over little memory: some hundredths of a second
};

struct RateQuestion {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // types and sizes; the values are not read
    WeightRounding rounding = WeightRounding::None;
    DType kv_dtype = DType::F16;
    int n_threads = 1;       // of a CPU
    Device* card = nullptr;  // GPU to measure; null: the CPU
    RateEffort effort = RateEffort::All;
};

/// MachineRates::spread above which rates are doubtful: other programs have used the machine while it was measured.
inline constexpr double kDoubtfulSpread = 0.25;

/// Where rates come from.
enum class RatesOrigin : std::uint8_t { Measured, Kept };

struct MachineRates {
    PassRates rates;                     // types that the model does not have cost as much as its slowest type
    double copy_bytes_per_second = 0.0;  // rate of copies to the device while nothing is computed, without throttling
    // Copying slows computing on a CPU, by memory bandwidth or by a core; both count as bytes of weights that are not
    // read meanwhile. A GPU has its own memory: then memory_bytes_per_second is 0 (no limit), and
    // host_bytes_per_copied_byte has no effect.
    double memory_bytes_per_second = 0.0;     // bytes of weights read while computing alone
    double host_bytes_per_copied_byte = 0.0;  // bytes of weights not read per copied byte
    double spread = 0.0;                      // median of the times of five rounds over the best of them, less 1
    RatesOrigin origin = RatesOrigin::Measured;

    /// Returns how fast a device is whose link is not throttled.
    [[nodiscard]] DeviceSpeed speed() const {
        return {rates, copy_bytes_per_second, memory_bytes_per_second, host_bytes_per_copied_byte};
    }
    [[nodiscard]] bool is_doubtful() const { return spread > kDoubtfulSpread; }
    /// Returns the rates of each of `n` CPU devices that compute at the same time. These rates must have been measured
    /// with the threads of all of them.
    [[nodiscard]] MachineRates shared_by(std::size_t n) const;
};

/// Measures: five rounds over all that is timed, and the best time of each. Allocates up to 320 MiB on the device
/// meanwhile, less if memory is short.
[[nodiscard]] MachineRates measure_rates(const RateQuestion& question);

/// Returns the types of the model's packed weights, the one with most bytes first: those that measure_rates() times.
[[nodiscard]] std::vector<DType> timed_types(const RateQuestion& question);
/// Sets the cost of all types that are not in `timed` to the cost of the slowest type in `timed`.
void fill_other_types(PassRates& rates, const std::vector<DType>& timed);
/// Returns one line that names all on which the rates depend: the version of the program and, if it is known, the
/// commit that it was built from, the CPU or GPU, its kernel variant, threads, the types and sizes that are timed.
/// Builds of one commit with different uncommitted changes have the same line.
[[nodiscard]] std::string rates_key(const RateQuestion& question);

}  // namespace slipstream::tools
