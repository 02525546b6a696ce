// The weights are zeros in the packed layout, more than most caches hold, and are read matrix by matrix as in a pass.
// Each time is the best of several, since other programs use the machine, too. Products with more tokens are timed over
// fewer bytes, since they are limited by computing.
#include "tools/engine/measured_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/cpu_device.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::size_t kFewBytes = std::size_t{32} << 20;  // if only computing is timed
constexpr std::size_t kCopiedBytes = std::size_t{64} << 20;
constexpr std::size_t kCopyPieceBytes = std::size_t{4} << 20;
constexpr std::int64_t kMinCols = 256;  // a multiple of the block size of every type
constexpr int kRuns = 3;
constexpr double kPatience = 0.6;            // seconds; after that nothing is timed twice
constexpr std::int64_t kSmallOpsALayer = 8;  // ops besides matmuls and attention

/// A number of tokens to time, over weights / divisor bytes.
struct Sample {
    std::int64_t n_tokens;
    std::size_t divisor;
};
// Between 4 and 16 tokens, matmuls stop being limited by memory bandwidth.
constexpr std::array kSamples{Sample{1, 1}, Sample{4, 2}, Sample{8, 4}, Sample{16, 8}, Sample{64, 32}};
constexpr std::int64_t kMostTokens = kSamples.back().n_tokens;

