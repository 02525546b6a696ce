// The small ops between matmuls, the choice of tokens from logits, and the cost of a launch. Operands stay in the GPU's
// cache, as in a pass, so more than 100 % of the memory bandwidth is possible.
#include <algorithm>
#include <functional>
#include <memory>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/cuda/sampling_launch.h"
#include "kernels/delta_net.h"
#include "kernels/elementwise.h"
#include "tools/lab/card/card_runs.h"
#include "tools/lab/random_model/random_model_blocks.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kCalls = 64;  // calls of an op that are timed together
constexpr std::int32_t kTopK = 40;

class OpsBench {
public:
    explicit OpsBench(CardBench& bench) : bench_(bench) {
        const CardSizes& sizes = bench.sizes;
        const std::int64_t most = *std::max_element(sizes.op_tokens.begin(), sizes.op_tokens.end());
        const std::int64_t width = std::max({sizes.d_model, sizes.d_ff, sizes.n_q_heads * sizes.head_dim});
        for (Buffer* buffer : {&a_, &b_, &c_}) *buffer = floats(most * width);
        cos_sin_ = floats(most * sizes.head_dim);
        norm_ = floats(sizes.d_model);
        kv_ = {.n_kv_heads = sizes.n_kv_heads, .head_dim = sizes.head_dim, .dtype = DType::F16};
        scratch_ = bench.device.allocate(2 * kv_.scratch_row_bytes() * most, MemoryTag::Kv, "rows of a pass");
        for (std::int64_t i = 0; i < most; ++i) rows_.push_back(static_cast<std::int32_t>(i));
    }

    void run(std::int64_t n) {
        const CardSizes& sizes = bench_.sizes;
        const std::int64_t q = sizes.n_q_heads * sizes.head_dim;
        const std::int64_t kv = sizes.n_kv_heads * sizes.head_dim;
        time("rms_norm", n, sizes.d_model, 2, [&] {
            rms_norm(bench_.exec(),
                     {.x = input(a_, n, sizes.d_model),
                      .weight = vector_view(static_cast<const std::byte*>(norm_.data()), DType::F32, sizes.d_model),
                      .y = output(c_, n, sizes.d_model)});
        });
        time("rope", n, q, 2, [&] {
            rope(bench_.exec(),
                 {.x = output(a_, n, q), .cos_sin = input(cos_sin_, n, sizes.head_dim), .head_dim = sizes.head_dim});
        });
        time("gated_activation", n, sizes.d_ff, 3, [&] {
            gated_activation(
                bench_.exec(),
                {.gate = input(a_, n, sizes.d_ff), .up = input(b_, n, sizes.d_ff), .y = output(c_, n, sizes.d_ff)});
        });
        time("add", n, sizes.d_model, 3,
             [&] { add(bench_.exec(), {.x = input(a_, n, sizes.d_model), .y = output(c_, n, sizes.d_model)}); });
        time("kv_write", n, kv, 3, [&] {
            kv_write(bench_.exec(), {.shape = kv_,
                                     .k = input(a_, n, kv),
                                     .v = input(b_, n, kv),
                                     .scratch_k = scratch_.data(),
                                     .scratch_v = scratch_.data() + scratch_.size_bytes() / 2,
                                     .scratch_rows = rows_.data()});
        });
    }

    // Times `op`, which reads or writes [n, cols] floats `passes` times.
    void time(const std::string& name, std::int64_t n, std::int64_t cols, int passes, const std::function<void()>& op) {
        time(fmt::format("{} [{}, {}]", name, n, cols), n,
             static_cast<double>(passes) * static_cast<double>(n * cols) * sizeof(float), op);
    }
    // Times `op`, which reads and writes so many bytes.
    void time(const std::string& what, std::int64_t n, double bytes, const std::function<void()>& op) {
        if (!bench_.has_time()) return;
        const CardTiming timing = bench_.clock.time(kCalls, [&] {
            for (std::int64_t i = 0; i < kCalls; ++i) op();
        });
        bench_.report.add({.bench = "op",
                           .what = what,
                           .n = n,
                           .seconds = timing.seconds,
                           .spread = timing.spread,
                           .bytes = bytes,
                           .enqueue_seconds = timing.enqueue_seconds});
    }

