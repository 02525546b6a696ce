// slipstream-lab ops: measures every op in every kernel variant of the CPU over real shapes, compared with the
// machine's peaks, which are measured in the same run: read bandwidth (one pass over the weights) and f32 fused
// multiply-adds.
//
// Weights are several matrices that together are larger than the caches and are used in turn, so that each call reads
// them from memory; the same holds for the layers of KV. Norm, RoPE, gate and sum work on rows that are in the cache,
// as in a pass. Times are medians of 3 to kRuns runs, each over all matrices or layers; spread is (slowest - fastest) /
// median. A single thread is timed by its CPU time, since other processes affect it less than the wall clock.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/lab/lab.h"
#include "tools/lab/lab_settings.h"
#include "tools/lab/ops/ops_bench.h"
#include "tools/options/settings.h"

namespace slipstream::tools::ops {

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
        output.write(fmt::format(
            "{{\"op\":\"{}\",\"form\":\"{}\",\"type\":\"{}\",\"shape\":\"{}\",\"n\":{},\"threads\":{},\"ms\":{:.5f},"
            "\"best_ms\":{:.5f},\"spread\":{:.3f},\"gb_per_s\":{:.2f},\"gflop_per_s\":{:.1f},"
            "\"read_peak_gb_per_s\":{:.2f},\"fma_peak_gflop_per_s\":{:.1f}}}\n",
            result.op, device.instruction_form(), result.type, result.shape, result.n_tokens, options.n_threads,
            seconds * 1e3, best_ms, result.timing.spread, gb_per_s, gflop_per_s, peaks.read_gb_per_s,
            peaks.fma_gflop_per_s));
        return;
    }
    std::string line =
        fmt::format("{:11} {:9} {:5} {:18} n={:<4} {:9.4f} ms (best {:9.4f}) +-{:3.0f}%  {:7.2f} GB/s ({:3.0f}%)",
                    device.instruction_form(), result.op, result.type, result.shape, result.n_tokens, seconds * 1e3,
                    best_ms, 50 * result.timing.spread, gb_per_s, 100 * gb_per_s / peaks.read_gb_per_s);
    if (result.operations > 0)
        line += fmt::format("  {:7.1f} GFLOP/s ({:3.0f}%)", gflop_per_s, 100 * gflop_per_s / peaks.fma_gflop_per_s);
    output.write(line + "\n");
}

namespace {

constexpr std::string_view kOps[] = {
    "matmul",           "attention", "kv_write", "kv_commit", "kv_score", "view_pages_attention",
    "view_pages_write", "rms_norm",  "add",      "rope",      "silu",     "gelu_tanh",
    "softcap",          "embed"};
// The ops that time_attention() times.
constexpr std::string_view kAttentionOps[] = {
    "attention", "kv_write", "kv_commit", "kv_score", "view_pages_attention", "view_pages_write"};
constexpr Range<std::int64_t> kSizes{1, 1 << 20};

CpuForm form_named(const Setting& setting) {
    const std::string& name = setting.values.back();
    for (const CpuForm form : kCpuForms) {
        if (cpu_form_name(form) != name) continue;
        if (!cpu_has_form(form))
            throw RequestError(fmt::format("{} {}: this machine has {}; use that", setting.where, name,
                                           cpu_form_name(best_cpu_form())));
        return form;
    }
    throw UsageError(
        fmt::format("{}: scalar, avx2, avx512, avx512_vnni or avx512_bf16 expected, found '{}'", setting.where, name));
}

std::string op_named(const Setting& setting) {
    const std::string& name = setting.values.back();
    if (std::ranges::find(kOps, name) == std::end(kOps))
        throw UsageError(fmt::format("{}: unknown op '{}'; known ops: {}", setting.where, name, fmt::join(kOps, ", ")));
    return name;
}

Options read_options(const Settings& settings) {
    Options options;
    options.json = settings.flag("json");
    if (settings.flag("row-major")) options.layout = Layout::RowMajor;
    options.n_threads = static_cast<int>(settings.integer("threads", {1, 1024}).value_or(options.n_threads));
    if (const Setting* form = settings.find("form")) options.form = form_named(*form);
    if (const Setting* type = settings.find("type")) options.type = type_named(type->values.back(), *type);
    if (const Setting* op = settings.find("op")) options.op = op_named(*op);
    options.depth = settings.integer("depth", kSizes).value_or(options.depth);
    options.rows = settings.integer("rows", kSizes).value_or(options.rows);
    options.cols = settings.integer("cols", kSizes).value_or(options.cols);
    if (const Setting* tokens = settings.find("tokens")) options.n_tokens = number_list(*tokens, kSizes);
    if (const Setting* heads = settings.find("heads")) {
        const std::vector<std::int64_t> numbers = number_list(*heads, kSizes);
        if (numbers.size() != 2 || numbers[0] % numbers[1] != 0)
            throw UsageError(fmt::format(
                "{}: query heads and kv heads expected, a multiple and its divisor such as 32,8, found '{}'",
                heads->where, heads->values.back()));
        options.query_heads = numbers[0];
        options.kv_heads = numbers[1];
    }
    return options;
}

/// Fills memory, up to a multiple of 8 bytes, with 16-bit fields that are a sign and 0x38.. to 0x3b..: a binary16 from
/// 0.5 to 1, or the upper half of a small float. So types decode to normal numbers, but for a few scales of MXFP4
/// (subnormal numbers would be slow).
void fill_weights(std::byte* data, std::size_t bytes) {
    std::uint64_t state = 1;
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const std::uint64_t word = ((state >> 5) & 0x83ff83ff83ff83ffU) | 0x3800380038003800U;
        std::memcpy(data + i, &word, sizeof(word));
    }
}