double seconds_of(const std::function<void()>& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

class Measuring {
public:
    explicit Measuring(const RateQuestion& question)
        : question_(question),
          own_device_(question.card == nullptr ? std::make_unique<CpuDevice>(device_options(question.n_threads))
                                               : nullptr),
          device_(question.card == nullptr ? *own_device_ : *question.card),
          stream_(device_.make_stream(StreamKind::Compute)),
          cols_(round_up(question.config->d_model, kMinCols)),
          matrix_rows_(round_up(question.config->d_ff, kInterleavedRows)) {
        const std::size_t all = weight_bytes();
        const HostMemory memory = host_memory();
        std::size_t room = memory.total_bytes == 0 ? kMaxBytes : memory.available_bytes / 8;
        if (question.card != nullptr) room = (device_.budget().limit_bytes() - device_.budget().used_bytes()) / 4;
        // No more than the model has: a small model stays in the caches.
        bytes_ = std::max(std::min({question.effort == RateEffort::All ? kMaxBytes : kFewBytes, room, all}),
                          row_bytes(DType::F32, cols_) * 4 * kInterleavedRows);
        weights_ = zeros(bytes_, MemoryTag::Weights);
        x_ = zeros(kMostTokens * row_bytes(DType::F32, std::max(cols_, question.config->d_ff)), MemoryTag::Activations);
        y_ = zeros(kMostTokens * row_bytes(DType::F32, std::max(cols_, matrix_rows_)), MemoryTag::Activations);
    }

    MachineRates run() {
        MachineRates measured;
        PassRates& rates = measured.rates;
        const std::vector<DType> types = weight_types();
        ByteCost slowest;
        for (const DType type : types) {
            const ByteCost cost = weight_cost(type);
            rates.weights[static_cast<std::size_t>(type)] = cost;
            if (cost.seconds(1.0) > slowest.seconds(1.0)) slowest = cost;
        }
        for (int i = 0; i < kDTypeCount; ++i)
            if (std::find(types.begin(), types.end(), static_cast<DType>(i)) == types.end()) rates.weights[i] = slowest;
        rates.kv = kv_cost();
        const double small = best_of(kRuns, [&] { small_ops(1); });
        const double many = best_of(kRuns, [&] { small_ops(16); });
        rates.layer_token_seconds = std::max(0.0, many - small) / 15.0;
        rates.layer_seconds = std::max(0.0, small - rates.layer_token_seconds);
        if (question_.effort == RateEffort::Compute) return measured;
        measure_copies(measured, types.front());
        rates.host_bytes_per_second = measured.memory_bytes_per_second;
        if (question_.card != nullptr) {
            rates.host_bytes_per_second = 0.0;
            measured.memory_bytes_per_second = 0.0;
            measured.host_bytes_per_copied_byte = 1.0;
        }
        return measured;
    }

private:
    double best_of(int n, const std::function<void()>& work) {
        const auto to_the_end = [&] {
            work();
            stream_->synchronize();
        };
        double best = seconds_of(to_the_end);
        for (int i = 1; i < n && std::chrono::steady_clock::now() < hurry_; ++i)
            best = std::min(best, seconds_of(to_the_end));
        return best;
    }

    static CpuDeviceOptions device_options(int n_threads) {
        CpuDeviceOptions options;
        options.n_threads = n_threads;
        return options;
    }

    Buffer zeros(std::size_t bytes, MemoryTag tag) {
        Buffer buffer = device_.allocate(bytes, tag, "memory to measure the machine with");
        if (device_.shares_host_memory()) {
            std::memset(buffer.data(), 0, bytes);
            return buffer;
        }
        const std::vector<std::byte> host(std::min(bytes, kCopiedBytes));
        for (std::size_t at = 0; at < bytes; at += host.size())
            stream_->copy(buffer.data() + at, host.data(), std::min(host.size(), bytes - at));
        stream_->synchronize();
        return buffer;
    }

    [[nodiscard]] ExecRef exec() { return {device_, *stream_}; }

    /// Returns the bytes of the model's packed weights by type; weight_types() lists the types that occur, the one with
    /// most bytes first.
    [[nodiscard]] std::array<std::size_t, kDTypeCount> bytes_by_type() const {
        std::array<std::size_t, kDTypeCount> bytes{};
        const ModelWeights& weights = *question_.weights;
        const auto count = [&](const ConstTensorView& matrix) {
            const DType type = packed_type(matrix, question_.rounding);
            bytes[static_cast<std::size_t>(type)] += packed_bytes(type, matrix.shape[0], matrix.shape[1]);
        };
        for (std::size_t layer = 0; layer < weights.layers.size(); ++layer)
            for (const MatrixRole role : kLayerMatrices)
                count(matrix_of(weights, static_cast<std::int64_t>(layer), role));
        count(weights.lm_head);
        return bytes;
    }
    [[nodiscard]] std::size_t weight_bytes() const {
        std::size_t all = 0;
        for (const std::size_t bytes : bytes_by_type()) all += bytes;
        return all;
    }
    [[nodiscard]] std::vector<DType> weight_types() const {
        const auto bytes = bytes_by_type();
        std::vector<DType> types;
        for (int i = 0; i < kDTypeCount; ++i)
            if (bytes[i] > 0) types.push_back(static_cast<DType>(i));
        std::sort(types.begin(), types.end(), [&](DType a, DType b) {
            return bytes[static_cast<std::size_t>(a)] > bytes[static_cast<std::size_t>(b)];
        });
        return types;
    }

    // Multiplies by up to `bytes` of weights of that type, one matrix at a time; returns the bytes read.
    std::size_t multiply(DType type, std::int64_t n_tokens, std::size_t bytes) {
        const std::size_t group_bytes = packed_bytes(type, kInterleavedRows, cols_);
        const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(std::min(bytes, bytes_) / group_bytes, 1)) *
                          kInterleavedRows;
        for (std::int64_t row = 0; row < rows; row += matrix_rows_) {
            const std::int64_t n = std::min(matrix_rows_, rows - row);
            const std::byte* data = weights_.data() + (row / kInterleavedRows) * group_bytes;
            matmul(exec(), {.weights = packed_view(data, type, n, cols_, packed_layout(device_.kind())),
                            .x = matrix_view(reinterpret_cast<const float*>(x_.data()), n_tokens, cols_),
                            .y = matrix_view(reinterpret_cast<float*>(y_.data()), n_tokens, n)});
        }
        return (rows / kInterleavedRows) * group_bytes;
    }

    ByteCost weight_cost(DType type) {
        std::vector<ByteCost::Point> points;
        for (const Sample& sample : kSamples) {
            std::size_t bytes = 0;
            const double seconds =
                best_of(kRuns, [&] { bytes = multiply(type, sample.n_tokens, bytes_ / sample.divisor); });
            points.push_back({static_cast<double>(sample.n_tokens), seconds / static_cast<double>(bytes)});
        }
        return ByteCost(std::move(points));
    }

    // Times attention over as many KV chunks as fit into a quarter of the weights' memory; the tokens do not see one
    // another.
    ByteCost kv_cost() {
        const ModelConfig& config = *question_.config;
        const KvShape shape{config.n_kv_heads, config.head_dim, question_.kv_dtype};
        const auto n_chunks = static_cast<std::int64_t>(std::max<std::size_t>(bytes_ / 4 / shape.chunk_bytes(), 1));
        const Buffer memory = zeros(n_chunks * shape.chunk_bytes(), MemoryTag::Kv);
        std::vector<const std::byte*> chunks;
        for (std::int64_t i = 0; i < n_chunks; ++i) chunks.push_back(memory.data() + i * shape.chunk_bytes());
        const Buffer scratch = zeros(kMostTokens * shape.scratch_row_bytes(), MemoryTag::Kv);
        const std::int64_t q_cols = config.n_q_heads * config.head_dim;
        const Buffer q = zeros(2 * kMostTokens * row_bytes(DType::F32, q_cols), MemoryTag::Activations);
        std::vector<std::int32_t> rows(kMostTokens);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
        std::vector<ByteCost::Point> points;
        for (const Sample& sample : kSamples) {
            const auto used = std::max<std::int64_t>(n_chunks / static_cast<std::int64_t>(sample.divisor), 1);
            const std::vector<std::int32_t> positions(sample.n_tokens, static_cast<std::int32_t>(used * kChunkTokens));
            auto* out = reinterpret_cast<float*>(q.data()) + kMostTokens * q_cols;
            const double seconds = best_of(kRuns, [&] {
                attention(exec(), {.shape = shape,
                                   .q = matrix_view(reinterpret_cast<const float*>(q.data()), sample.n_tokens, q_cols),
                                   .out = matrix_view(out, sample.n_tokens, q_cols),
                                   .n_q_heads = config.n_q_heads,
                                   .positions = positions.data(),
                                   .chunks = chunks.data(),
                                   .n_committed = used * kChunkTokens,
                                   .scratch_k = scratch.data(),
                                   .scratch_v = scratch.data(),
                                   .path_begin = rows.data(),
                                   .path_rows = rows.data()});
            });
            const double vectors = static_cast<double>(sample.n_tokens * (config.n_q_heads / config.n_kv_heads));
            points.push_back(
                {vectors, seconds / (static_cast<double>(used) * static_cast<double>(shape.chunk_bytes()))});
        }
        return ByteCost(std::move(points));
    }

    // Runs about what a layer does besides matmuls and attention: norms and the gate.
    void small_ops(std::int64_t n_tokens) {
        const ModelConfig& config = *question_.config;
        const TensorView x = matrix_view(reinterpret_cast<float*>(x_.data()), n_tokens, config.d_model);
        const TensorView wide = matrix_view(reinterpret_cast<float*>(x_.data()), n_tokens, config.d_ff);
        const TensorView gate = matrix_view(reinterpret_cast<float*>(y_.data()), n_tokens, config.d_ff);
        const ConstTensorView weight =
            vector_view(static_cast<const std::byte*>(weights_.data()), DType::F32, config.d_model);
        for (std::int64_t i = 0; i + 1 < kSmallOpsALayer; ++i) rms_norm(exec(), {.x = x, .weight = weight, .y = x});
        swiglu(exec(), {.gate = gate, .up = wide, .y = gate});
    }

    void measure_copies(MachineRates& measured, DType type) {
        const std::size_t copied = std::min(kCopiedBytes, bytes_);
        const Buffer to = zeros(copied, MemoryTag::Ring);
        Buffer host;
        const std::byte* from = weights_.data();
        if (!device_.shares_host_memory()) {
            host = device_.allocate_host(copied, MemoryTag::Ring, "memory to measure the link with");
            from = host.data();
        }
        const auto copies = device_.make_stream(StreamKind::CopyIn);
        const auto done = device_.make_event();
        const auto enqueue = [&] {
            for (std::size_t at = 0; at < copied; at += kCopyPieceBytes)
                copies->copy(to.data() + at, from + at, std::min(kCopyPieceBytes, copied - at));
            return copies->record(*done);
        };
        const double alone = best_of(kRuns, [&] {
            static_cast<void>(enqueue());
            copies->synchronize();
        });
        measured.copy_bytes_per_second = static_cast<double>(copied) / alone;
        measured.memory_bytes_per_second = 1.0 / measured.rates.weights[static_cast<std::size_t>(type)].seconds(1.0);
        if (question_.card != nullptr) return;  // it copies by engines of its own
        // Copy and compute at the same time, computing in steps that are short compared with the copies.
        const std::size_t step = bytes_ / 16;
        double lost = 1.0;
        for (int run = 0; run < kRuns; ++run) {
            std::size_t read = 0;
            const std::uint64_t use = enqueue();
            const double seconds = seconds_of([&] {
                while (done->completed() < use) read += multiply(type, 1, step);
            });
            copies->synchronize();
            const double would = measured.memory_bytes_per_second * seconds;
            const double missing = std::max(0.0, would - static_cast<double>(read)) / static_cast<double>(copied);
            lost = run == 0 ? missing : std::min(lost, missing);
        }
        measured.host_bytes_per_copied_byte = lost;
    }

    RateQuestion question_;
    std::chrono::steady_clock::time_point hurry_ =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(1e3 * kPatience));
    std::unique_ptr<CpuDevice> own_device_;
    Device& device_;
    std::unique_ptr<Stream> stream_;
    std::int64_t cols_;         // columns (K) of the matrices
    std::int64_t matrix_rows_;  // rows of one matrix
    std::size_t bytes_ = 0;
    Buffer weights_;
    Buffer x_, y_;
};

}  // namespace

MachineRates MachineRates::shared_by(std::size_t n) const {
    MachineRates each = *this;
    const auto share = static_cast<double>(n);
    for (ByteCost& cost : each.rates.weights) cost = cost.scaled(share);
    each.rates.kv = rates.kv.scaled(share);
    each.rates.host_bytes_per_second /= share;
    each.memory_bytes_per_second /= share;
    return each;
}

MachineRates measure_rates(const RateQuestion& question) {
    return Measuring(question).run();
}

}  // namespace slipstream::tools