    [[nodiscard]] Buffer floats(std::int64_t n) {
        const std::size_t bytes = n * sizeof(float);
        const Buffer host = bench_.device.allocate_host(bytes, MemoryTag::Workspace, "values of ops");
        RandomBlocks(DType::F32, 1.0).fill(host.data(), n, 3);
        Buffer card = bench_.device.allocate(bytes, MemoryTag::Activations, "values of ops");
        bench_.stream.copy(card.data(), host.data(), bytes);
        bench_.stream.synchronize();
        return card;
    }

private:
    static ConstTensorView input(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
        return matrix_view(static_cast<const std::byte*>(buffer.data()), DType::F32, rows, cols);
    }
    static TensorView output(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
        return matrix_view(buffer.data(), DType::F32, rows, cols);
    }

    CardBench& bench_;
    KvLayout kv_;
    Buffer a_, b_, c_, cos_sin_, norm_, scratch_;
    std::vector<std::int32_t> rows_;
};

// Times a chain of n tokens through a delta net of Qwen3.8-27B.
void bench_delta_net(CardBench& bench, OpsBench& ops, std::int64_t n) {
    const DeltaNetShape shape{
        .n_key_heads = 16, .n_value_heads = 48, .key_dim = 128, .value_dim = 128, .conv_width = 4, .tiled = true};
    const auto floats = [](const Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); };
    const Buffer rows = ops.floats(n * shape.row_cols());
    const Buffer conv = ops.floats(shape.conv_width * shape.convolved_cols());
    const Buffer bias = ops.floats(shape.n_value_heads);
    const Buffer rates = ops.floats(shape.n_value_heads);
    const std::vector<float> below_zero(static_cast<std::size_t>(shape.n_value_heads), -1.0F);
    bench.stream.copy(rates.data(), below_zero.data(), below_zero.size() * sizeof(float));
    bench.stream.synchronize();
    const Buffer state = ops.floats(shape.state_floats());
    const Buffer taps = ops.floats(shape.tap_floats());
    const Buffer convolved = ops.floats(n * shape.row_cols());
    const Buffer out = ops.floats(n * shape.value_cols());
    std::vector<DeltaStep> steps;
    for (std::int32_t i = 0; i < n; ++i) steps.push_back({.row = i, .parent = i - 1});
    const std::int64_t moved = 2 * (shape.state_floats() + shape.tap_floats()) +
                               n * (3 * shape.row_cols() + shape.value_cols()) +
                               shape.conv_width * shape.convolved_cols();
    ops.time("delta_net, 16/48 heads of 128", n, static_cast<double>(moved) * sizeof(float), [&] {
        delta_net(bench.exec(),
                  {.shape = shape,
                   .rows = matrix_view(static_cast<const std::byte*>(rows.data()), DType::F32, n, shape.row_cols()),
                   .steps = steps,
                   .n_kept = n,
                   .conv = floats(conv),
                   .decay_rates = floats(rates),
                   .decay_bias = floats(bias),
                   .state = floats(state),
                   .taps = floats(taps),
                   .kept_state = floats(state),
                   .kept_taps = floats(taps),
                   .convolved = floats(convolved),
                   .out = matrix_view(out.data(), DType::F32, n, shape.value_cols())});
    });
    bench.stream.synchronize();
}

