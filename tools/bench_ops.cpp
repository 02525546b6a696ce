// bench_ops: matmul of every weight type and CPU form over real shapes, beside what the machine itself can do, measured
// in the same run: read bandwidth (one pass over the weights) and the peak of f32 fused multiply-adds.
//
//   bench_ops [--threads N] [--json] [--form scalar|avx2|avx512|avx512_vnni] [--type Q8_0] [--rows M] [--cols K]
//             [--tokens n,n,...] [--row-major]
//
// Weights are packed, unless --row-major is given. They lie in several matrices that are larger than the caches
// together and are used in turn, so that each call reads them from memory. Times are medians of kRuns runs, a run being
// one pass over all matrices; spread is (slowest - fastest) / median. One thread is timed by its CPU time, which a busy
// neighbour stretches less than the clock on the wall.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "tools/machine_peaks.h"

namespace slipstream {
namespace {

constexpr int kRuns = 7;
constexpr double kSecondsPerCase = 1.5;           // fewer runs where one takes long
constexpr std::size_t kWeightBytes = 512U << 20;  // of all matrices of a type
constexpr std::int64_t kScalarTokens = 8;         // the reference is not measured beyond

struct Options {
    int n_threads = 1;
    bool json = false;
    Layout layout = Layout::Interleaved16;
    std::optional<CpuForm> form;
    std::optional<DType> type;
    std::int64_t rows = 4096;
    std::int64_t cols = 4096;
    std::vector<std::int64_t> n_tokens{1, 8, 64, 512};
};

std::int64_t parse_number(std::string_view text, std::string_view option) {
    const std::string copy(text);
    char* end = nullptr;
    const long long value = std::strtoll(copy.c_str(), &end, 10);
    if (copy.empty() || *end != '\0' || value < 1 || value > (1 << 20))
        throw RequestError(fmt::format("{} {}: not a number from 1 to {}; give one", option, text, 1 << 20));
    return value;
}

CpuForm parse_form(std::string_view text) {
    for (const CpuForm form : kCpuForms) {
        if (cpu_form_name(form) != text) continue;
        if (form > best_cpu_form())
            throw RequestError(
                fmt::format("--form {}: this machine has {}; ask for that", text, cpu_form_name(best_cpu_form())));
        return form;
    }
    throw RequestError(fmt::format("--form {}: unknown; give scalar, avx2, avx512 or avx512_vnni", text));
}

DType parse_type(std::string_view text) {
    for (int i = 0; i < kDTypeCount; ++i)
        if (dtype_name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
    throw RequestError(fmt::format("--type {}: unknown; give a name such as BF16 or Q4_K", text));
}

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        if (option == "--json") {
            options.json = true;
            continue;
        }
        if (option == "--row-major") {
            options.layout = Layout::RowMajor;
            continue;
        }
        if (i + 1 == argc)
            throw RequestError(fmt::format("{}: unknown, or without its value; see the head of bench_ops.cpp", option));
        const std::string_view value = argv[++i];
        if (option == "--threads") {
            options.n_threads = static_cast<int>(std::min<std::int64_t>(parse_number(value, option), 1024));
        } else if (option == "--form") {
            options.form = parse_form(value);
        } else if (option == "--type") {
            options.type = parse_type(value);
        } else if (option == "--rows") {
            options.rows = parse_number(value, option);
        } else if (option == "--cols") {
            options.cols = parse_number(value, option);
        } else if (option == "--tokens") {
            options.n_tokens.clear();
            for (std::size_t begin = 0; begin <= value.size();) {
                const std::size_t comma = std::min(value.find(',', begin), value.size());
                options.n_tokens.push_back(parse_number(value.substr(begin, comma - begin), option));
                begin = comma + 1;
            }
        } else {
            throw RequestError(fmt::format("{}: unknown option; see the head of bench_ops.cpp", option));
        }
    }
    return options;
}

struct Timing {
    double median_s;
    double best_s;
    double spread;  // of the median
};

/// One warm-up, then up to kRuns runs of `pass`, by busy_seconds.
template <typename Pass>
Timing time_runs(int n_threads, const Pass& pass) {
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

/// Bytes that decode to ordinary numbers in every type (subnormal ones would be slow): each 16-bit field is a sign and
/// 0x38.. to 0x3b.., so a binary16 from 0.5 to 1, or the upper half of a small float.
void fill_weights(std::byte* data, std::size_t bytes) {
    std::uint64_t state = 1;
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const std::uint64_t word = ((state >> 5) & 0x83ff83ff83ff83ffU) | 0x3800380038003800U;
        std::memcpy(data + i, &word, sizeof(word));
    }
}

class Bench {
public:
    Bench(const Options& options, const MachinePeaks& peaks, Buffer& weights)
        : options_(options), peaks_(peaks), weights_(weights) {}

