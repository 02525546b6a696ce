// Copies over the link and within the GPU, and the order of all measurements.
#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "tools/lab/card/card_runs.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr int kCopyRuns = 3;

enum class Way : std::uint8_t { In, Out, Both };

std::string size_text(std::size_t bytes) {
    return bytes >= (1U << 20) ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

// Buffers on both sides, one pair per direction, and the streams that copy.
struct Link {
    Buffer host_in, host_out, card_in, card_out;
    std::unique_ptr<Stream> in, out;
};

Link make_link(CardBench& bench, std::size_t bytes) {
    const auto tag = MemoryTag::Workspace;
    Link link{.host_in = bench.device.allocate_host(bytes, tag, "copies to the card"),
              .host_out = bench.device.allocate_host(bytes, tag, "copies from the card"),
              .card_in = bench.device.allocate(bytes, tag, "copies to the card"),
              .card_out = bench.device.allocate(bytes, tag, "copies from the card"),
              .in = bench.device.make_stream(StreamKind::CopyIn),
              .out = bench.device.make_stream(StreamKind::CopyOut)};
    std::memset(link.host_in.data(), 1, bytes);  // touches the pages, so that they are allocated
    std::memset(link.host_out.data(), 1, bytes);
    return link;
}

// Returns the seconds, by the host's clock, for `n` copies of `bytes` in each direction of `way`.
double copy_seconds(Link& link, Way way, std::size_t bytes, std::int64_t n) {
    const std::size_t room = link.host_in.size_bytes() / bytes;
    const auto began = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t offset = static_cast<std::size_t>(i) % room * bytes;
        if (way != Way::Out) link.in->copy(link.card_in.data() + offset, link.host_in.data() + offset, bytes);
        if (way != Way::In) link.out->copy(link.host_out.data() + offset, link.card_out.data() + offset, bytes);
    }
    link.in->synchronize();
    link.out->synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void bench_way(CardBench& bench, Link& link, Way way, std::size_t bytes) {
    if (!bench.has_time()) return;
    const auto n = static_cast<std::int64_t>(std::max<std::size_t>(bench.sizes.copied_bytes / bytes, 1));
    std::vector<double> seconds;
    static_cast<void>(copy_seconds(link, way, bytes, std::min<std::int64_t>(n, 8)));
    for (int i = 0; i < kCopyRuns; ++i) seconds.push_back(copy_seconds(link, way, bytes, n));
    std::sort(seconds.begin(), seconds.end());
    const double median = std::max(seconds[kCopyRuns / 2], 1e-9);
    const char* name = way == Way::In ? "to the card" : way == Way::Out ? "from the card" : "both ways at once";
    bench.report.add({.bench = "copy",
                      .what = fmt::format("{} {}", size_text(bytes), name),
                      .n = n,
                      .seconds = median / static_cast<double>(n),
                      .spread = (seconds.back() - seconds.front()) / median,
                      .bytes = static_cast<double>(bytes) * (way == Way::Both ? 2.0 : 1.0),
                      .road = CardRoad::Link});
}

}  // namespace

bool CardBench::has_time() {
    throw_if_interrupted();
    if (std::chrono::steady_clock::now() < deadline) return true;
    ++left_out;
    return false;
}

void bench_card_copies(CardBench& bench) {
    const auto& sizes = bench.sizes.copy_bytes;
    Link link = make_link(bench, 2 * *std::max_element(sizes.begin(), sizes.end()));
    bench.report.section("copies between pinned host memory and the card; n copies in a row, time of one");
    for (const Way way : {Way::In, Way::Out, Way::Both})
        for (const std::size_t bytes : sizes) bench_way(bench, link, way, bytes);
}