// Times argmax, Gumbel argmax and top-k over n rows of logits.
void bench_sampling(CardBench& bench, OpsBench& ops, std::int64_t n) {
    const auto vocab = static_cast<std::int32_t>(bench.sizes.vocab);
    const auto rows_n = static_cast<std::int32_t>(n);
    const cuda::Module& table = bench.device.table();
    const cuda::Place place = static_cast<cuda::CudaStream&>(bench.stream).place();
    const Buffer logits = ops.floats(n * vocab);
    const cuda::LogitRows rows{
        .logits = reinterpret_cast<const float*>(logits.data()), .stride = vocab, .n = rows_n, .vocab = vocab};
    const auto room = [&](std::size_t bytes, const char* what) {
        return bench.device.allocate(bytes, MemoryTag::Workspace, what);
    };
    const std::size_t n_bytes = static_cast<std::size_t>(n);
    const Buffer ids = room(n_bytes * kTopK * sizeof(std::int32_t), "chosen ids");
    const Buffer values = room(n_bytes * kTopK * sizeof(float), "values of chosen ids");
    const Buffer scratch =
        room(std::max(cuda::gumbel_scratch_bytes(rows_n, vocab), cuda::top_k_scratch_bytes(rows_n, vocab, kTopK)),
             "scratch of sampling");
    const Buffer positions = room(n_bytes * sizeof(std::int64_t), "positions");
    const std::vector<std::int64_t> host_positions(n_bytes, 7);
    bench.stream.copy(positions.data(), host_positions.data(), n_bytes * sizeof(std::int64_t));
    bench.stream.synchronize();
    auto* id_data = reinterpret_cast<std::int32_t*>(ids.data());
    auto* value_data = reinterpret_cast<float*>(values.data());
    cuda::ErrorText error{};
    const cuda::ArgmaxLaunch argmax{.rows = rows, .ids = id_data, .values = value_data, .scratch = scratch.data()};
    ops.time("argmax", n, vocab, 1, [&] { bench.device.check(table.argmax(place, &argmax, &error), error, "argmax"); });
    const cuda::GumbelLaunch gumbel{.rows = rows,
                                    .positions = reinterpret_cast<const std::int64_t*>(positions.data()),
                                    .seed = 1,
                                    .temperature = 0.8,
                                    .ids = id_data,
                                    .scores = value_data,
                                    .scratch = scratch.data()};
    ops.time("gumbel", n, vocab, 1, [&] { bench.device.check(table.gumbel(place, &gumbel, &error), error, "gumbel"); });
    const cuda::TopKLaunch top_k{
        .rows = rows, .k = kTopK, .ids = id_data, .values = value_data, .scratch = scratch.data()};
    ops.time("top_k 40", n, vocab, 1, [&] { bench.device.check(table.top_k(place, &top_k, &error), error, "top_k"); });
    bench.stream.synchronize();
}

}  // namespace

void bench_card_ops(CardBench& bench) {
    bench.report.section("small ops, operands in the card's cache; n: rows");
    OpsBench ops(bench);
    for (const std::int64_t n : bench.sizes.op_tokens) ops.run(n);
    for (const std::int64_t n : bench.sizes.op_tokens) bench_delta_net(bench, ops, n);
    for (const std::int64_t n : bench.sizes.op_tokens)
        if (n <= 64) bench_sampling(bench, ops, n);
    bench.stream.synchronize();
}

void bench_card_launches(CardBench& bench) {
    if (!bench.has_time()) return;
    constexpr std::int64_t kFloats = 8;
    OpsBench ops(bench);
    const Buffer x = ops.floats(kFloats);
    const Buffer y = ops.floats(kFloats);
    const auto launch_all = [&] {
        for (std::int64_t i = 0; i < bench.sizes.n_launches; ++i)
            add(bench.exec(), {.x = matrix_view(static_cast<const std::byte*>(x.data()), DType::F32, 1, kFloats),
                               .y = matrix_view(y.data(), DType::F32, 1, kFloats)});
    };
    const auto put = [&](const char* what, const CardTiming& timing) {
        bench.report.add({.bench = "launch",
                          .what = what,
                          .n = bench.sizes.n_launches,
                          .seconds = timing.seconds,
                          .spread = timing.spread,
                          .enqueue_seconds = timing.enqueue_seconds});
    };
    bench.report.section("launches of next to nothing, one after the other, time of one; n: launches");
    put("enqueued before they run", bench.clock.time(bench.sizes.n_launches, launch_all));
    put("run as they are enqueued", bench.clock.time_together(bench.sizes.n_launches, launch_all));
    const std::unique_ptr<Graph> graph = bench.stream.capture(launch_all);
    const auto launch_graph = [&] { CHECK(bench.stream.launch(*graph, {}), "a graph of next to nothing"); };
    put("all of them in one graph", bench.clock.time_together(bench.sizes.n_launches, launch_graph));
}

}  // namespace slipstream::tools
