// bench_ops: measures every op in every kernel variant of the CPU over real shapes, compared with the machine's peaks,
// which are measured in the same run: read bandwidth (one pass over the weights) and f32 fused multiply-adds.
//
//   bench_ops [--threads N] [--json] [--form scalar|avx2|avx512|avx512_vnni|avx512_bf16] [--op matmul|attention|...]
//             [--type Q8_0] [--rows M] [--cols K] [--depth N] [--heads 32,8]
//             [--tokens n,n,...] [--row-major]
//
// --type is the type of weights or of KV; --heads are query heads and kv heads. Without --form all kernel variants that
// the machine supports are measured, best first. Weights are packed unless --row-major is given. They are several
// matrices that together are larger than the caches and are used in turn, so that each call reads them from memory; the
// same holds for the layers of KV. Norm, RoPE, gate and sum work on rows that are in the cache, as in a pass. Times are
// medians of 3 to kRuns runs, each over all matrices or layers; spread is (slowest - fastest) / median. A single thread
// is timed by its CPU time, since other processes affect it less than the wall clock.

#include "tools/dev/bench_ops.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "tools/base/text_parts.h"
#include "tools/terminal/console.h"

namespace slipstream::bench_ops {

Buffer float_rows(const Bench& bench, std::int64_t n, std::int64_t cols) {
    const auto floats = static_cast<std::size_t>(n * cols);
    Buffer rows = bench.device.allocate(floats * sizeof(float), MemoryTag::Activations, "rows");
    auto* data = reinterpret_cast<float*>(rows.data());
    for (std::size_t i = 0; i < floats; ++i) data[i] = (static_cast<float>(i % 17) - 8.0F) / 8.0F;
    return rows;
}

void Bench::report(const Case& result) const {
    ++n_reported;
    const double calls = static_cast<double>(result.n_calls);
    const double seconds = result.timing.median_s / calls;
    const double gb_per_s = result.bytes / seconds * 1e-9;
    const double gflop_per_s = result.operations / seconds * 1e-9;
    const double best_ms = result.timing.best_s / calls * 1e3;
    if (options.json) {
        fmt::print(
            "{{\"op\":\"{}\",\"form\":\"{}\",\"type\":\"{}\",\"shape\":\"{}\",\"n\":{},\"threads\":{},\"ms\":{:.5f},"
            "\"best_ms\":{:.5f},\"spread\":{:.3f},\"gb_per_s\":{:.2f},\"gflop_per_s\":{:.1f},"
            "\"read_peak_gb_per_s\":{:.2f},\"fma_peak_gflop_per_s\":{:.1f}}}\n",
            result.op, device.instruction_form(), result.type, result.shape, result.n_tokens, options.n_threads,
            seconds * 1e3, best_ms, result.timing.spread, gb_per_s, gflop_per_s, peaks.read_gb_per_s,
            peaks.fma_gflop_per_s);
    } else {
        fmt::print("{:11} {:9} {:5} {:18} n={:<4} {:9.4f} ms (best {:9.4f}) +-{:3.0f}%  {:7.2f} GB/s ({:3.0f}%)",
                   device.instruction_form(), result.op, result.type, result.shape, result.n_tokens, seconds * 1e3,
                   best_ms, 50 * result.timing.spread, gb_per_s, 100 * gb_per_s / peaks.read_gb_per_s);
        if (result.operations > 0)
            fmt::print("  {:7.1f} GFLOP/s ({:3.0f}%)", gflop_per_s, 100 * gflop_per_s / peaks.fma_gflop_per_s);
        fmt::print("\n");
    }
    std::fflush(stdout);
}

namespace {

constexpr std::string_view kOps[] = {"matmul", "attention", "kv_write", "kv_commit", "kv_score", "rms_norm",
                                     "add",    "rope",      "silu",     "gelu_tanh", "softcap",  "embed"};

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
        if (!cpu_has_form(form))
            throw RequestError(
                fmt::format("--form {}: this machine has {}; ask for that", text, cpu_form_name(best_cpu_form())));
        return form;
    }
    throw RequestError(fmt::format("--form {}: unknown; give scalar, avx2, avx512, avx512_vnni or avx512_bf16", text));
}

