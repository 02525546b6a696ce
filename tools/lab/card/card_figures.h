// Reports the figures of `slipstream-lab card` one by one: each is printed at once and also written as a line of JSON,
// so that a run that is interrupted keeps its figures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "kernels/cuda/module_api.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

/// The path of a figure's bytes, which determines the peak rate that they are compared with.
enum class CardRoad : std::uint8_t {
    Memory,  // GPU memory
    Link,    // to or from the host; there is no peak to compare with
};

struct CardFigure {
    std::string bench;             // "copy", "memory", "matmul", "cublaslt", "attention", "op", "launch"
    std::string what;              // "Q4_K [4096, 14336]"
    std::int64_t n = 0;            // tokens, copies or rows, depending on the bench
    double seconds = 0.0;          // seconds of one call; the median
    double spread = 0.0;           // (slowest - fastest) / median
    double bytes = 0.0;            // least bytes that a call moves
    double flops = 0.0;            // operations of a call on tensor cores
    double enqueue_seconds = 0.0;  // seconds that the host needs to enqueue one call
    CardRoad road = CardRoad::Memory;
};

/// Times of one matrix by a prefill chunk, in seconds.
struct CardComparison {
    std::string what{};    // name of the weights' type
    double own = 0.0;      // this project's kernels, which are batch invariant
    double as_used = 0.0;  // seconds as prompts are computed: weights are unpacked, then cuBLASLt
    double library = 0.0;  // cuBLASLt alone, on unpacked weights
};

/// Peak rates of the GPU; 0 if unknown.
struct CardPeaks {
    double memory_bytes_per_second = 0.0;    // peak of the GPU's memory, computed from clock and bus width
    double measured_bytes_per_second = 0.0;  // of a large copy within the GPU: bytes read plus bytes written
    double tensor_flops = 0.0;               // FLOP per second of bf16 mma with float sums, at the clock of --sm-mhz

    /// Returns the rate computed from clock and bus width if it is known, else the measured one.
    [[nodiscard]] double memory() const {
        return memory_bytes_per_second > 0.0 ? memory_bytes_per_second : measured_bytes_per_second;
    }
};

/// Returns the bf16 FLOP per cycle of one multiprocessor by mma.sync with float sums, 0 for an unknown compute
/// capability. From NVIDIA's architecture papers (GA100, GA102, AD102, GH100, GB202).
[[nodiscard]] double tensor_flops_per_cycle(std::int32_t sm);

/// Returns the least possible time of a call: its bytes at memory speed or its FLOP at the peak rate, whichever takes
/// longer. Bytes over the link do not count. 0 if no peak rate applies.
[[nodiscard]] double floor_seconds(const CardFigure& figure, const CardPeaks& peaks);

class CardReport {
public:
    /// Prints to stdout and, if `json` is given, writes JSON lines to that file, which is emptied first. Throws
    /// IoError.
    explicit CardReport(const std::optional<std::filesystem::path>& json);

    /// Reports the GPU. The caller may complete `peaks` afterwards.
    void begin(const cuda::DeviceProperties& card, const CardPeaks& peaks);
    /// Prints a heading for the figures that follow.
    void section(const std::string& title);
    void add(const CardFigure& figure);
    /// Reports the cost of batch invariance, and whether prompts take the faster path.
    void compare(const CardComparison& comparison);
    /// Reports the end: `left_out` measurements were skipped because time ran out.
    void end(std::int64_t left_out);

    CardPeaks peaks;

private:
    TextOutput text_;
    std::optional<TextOutput> json_;
};

}  // namespace slipstream::tools