void time_form(const Options& options, const MachinePeaks& peaks, std::byte* memory, CpuForm form, TextOutput& output,
               int& n_reported) {
    CpuDevice device({.n_threads = options.n_threads, .form = form});
    const auto stream = device.make_stream(StreamKind::Compute);
    const Bench bench{options, peaks, memory, device, *stream, output, n_reported};
    if (options.wants("matmul"))
        for (int i = 0; i < kDTypeCount; ++i)
            if (!options.type || *options.type == static_cast<DType>(i)) time_matmul(bench, static_cast<DType>(i));
    if (std::ranges::any_of(kAttentionOps, [&](std::string_view op) { return options.wants(op); }))
        time_attention(bench);
    if (!options.type) time_row_ops(bench);
}

void measure(const Options& options) {
    CpuDevice owner({.n_threads = options.n_threads, .form = {}});
    const Buffer memory = owner.allocate(kMemoryBytes, MemoryTag::Weights, "benchmark weights");
    fill_weights(memory.data(), memory.size_bytes());
    const MachinePeaks peaks = measure_peaks(owner.pool(), memory.data(), memory.size_bytes());
    TextOutput output(std::nullopt);
    if (!options.json)
        output.write(fmt::format("{} threads: read {:.1f} GB/s, f32 fma {:.0f} GFLOP/s; percent of these\n",
                                 options.n_threads, peaks.read_gb_per_s, peaks.fma_gflop_per_s));
    int n_reported = 0;
    for (auto form = std::rbegin(kCpuForms); form != std::rend(kCpuForms); ++form)
        if (options.form ? *options.form == *form : cpu_has_form(*form))
            time_form(options, peaks, memory.data(), *form, output, n_reported);
    if (n_reported == 0)
        throw RequestError(
            "nothing to measure: --op has no case with this --type, --cols or --tokens; change one of them");
}

int run(CommandContext& context) {
    measure(read_options(context.settings));
    return 0;
}

}  // namespace
}  // namespace slipstream::tools::ops

namespace slipstream::tools {

CommandSpec ops_command() {
    return {.name = "ops",
            .summary = "How fast each op of each kernel variant of the CPU is, beside what the machine can do",
            .details = "Times are medians; percent are of the bandwidth and the arithmetic measured in the same run.",
            .example = "slipstream-lab ops --op matmul --type Q8_0 --rows 1024 --cols 1024 --tokens 1,8",
            .options =
                {{"threads", "-t,--threads", "N", "CPU threads [1]"},
                 {"json", "--json", "", "Print JSON, a line for each figure"},
                 {"form", "--form", "NAME",
                  "Kernel variant: scalar, avx2, avx512, avx512_vnni, avx512_bf16 [all of this machine]"},
                 {"op", "--op", "NAME",
                  "matmul, attention, kv_write, kv_commit, kv_score, view_pages_attention, view_pages_write, rms_norm, "
                  "add, rope, silu, gelu_tanh, softcap, embed [all]"},
                 {"type", "--type", "TYPE", "Type of the weights, or of KV, such as Q4_K [all]"},
                 {"rows", "--rows", "M", "Rows of each matrix [4096]"},
                 {"cols", "--cols", "K", "Columns of each matrix [4096]"},
                 {"depth", "--depth", "N", "Committed positions before attention [4096]"},
                 {"heads", "--heads", "Q,KV", "Query heads and kv heads [32,8]"},
                 {"tokens", "--tokens", "LIST", "Tokens of a call [1,8,64,512]"},
                 {"row-major", "--row-major", "", "Weights as in files, not packed"}},
            .run = ops::run};
}

}  // namespace slipstream::tools
