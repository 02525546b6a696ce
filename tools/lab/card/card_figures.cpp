#include "tools/lab/card/card_figures.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/base/build_version.h"
#include "tools/base/json_object.h"
#include "tools/terminal/text_table.h"

namespace slipstream::tools {

namespace {

double rate(double amount, double seconds) {
    return seconds > 0.0 ? amount / seconds : 0.0;
}

// Returns a time as "1.234 ms" or "12.3 us".
std::string time_text(double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.2f} us", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string share_text(double value, double peak) {
    return value > 0.0 && peak > 0.0 ? percent_text(value / peak) : std::string("-");
}

}  // namespace

double tensor_flops_per_cycle(std::int32_t sm) {
    switch (sm) {
        case 80:
            return 2048.0;
        case 86:
        case 89:
        case 120:
            return 512.0;
        case 90:  // the peak is that of wgmma; mma.sync reaches about two thirds of it
        case 100:
            return 4096.0;
        default:
            return 0.0;
    }
}

double floor_seconds(const CardFigure& figure, const CardPeaks& peaks) {
    double seconds = 0.0;
    if (figure.road == CardRoad::Memory && peaks.memory() > 0.0) seconds = figure.bytes / peaks.memory();
    if (peaks.tensor_flops > 0.0) seconds = std::max(seconds, figure.flops / peaks.tensor_flops);
    return seconds;
}

CardReport::CardReport(const std::optional<std::filesystem::path>& json) : text_(std::nullopt) {
    if (!json) return;
    json_.emplace(json);
    json_->begin();
}

void CardReport::begin(const cuda::DeviceProperties& card, const CardPeaks& known) {
    peaks = known;
    text_.write(fmt::format(
        "slipstream {} ({}), {}, sm_{}, {} multiprocessors, {:.1f} GiB, driver for CUDA {}.{}\n"
        "peaks: memory {} GB/s by its data, bf16 tensor cores {} TFLOP/s; a floor is the longer of bytes and FLOP at "
        "these\n",
        build_version(), build_commit(), card.name, card.sm, card.n_multiprocessors,
        static_cast<double>(card.memory_bytes) / static_cast<double>(1 << 30), card.driver_version / 1000,
        card.driver_version % 1000 / 10,
        known.memory_bytes_per_second > 0.0 ? number_text(known.memory_bytes_per_second * 1e-9) : "unknown",
        known.tensor_flops > 0.0 ? number_text(known.tensor_flops * 1e-12) : "unknown"));
    if (!json_) return;
    JsonObject line;
    line.text("bench", "card")
        .text("version", build_version())
        .text("commit", build_commit())
        .text("name", card.name)
        .integer("sm", card.sm)
        .integer("multiprocessors", card.n_multiprocessors)
        .unsigned_integer("memory_bytes", card.memory_bytes)
        .unsigned_integer("l2_bytes", card.l2_bytes)
        .integer("driver_version", card.driver_version)
        .integer("runtime_version", card.runtime_version)
        .real("memory_bytes_per_second", known.memory_bytes_per_second)
        .real("tensor_flops", known.tensor_flops);
    json_->write(line.to_text(JsonLayout::OneLine));
}

void CardReport::section(const std::string& title) {
    text_.write(fmt::format("\n{}\n{:>42} {:>6} {:>12} {:>8} {:>10} {:>8} {:>10} {:>8} {:>8} {:>11}\n", title, "what",
                            "n", "time", "spread %", "GB/s", "% of mem", "TFLOP/s", "% of mma", "x floor",
                            "enqueueing"));
}

void CardReport::add(const CardFigure& figure) {
    const double bytes_per_second = rate(figure.bytes, figure.seconds);
    const double flops = rate(figure.flops, figure.seconds);
    const double memory = figure.road == CardRoad::Memory ? peaks.memory() : 0.0;
    const double least = floor_seconds(figure, peaks);
    text_.write(fmt::format("{:>42} {:>6} {:>12} {:>8.1f} {:>10} {:>8} {:>10} {:>8} {:>8} {:>11}\n", figure.what,
                            figure.n, time_text(figure.seconds), 100.0 * figure.spread,
                            bytes_per_second > 0.0 ? number_text(bytes_per_second * 1e-9) : "-",
                            share_text(bytes_per_second, memory), flops > 0.0 ? number_text(flops * 1e-12) : "-",
                            share_text(flops, peaks.tensor_flops),
                            least > 0.0 ? fmt::format("{:.2f}", figure.seconds / least) : "-",
                            figure.enqueue_seconds > 0.0 ? time_text(figure.enqueue_seconds) : "-"));
    if (!json_) return;
    JsonObject line;
    line.text("bench", figure.bench)
        .text("what", figure.what)
        .integer("n", figure.n)
        .real("seconds", figure.seconds)
        .real("spread", figure.spread)
        .real("bytes", figure.bytes)
        .real("flops", figure.flops)
        .real("bytes_per_second", bytes_per_second)
        .real("flops_per_second", flops)
        .real("memory_share", memory > 0.0 ? bytes_per_second / memory : 0.0)
        .real("tensor_share", peaks.tensor_flops > 0.0 ? flops / peaks.tensor_flops : 0.0)
        .real("floor_seconds", least)
        .real("enqueue_seconds", figure.enqueue_seconds);
    json_->write(line.to_text(JsonLayout::OneLine));
}

void CardReport::compare(const CardComparison& of) {
    text_.write(fmt::format("{:>42} {:>6} our kernels take {:.2f} of cuBLASLt's time, prompts as computed {:.2f}\n",
                            of.what, "", of.own / of.library, of.as_used / of.library));
    if (!json_) return;
    JsonObject line;
    line.text("bench", "batch_invariance")
        .text("what", of.what)
        .real("own_seconds", of.own)
        .real("prompt_seconds", of.as_used)
        .real("cublaslt_seconds", of.library)
        .real("own_over_cublaslt", of.own / of.library)
        .real("prompt_over_cublaslt", of.as_used / of.library);
    json_->write(line.to_text(JsonLayout::OneLine));
}

void CardReport::end(std::int64_t left_out) {
    if (left_out > 0) text_.write(fmt::format("\nout of time: {} measurements left out\n", left_out));
    if (!json_) return;
    JsonObject line;
    line.text("bench", "end").integer("left_out", left_out);
    line.real("measured_memory_bytes_per_second", peaks.measured_bytes_per_second);
    json_->write(line.to_text(JsonLayout::OneLine));
}

}  // namespace slipstream::tools
