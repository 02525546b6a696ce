// What bench_card measures, one figure at a time: printed as it comes, and kept as a line of JSON, so that a run that
// is cut short keeps all it had.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "kernels/cuda/module_api.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

/// Which road the bytes of a figure take, and so which rate they are held against.
enum class CardRoad : std::uint8_t {
    Memory,  // of the card
    Link,    // to the host: nothing to hold it against but itself
};

struct CardFigure {
    std::string bench;             // "copy", "memory", "matmul", "cublaslt", "attention", "op", "launch"
    std::string what;              // "Q4_K [4096, 14336]"
    std::int64_t n = 0;            // tokens, copies, rows: what the bench counts
    double seconds = 0.0;          // of one call, the median
    double spread = 0.0;           // (slowest - fastest) / median
    double bytes = 0.0;            // that a call has to move
    double flops = 0.0;            // that a call has to do on tensor cores
    double enqueue_seconds = 0.0;  // of the host, for one call
    CardRoad road = CardRoad::Memory;
};

/// One matrix against a prefill chunk, in seconds.
struct CardComparison {
    std::string what{};    // the weights' type
    double own = 0.0;      // our kernels, whose bits do not depend on company
    double as_used = 0.0;  // weights unpacked, then cuBLASLt
    double library = 0.0;  // cuBLASLt alone
};

/// What the card can do at most; 0 where that is not known.
struct CardPeaks {
    double memory_bytes_per_second = 0.0;    // from clock and bus width
    double measured_bytes_per_second = 0.0;  // of a large copy within the card, read and written
    double tensor_flops = 0.0;               // bf16 mma with float sums, at the clock that was given

    /// The data sheet's rate, else the measured one.
    [[nodiscard]] double memory() const {
        return memory_bytes_per_second > 0.0 ? memory_bytes_per_second : measured_bytes_per_second;
    }
};

/// bf16 FLOP a cycle of one multiprocessor by mma.sync with float sums; 0 for a capability that is not known. From
/// NVIDIA's architecture papers (GA100, GA102, AD102, GH100, GB202).
[[nodiscard]] double tensor_flops_per_cycle(std::int32_t sm);

/// The least time that a call can take: its bytes at memory speed or its FLOP at the peak, whichever is longer. 0 where
/// neither is known, or the bytes go over the link.
[[nodiscard]] double floor_seconds(const CardFigure& figure, const CardPeaks& peaks);

class CardReport {
public:
    /// Prints to stdout; JSON lines to `json` as well, if given, which is emptied. Throws IoError.
    explicit CardReport(const std::optional<std::filesystem::path>& json);

    /// The first lines: the card. Peaks may be completed later.
    void begin(const cuda::DeviceProperties& card, const CardPeaks& peaks);
    /// A heading over the figures that follow.
    void section(const std::string& title);
    void add(const CardFigure& figure);
    /// What batch invariance costs, and whether prompts go the quicker way.
    void compare(const CardComparison& comparison);
    /// The last line: `left_out` measurements for which there was no time.
    void end(std::int64_t left_out);

    CardPeaks peaks;

private:
    TextOutput text_;
    std::optional<TextOutput> json_;
};

}  // namespace slipstream::tools
