// Parts of bench_ops: its options, how a case is timed and printed, and one function for each family of ops.
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

namespace slipstream::bench_ops {

inline constexpr std::size_t kMemoryBytes = 512U << 20;  // of weights or KV: several times the caches
inline constexpr int kRuns = 7;
inline constexpr double kSecondsPerCase = 1.5;
inline constexpr std::int64_t kScalarTokens = 8;  // the scalar reference is not timed beyond
inline constexpr std::int64_t kTokensFromMemory =
    16;  // beyond, memory no longer matters: a few regions in turn suffice

struct Options {
    int n_threads = 1;
    bool json = false;
    std::optional<CpuForm> form;
    std::optional<DType> type;  // of weights, or of KV
    std::string op;             // empty: all
    Layout layout = Layout::Interleaved16;
    std::int64_t rows = 4096;
    std::int64_t cols = 4096;
    std::int64_t depth = 4096;
    std::vector<std::int64_t> n_tokens{1, 8, 64, 512};

    [[nodiscard]] bool wants(std::string_view name) const { return op.empty() || op == name; }
};

struct Timing {
    double median_s;
    double best_s;
    double spread;  // of the median
};

/// One warm-up, then up to kRuns runs of `pass`, by busy_seconds.
template <typename Pass>
[[nodiscard]] Timing time_runs(int n_threads, const Pass& pass) {
    pass();
    std::vector<double> seconds;
    double total = 0;
    while (seconds.size() < kRuns && (seconds.size() < 3 || total < kSecondsPerCase)) {
        const double start = busy_seconds(n_threads);
        pass();
        seconds.push_back(busy_seconds(n_threads) - start);
        total += seconds.back();
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    return {median, seconds.front(), (seconds.back() - seconds.front()) / median};
}

/// What a timed run did. `bytes` and `operations` are those of one call; a run was `n_calls` of them.
struct Case {
    std::string op;
    std::string shape;  // "[8192, 2048]"
    std::string type;
    std::int64_t n_tokens;
    double bytes;       // moved at least
    double operations;  // of floats; 0 where they do not matter
    std::size_t n_calls;
    Timing timing;
};

/// A form on a device of its own, and the memory that all cases read: ordinary numbers in every type.
struct Bench {
    const Options& options;
    const MachinePeaks& peaks;
    std::byte* memory;  // [kMemoryBytes]
    CpuDevice& device;
    Stream& stream;
    int& n_reported;

    [[nodiscard]] ExecRef exec() const { return {device, stream}; }
    [[nodiscard]] bool skips(std::int64_t n_tokens) const {
        return device.form() == CpuForm::Scalar && n_tokens > kScalarTokens;
    }
    /// Prints a line beside the peaks.
    void report(const Case& result) const;
};

/// [n, cols] floats of the device, small numbers.
[[nodiscard]] Buffer float_rows(const Bench& bench, std::int64_t n, std::int64_t cols);

void time_matmul(const Bench& bench, DType type);
/// Attention over `depth` committed positions, the writing and committing of rows, and with one token scores of groups.
void time_attention(const Bench& bench);
/// Norm, rotation, gate, sum, embedding.
void time_row_ops(const Bench& bench);

}  // namespace slipstream::bench_ops
