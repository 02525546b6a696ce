// Common parts of `slipstream-lab ops`: its options, timing and output of a case, and one function per family of ops.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu_device.h"
#include "kernels/pack_weights.h"
#include "tools/machine/machine_peaks.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools::ops {

inline constexpr std::size_t kMemoryBytes =
    512U << 20;                  // bytes of weights or KV of a measured op: several times the size of the caches
inline constexpr int kRuns = 7;  // most timed runs of a case
inline constexpr double kSecondsPerCase = 1.5;
inline constexpr std::int64_t kScalarTokens = 8;  // the scalar reference is not timed with more tokens
inline constexpr std::int64_t kTokensFromMemory =
    16;  // with more tokens, compute is the limit: a few matrices in turn suffice

struct Options {
    int n_threads = 1;
    bool json = false;
    std::optional<CpuForm> form;
    std::optional<DType> type;  // type of weights or of KV; none: all
    std::string op;             // empty: all
    Layout layout = Layout::Interleaved16;
    std::int64_t rows = 4096;
    std::int64_t cols = 4096;
    std::int64_t depth = 4096;
    std::int64_t query_heads = 32;
    std::int64_t kv_heads = 8;
    std::vector<std::int64_t> n_tokens{1, 8, 64, 512};

    [[nodiscard]] bool wants(std::string_view name) const { return op.empty() || op == name; }
};

struct Timing {
    double median_s;
    double best_s;
    double spread;  // (slowest - fastest) / median
};

/// Times `pass` by busy_seconds(): one run to warm up, then 3 to kRuns runs, until they have taken kSecondsPerCase.
/// Throws Interrupted after a signal.
template <typename Pass>
[[nodiscard]] Timing time_runs(int n_threads, const Pass& pass) {
    pass();
    std::vector<double> seconds;
    double total = 0;
    while (seconds.size() < kRuns && (seconds.size() < 3 || total < kSecondsPerCase)) {
        throw_if_interrupted();
        const double start = busy_seconds(n_threads);
        pass();
        seconds.push_back(busy_seconds(n_threads) - start);
        total += seconds.back();
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    return {median, seconds.front(), (seconds.back() - seconds.front()) / median};
}

/// A timed case. `bytes` and `operations` are those of one call; each run makes `n_calls` calls.
struct Case {
    std::string op;
    std::string shape;  // "[8192, 2048]"
    std::string type;
    std::int64_t n_tokens;
    double bytes;       // least bytes that a call moves
    double operations;  // floating-point operations; 0: not counted
    std::size_t n_calls;
    Timing timing;
};

/// A device with one kernel variant, and the memory that all cases read, which decodes to normal numbers in every type.
struct Bench {
    const Options& options;
    const MachinePeaks& peaks;
    std::byte* memory;  // [kMemoryBytes]
    CpuDevice& device;
    Stream& stream;
    TextOutput& output;
    int& n_reported;

    [[nodiscard]] ExecRef exec() const { return {device, stream}; }
    [[nodiscard]] bool skips(std::int64_t n_tokens) const {
        return device.form() == CpuForm::Scalar && n_tokens > kScalarTokens;
    }
    /// Writes a line with the figures as a percentage of the peaks.
    void report(const Case& result) const;
};

/// Returns [n, cols] floats in device memory, with small values.
[[nodiscard]] Buffer float_rows(const Bench& bench, std::int64_t n, std::int64_t cols);

void time_matmul(const Bench& bench, DType type);
/// Times attention over `depth` committed positions and over as many slots of view pages, writing and committing KV
/// rows, and for one token the scores of slot groups and the rounding of rows to pages.
void time_attention(const Bench& bench);
/// Times norm, RoPE, gate, sum and embedding.
void time_row_ops(const Bench& bench);

}  // namespace slipstream::tools::ops