    void run(CpuForm form, DType type) {
        CpuDevice device({.n_threads = options_.n_threads, .form = form});
        const auto stream = device.make_stream(StreamKind::Compute);
        const std::size_t matrix_bytes = packed_bytes(type, options_.rows, options_.cols);
        if (matrix_bytes > weights_.size_bytes())
            throw RequestError(fmt::format("--rows {} --cols {}: a matrix of {} bytes, at most {}", options_.rows,
                                           options_.cols, matrix_bytes, weights_.size_bytes()));
        for (const std::int64_t n : options_.n_tokens) {
            if (form == CpuForm::Scalar && n > kScalarTokens) continue;
            // Few tokens: all matrices, from memory. Many: memory no longer matters, two matrices suffice.
            const std::size_t all = weights_.size_bytes() / matrix_bytes;
            const std::size_t n_matrices = form == CpuForm::Scalar || n > 16 ? std::min<std::size_t>(all, 2) : all;
            const auto x_floats = static_cast<std::size_t>(n * options_.cols);
            const auto y_floats = static_cast<std::size_t>(n * options_.rows);
            const Buffer x = device.allocate(x_floats * sizeof(float), MemoryTag::Activations, "activations");
            const Buffer y = device.allocate(y_floats * sizeof(float), MemoryTag::Activations, "outputs");
            auto* x_data = reinterpret_cast<float*>(x.data());
            for (std::size_t i = 0; i < x_floats; ++i) x_data[i] = static_cast<float>(i % 17) - 8.0F;
            const Timing timing = time_runs(options_.n_threads, [&] {
                for (std::size_t i = 0; i < n_matrices; ++i)
                    matmul({device, *stream}, {.weights = matrix(i, matrix_bytes, type),
                                               .x = matrix_view(x_data, n, options_.cols),
                                               .y = matrix_view(y.data(), DType::F32, n, options_.rows),
                                               .bias = {}});
            });
            print(form, type, n, timing, matrix_bytes, n_matrices);
        }
    }

private:
    /// The bytes of the weights serve for either layout.
    [[nodiscard]] ConstTensorView matrix(std::size_t i, std::size_t matrix_bytes, DType type) const {
        ConstTensorView view =
            matrix_view<const std::byte>(weights_.data() + i * matrix_bytes, type, options_.rows, options_.cols);
        view.layout = options_.layout;
        return view;
    }

    void print(CpuForm form, DType type, std::int64_t n, const Timing& timing, std::size_t matrix_bytes,
               std::size_t n_matrices) const {
        const double seconds = timing.median_s / static_cast<double>(n_matrices);
        const double gb_per_s = static_cast<double>(matrix_bytes) / seconds * 1e-9;
        const double gflop_per_s = 2.0 * static_cast<double>(options_.rows * options_.cols * n) / seconds * 1e-9;
        const double best_ms = timing.best_s / static_cast<double>(n_matrices) * 1e3;
        const double of_read = 100 * gb_per_s / peaks_.read_gb_per_s;
        const double of_fma = 100 * gflop_per_s / peaks_.fma_gflop_per_s;
        if (options_.json) {
            fmt::print(
                "{{\"op\":\"matmul\",\"form\":\"{}\",\"type\":\"{}\",\"m\":{},\"k\":{},\"n\":{},\"threads\":{},"
                "\"ms\":{:.4f},\"best_ms\":{:.4f},\"spread\":{:.3f},\"gb_per_s\":{:.2f},\"gflop_per_s\":{:.1f},"
                "\"read_peak_gb_per_s\":{:.2f},\"fma_peak_gflop_per_s\":{:.1f}}}\n",
                cpu_form_name(form), dtype_name(type), options_.rows, options_.cols, n, options_.n_threads,
                seconds * 1e3, best_ms, timing.spread, gb_per_s, gflop_per_s, peaks_.read_gb_per_s,
                peaks_.fma_gflop_per_s);
        } else {
            fmt::print(
                "{:11} {:5} n={:<4} {:9.3f} ms (best {:9.3f}) +-{:3.0f}%  {:7.2f} GB/s ({:3.0f}%)  {:7.1f} GFLOP/s "
                "({:3.0f}%)\n",
                cpu_form_name(form), dtype_name(type), n, seconds * 1e3, best_ms, 50 * timing.spread, gb_per_s, of_read,
                gflop_per_s, of_fma);
        }
        std::fflush(stdout);
    }

    const Options& options_;
    const MachinePeaks& peaks_;
    Buffer& weights_;
};

void run(const Options& options) {
    CpuDevice owner({.n_threads = options.n_threads, .form = {}});
    Buffer weights = owner.allocate(kWeightBytes, MemoryTag::Weights, "benchmark weights");
    fill_weights(weights.data(), weights.size_bytes());
    const MachinePeaks peaks = measure_peaks(owner.pool(), weights.data(), weights.size_bytes());
    if (!options.json)
        fmt::print("{} threads: read {:.1f} GB/s, f32 fma {:.0f} GFLOP/s; matmul [{}, {}], percent of these\n",
                   options.n_threads, peaks.read_gb_per_s, peaks.fma_gflop_per_s, options.rows, options.cols);
    Bench bench(options, peaks, weights);
    for (const CpuForm form : {CpuForm::Avx512Vnni, CpuForm::Avx512, CpuForm::Avx2, CpuForm::Scalar}) {
        if (form > best_cpu_form() || (options.form && *options.form != form)) continue;
        for (int i = 0; i < kDTypeCount; ++i)
            if (!options.type || *options.type == static_cast<DType>(i)) bench.run(form, static_cast<DType>(i));
    }
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
    try {
        slipstream::run(slipstream::parse_options(argc, argv));
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench_ops: {}\n", error.what());
        return 1;
    }
}