DType parse_type(std::string_view text) {
    for (int i = 0; i < kDTypeCount; ++i)
        if (dtype_name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
    throw RequestError(fmt::format("--type {}: unknown; give a name such as BF16 or Q4_K", text));
}

std::string parse_op(std::string_view text) {
    for (const std::string_view op : kOps)
        if (op == text) return std::string(text);
    throw RequestError(fmt::format("--op {}: unknown; give {}", text, fmt::join(kOps, ", ")));
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
        } else if (option == "--op") {
            options.op = parse_op(value);
        } else if (option == "--depth") {
            options.depth = parse_number(value, option);
        } else if (option == "--heads") {
            const std::vector<std::string_view> parts = tools::split_list(value);
            if (parts.size() != 2) throw RequestError("--heads: give query heads and kv heads, as 32,8");
            options.query_heads = parse_number(parts[0], option);
            options.kv_heads = parse_number(parts[1], option);
            if (options.query_heads % options.kv_heads != 0)
                throw RequestError(fmt::format("--heads {}: query heads must be a multiple of kv heads", value));
        } else if (option == "--rows") {
            options.rows = parse_number(value, option);
        } else if (option == "--cols") {
            options.cols = parse_number(value, option);
        } else if (option == "--tokens") {
            options.n_tokens.clear();
            for (const std::string_view part : tools::split_list(value))
                options.n_tokens.push_back(parse_number(part, option));
        } else {
            throw RequestError(fmt::format("{}: unknown option; see the head of bench_ops.cpp", option));
        }
    }
    return options;
}

/// Fills memory with bytes that decode to normal numbers in every type (subnormal numbers would be slow): each 16-bit
/// field is a sign and 0x38.. to 0x3b.., so a binary16 from 0.5 to 1, or the upper half of a small float.
void fill_weights(std::byte* data, std::size_t bytes) {
    std::uint64_t state = 1;
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const std::uint64_t word = ((state >> 5) & 0x83ff83ff83ff83ffU) | 0x3800380038003800U;
        std::memcpy(data + i, &word, sizeof(word));
    }
}

void time_form(const Options& options, const MachinePeaks& peaks, std::byte* memory, CpuForm form, int& n_reported) {
    CpuDevice device({.n_threads = options.n_threads, .form = form});
    const auto stream = device.make_stream(StreamKind::Compute);
    const Bench bench{options, peaks, memory, device, *stream, n_reported};
    if (options.wants("matmul"))
        for (int i = 0; i < kDTypeCount; ++i)
            if (!options.type || *options.type == static_cast<DType>(i)) time_matmul(bench, static_cast<DType>(i));
    if (options.wants("attention") || options.wants("kv_write") || options.wants("kv_commit") ||
        options.wants("kv_score"))
        time_attention(bench);
    if (!options.type) time_row_ops(bench);
}

void run(const Options& options) {
    CpuDevice owner({.n_threads = options.n_threads, .form = {}});
    const Buffer memory = owner.allocate(kMemoryBytes, MemoryTag::Weights, "benchmark weights");
    fill_weights(memory.data(), memory.size_bytes());
    const MachinePeaks peaks = measure_peaks(owner.pool(), memory.data(), memory.size_bytes());
    if (!options.json)
        fmt::print("{} threads: read {:.1f} GB/s, f32 fma {:.0f} GFLOP/s; percent of these\n", options.n_threads,
                   peaks.read_gb_per_s, peaks.fma_gflop_per_s);
    int n_reported = 0;
    for (auto form = std::rbegin(kCpuForms); form != std::rend(kCpuForms); ++form)
        if (options.form ? *options.form == *form : cpu_has_form(*form))
            time_form(options, peaks, memory.data(), *form, n_reported);
    if (n_reported == 0)
        throw RequestError("nothing to measure: what --op names knows no such --type, --cols or --tokens");
}

}  // namespace
}  // namespace slipstream::bench_ops

int main(int argc, char** argv) {
    try {
        slipstream::bench_ops::run(slipstream::bench_ops::parse_options(argc, argv));
        return 0;
    } catch (const std::exception& error) {
        slipstream::tools::report_failure("bench_ops", error.what());
        return 1;
    }
}