// Copies 128 bytes on a compute stream, as a pass does with positions and paths while the ring copies: alone, and while
// four large copies are enqueued on a copy stream. If the GPU's copy engine serves both streams in turn, the second
// time is hundreds of times the first; then small arrays need another path, or the ring smaller copies.
void bench_card_small_copies(CardBench& bench) {
    if (!bench.has_time()) return;
    constexpr std::size_t kSmall = 128;
    constexpr int kQueued = 4;
    const std::size_t large = bench.sizes.copy_bytes.back();
    const auto tag = MemoryTag::Workspace;
    const Buffer host = bench.device.allocate_host(large, tag, "large copies");
    const Buffer small_host = bench.device.allocate_host(kSmall, tag, "small copies");
    const Buffer card = bench.device.allocate(large, tag, "large copies");
    const Buffer small_card = bench.device.allocate(kSmall, tag, "small copies");
    const std::unique_ptr<Stream> in = bench.device.make_stream(StreamKind::CopyIn);
    std::memset(host.data(), 1, large);
    std::memset(small_host.data(), 1, kSmall);
    bench.stream.synchronize();
    const auto measure = [&](const std::string& what, int n_queued) {
        std::vector<double> seconds;
        for (int run = 0; run < 2 * kCopyRuns + 1; ++run) {
            for (int i = 0; i < n_queued; ++i) in->copy(card.data(), host.data(), large);
            const auto began = std::chrono::steady_clock::now();
            bench.stream.copy(small_card.data(), small_host.data(), kSmall);
            bench.stream.synchronize();
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
            in->synchronize();
        }
        std::sort(seconds.begin(), seconds.end());
        const double median = std::max(seconds[kCopyRuns], 1e-9);
        bench.report.add({.bench = "small_copy",
                          .what = what,
                          .n = 2 * kCopyRuns + 1,
                          .seconds = median,
                          .spread = (seconds.back() - seconds.front()) / median,
                          .bytes = kSmall,
                          .road = CardRoad::Link});
    };
    bench.report.section("128 bytes to the GPU on a compute stream, by the host's clock until they are there");
    measure("alone", 0);
    measure(fmt::format("after {} x {} of the ring", kQueued, size_text(large)), kQueued);
}

// Times copies with an event before and after each one on its stream, and plain copies of the same size.
void bench_card_copy_events(CardBench& bench) {
    if (!bench.has_time()) return;
    const std::size_t bytes = bench.sizes.copy_bytes.front();
    const auto n = static_cast<std::int64_t>(std::max<std::size_t>(bench.sizes.copied_bytes / bytes, 1));
    const Buffer host = bench.device.allocate_host(bytes, MemoryTag::Workspace, "copies");
    const Buffer card = bench.device.allocate(bytes, MemoryTag::Workspace, "copies");
    std::memset(host.data(), 1, bytes);
    const auto measure = [&](const char* what, StreamKind kind) {
        const std::unique_ptr<Stream> stream = bench.device.make_stream(kind);
        std::vector<double> seconds;
        for (int run = 0; run < kCopyRuns; ++run) {
            const auto began = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < n; ++i) stream->copy(card.data(), host.data(), bytes);
            stream->synchronize();
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
        }
        std::sort(seconds.begin(), seconds.end());
        bench.report.add({.bench = "copy_events",
                          .what = fmt::format("{} {}", size_text(bytes), what),
                          .n = n,
                          .seconds = seconds[kCopyRuns / 2] / static_cast<double>(n),
                          .spread = (seconds.back() - seconds.front()) / std::max(seconds[kCopyRuns / 2], 1e-9),
                          .bytes = static_cast<double>(bytes),
                          .road = CardRoad::Link});
    };
    bench.report.section("what the events that time copies cost; n copies in a row, time of one");
    measure("timed", StreamKind::CopyIn);
    measure("not timed", StreamKind::Compute);
}

void bench_card_memory(CardBench& bench) {
    const std::size_t bytes = bench.sizes.memory_bytes;
    const Buffer from = bench.device.allocate(bytes, MemoryTag::Workspace, "a copy within the card");
    const Buffer to = bench.device.allocate(bytes, MemoryTag::Workspace, "a copy within the card");
    const CardTiming timing = bench.clock.time(4, [&] {
        for (int i = 0; i < 4; ++i) bench.stream.copy(to.data(), from.data(), bytes);
    });
    CardFigure figure{.bench = "memory",
                      .what = fmt::format("copy of {} within the card", size_text(bytes)),
                      .n = 4,
                      .seconds = timing.seconds,
                      .spread = timing.spread,
                      .bytes = 2.0 * static_cast<double>(bytes)};  // bytes read plus bytes written
    bench.report.peaks.measured_bytes_per_second = figure.bytes / figure.seconds;
    bench.report.section("memory of the card: bytes read and written");
    bench.report.add(figure);
}

void run_card_bench(CardBench& bench) {
    const CardSizes& sizes = bench.sizes;
    bench_card_memory(bench);
    bench_card_copies(bench);
    bench_card_small_copies(bench);
    bench_card_copy_events(bench);
    bench_card_matmul(bench, sizes.first_types, sizes.first_tokens);
    bench_card_attention(bench);
    bench_card_ops(bench);
    bench_card_launches(bench);
    bench_card_matmul(bench, sizes.first_types, sizes.other_tokens);
    bench_card_matmul(bench, sizes.other_types, sizes.first_tokens);
    bench_card_matmul(bench, sizes.other_types, sizes.other_tokens);
    bench.report.end(bench.left_out);
}

}  // namespace slipstream::tools
