// The weights are zeros in the packed layout, more than most caches hold, and are read matrix by matrix as in a pass.
// All is timed in five rounds, and the best time of each thing counts, since other programs use the machine, too.
// Products with more tokens are timed over fewer bytes, since they are limited by computing.
#include "tools/engine/measured_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/attention.h"
#include "kernels/base/checked_math.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/matmul.h"
#include "kernels/move_rows.h"
#include "kernels/pack_weights.h"
#include "runtime/plan/expert_bytes.h"
#include "tools/base/build_version.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::size_t kFewBytes = std::size_t{32} << 20;  // bytes of weights to time if only computing is timed
constexpr std::size_t kCopiedBytes = std::size_t{64} << 20;
constexpr std::size_t kCopyPieceBytes = std::size_t{4} << 20;
constexpr std::int64_t kMinCols = 256;  // least columns of a timed matrix: a multiple of every type's block size
constexpr int kRounds = 5;
constexpr std::int64_t kSmallOpsALayer = 8;  // ops of a layer besides matmuls and attention, those of experts left out
constexpr std::int64_t kManySmallOps = 16;   // tokens of the larger of the two timings of these ops; the smaller has 1

/// A number of tokens to time, over weights / divisor bytes.
struct Sample {
    std::int64_t n_tokens;
    std::size_t divisor;
};
// What each type of weights is timed with: dense between 4 and 16 tokens, where matmuls stop being limited by memory
// bandwidth.
constexpr std::array kSamples{Sample{1, 1}, Sample{4, 2}, Sample{8, 4}, Sample{16, 8}, Sample{64, 32}};
constexpr std::int64_t kMostTokens = kSamples.back().n_tokens;

/// Returns the bytes of the model's packed weights, [DType].
std::array<std::size_t, kDTypeCount> bytes_by_type(const RateQuestion& question) {
    std::array<std::size_t, kDTypeCount> bytes{};
    const ModelWeights& weights = *question.weights;
    for_each_pass_matrix(weights, [&](const ConstTensorView& matrix) {
        const DType type = packed_type(matrix, question.rounding);
        bytes[static_cast<std::size_t>(type)] += packed_bytes(type, matrix.shape[0], matrix.shape[1]);
    });
    return bytes;
}

/// Returns the layer with the largest KV chunks.
std::int64_t largest_kv_layer(const RateQuestion& question) {
    const std::vector<KvLayout> layouts = question.config->kv_layouts(question.kv_dtype);
    return std::ranges::max_element(layouts, {}, &KvLayout::chunk_bytes) - layouts.begin();
}

/// Returns the bytes of weights to time if memory is not short: no more than the model has, since a small model stays
/// in the caches.
std::size_t timed_bytes(const RateQuestion& question) {
    std::size_t all = 0;
    for (const std::size_t bytes : bytes_by_type(question)) all += bytes;
    return std::min(question.effort == RateEffort::All ? kMaxBytes : kFewBytes, all);
}

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
          matrix_rows_(round_up(question.config->max_d_ff(), kInterleavedRows)) {
        const HostMemory memory = host_memory();
        std::size_t room = memory.total_bytes == 0 ? kMaxBytes : memory.available_bytes / 8;
        if (question.card != nullptr) room = (device_.budget().limit_bytes() - device_.budget().used_bytes()) / 4;
        bytes_ = std::max(std::min(room, timed_bytes(question)), row_bytes(DType::F32, cols_) * 4 * kInterleavedRows);
        weights_ = zeros(bytes_, MemoryTag::Weights);
        x_ = zeros(kMostTokens * row_bytes(DType::F32, std::max(cols_, question.config->max_d_ff())),
                   MemoryTag::Activations);
        y_ = zeros(kMostTokens * row_bytes(DType::F32, std::max(cols_, matrix_rows_)), MemoryTag::Activations);
        const ExpertsConfig* experts = first_experts(*question.config);
        if (experts != nullptr && question.card == nullptr) experts_ = make_expert_ops(*experts);
    }

    MachineRates run() {
        const std::vector<DType> types = timed_types(question_);
        for (const DType type : types) time_weights(type);
        time_kv();
        timings_.push_back({.work = [this] { small_ops(1); }});
        timings_.push_back({.work = [this] { small_ops(kManySmallOps); }});
        if (question_.effort == RateEffort::All) time_copies(types.front());
        for (int round = 0; round < kRounds; ++round) time_round();
        return result(types);
    }

private:
    /// Work that each round times once.
    struct Timing {
        std::function<void()> work{};  // enqueues on stream_
        double best = 0.0;             // least seconds of all rounds
    };

    void time_round() {
        double sum = 0.0;
        for (Timing& timing : timings_) {
            const double seconds = seconds_of([&] {
                timing.work();
                stream_->synchronize();
            });
            timing.best = rounds_.empty() ? seconds : std::min(timing.best, seconds);
            sum += seconds;
        }
        rounds_.push_back(sum);
        if (copies_ && question_.card == nullptr) time_both();  // a GPU has copy engines, so computing loses nothing
    }

    // Returns the rates by the best time of each timing. Reads timings_ in the order in which run() made them.
    MachineRates result(const std::vector<DType>& types) {
        MachineRates measured;
        PassRates& rates = measured.rates;
        auto timing = timings_.cbegin();
        const auto points = [&](const std::array<double, kSamples.size()>& bytes, double vectors) {
            std::vector<ByteCost::Point> of_samples;
            for (std::size_t i = 0; i < kSamples.size(); ++i)
                of_samples.push_back(
                    {vectors * static_cast<double>(kSamples[i].n_tokens), (timing++)->best / bytes[i]});
            return ByteCost(std::move(of_samples));
        };
        for (std::size_t i = 0; i < types.size(); ++i)
            rates.weights[static_cast<std::size_t>(types[i])] = points(weight_bytes_[i], 1.0);
        const ModelConfig& config = *question_.config;
        rates.kv =
            points(kv_bytes_, static_cast<double>(config.attention(largest_kv_layer(question_)).queries_per_kv_head()));
        fill_other_types(rates, types);
        const double small = (timing++)->best;
        const double many = (timing++)->best;
        rates.layer_token_seconds = std::max(0.0, many - small) / static_cast<double>(kManySmallOps - 1);
        rates.layer_seconds = std::max(0.0, small - rates.layer_token_seconds);
        std::sort(rounds_.begin(), rounds_.end());
        measured.spread = rounds_[rounds_.size() / 2] / rounds_.front() - 1.0;
        if (!copies_) return measured;
        measured.copy_bytes_per_second = static_cast<double>(copied_.size_bytes()) / timing->best;
        if (question_.card != nullptr) {
            measured.host_bytes_per_copied_byte = 1.0;
            return measured;
        }
        measured.memory_bytes_per_second = 1.0 / rates.weights[static_cast<std::size_t>(types.front())].seconds(1.0);
        rates.host_bytes_per_second = measured.memory_bytes_per_second;
        // Bytes of weights not read per copied byte, in the round in which computing lost least to the copies.
        double lost = std::numeric_limits<double>::infinity();
        for (const Both& both : both_) {
            const double would = measured.memory_bytes_per_second * both.seconds;
            lost = std::min(lost, std::max(0.0, would - both.read) / static_cast<double>(copied_.size_bytes()));
        }
        measured.host_bytes_per_copied_byte = lost;
        return measured;
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

    // Returns the rows of weights of that type that `bytes` hold, at least one group of rows.
    [[nodiscard]] std::int64_t rows_of(DType type, std::size_t bytes) const {
        const std::size_t group_bytes = packed_bytes(type, kInterleavedRows, cols_);
        return static_cast<std::int64_t>(std::max<std::size_t>(std::min(bytes, bytes_) / group_bytes, 1)) *
               kInterleavedRows;
    }
    // Returns the bytes of weights that multiply() reads for the same `type` and `bytes`.
    [[nodiscard]] std::size_t bytes_read(DType type, std::size_t bytes) const {
        return (rows_of(type, bytes) / kInterleavedRows) * packed_bytes(type, kInterleavedRows, cols_);
    }

    // Multiplies by up to `bytes` of weights of that type, one matrix at a time.
    void multiply(DType type, std::int64_t n_tokens, std::size_t bytes) {
        multiply_rows(type, n_tokens, 0, rows_of(type, bytes));
    }
    // Multiplies by rows [begin, end) of the weights, as of that type; both are multiples of kInterleavedRows.
    void multiply_rows(DType type, std::int64_t n_tokens, std::int64_t begin, std::int64_t end) {
        const std::size_t group_bytes = packed_bytes(type, kInterleavedRows, cols_);
        for (std::int64_t row = begin; row < end; row += matrix_rows_) {
            const std::int64_t n = std::min(matrix_rows_, end - row);
            const std::byte* data = weights_.data() + (row / kInterleavedRows) * group_bytes;
            matmul(exec(), {.weights = packed_view(data, type, n, cols_, packed_layout(device_.kind())),
                            .x = matrix_view(reinterpret_cast<const float*>(x_.data()), n_tokens, cols_),
                            .y = matrix_view(reinterpret_cast<float*>(y_.data()), n_tokens, n)});
        }
    }

    void time_weights(DType type) {
        std::array<double, kSamples.size()>& bytes = weight_bytes_.emplace_back();
        for (std::size_t i = 0; i < kSamples.size(); ++i) {
            const std::size_t part = bytes_ / kSamples[i].divisor;
            bytes[i] = static_cast<double>(bytes_read(type, part));
            timings_.push_back(
                {.work = [this, type, part, n_tokens = kSamples[i].n_tokens] { multiply(type, n_tokens, part); }});
        }
    }

    // Times attention of the layer with the largest KV chunks, over as many of them as fit into a quarter of the
    // weights' memory; the tokens do not see one another.
    void time_kv() {
        const ModelConfig& config = *question_.config;
        const std::int64_t layer = largest_kv_layer(question_);
        const AttentionConfig& heads = config.attention(layer);
        const KvLayout shape = config.kv_layout(layer, question_.kv_dtype);
        const auto n_chunks = static_cast<std::int64_t>(std::max<std::size_t>(bytes_ / 4 / shape.chunk_bytes(), 1));
        kv_ = zeros(n_chunks * shape.chunk_bytes(), MemoryTag::Kv);
        for (std::int64_t i = 0; i < n_chunks; ++i) chunks_.push_back(kv_.data() + i * shape.chunk_bytes());
        scratch_ = zeros(kMostTokens * shape.scratch_row_bytes(), MemoryTag::Kv);
        const std::int64_t q_cols = heads.q_cols();
        q_ = zeros(2 * kMostTokens * row_bytes(DType::F32, q_cols), MemoryTag::Activations);
        path_rows_.resize(kMostTokens);
        for (std::size_t i = 0; i < path_rows_.size(); ++i) path_rows_[i] = static_cast<std::int32_t>(i);
        for (std::size_t i = 0; i < kSamples.size(); ++i) {
            const std::int64_t n_tokens = kSamples[i].n_tokens;
            const auto used = std::max<std::int64_t>(n_chunks / static_cast<std::int64_t>(kSamples[i].divisor), 1);
            kv_bytes_[i] = static_cast<double>(used) * static_cast<double>(shape.chunk_bytes());
            positions_[i].assign(n_tokens, static_cast<std::int32_t>(used * kChunkTokens));
            timings_.push_back({.work = [this, shape, heads, n_tokens, used, q_cols, positions = positions_[i].data()] {
                auto* const q = reinterpret_cast<float*>(q_.data());
                attention(exec(), {.shape = shape,
                                   .q = matrix_view(static_cast<const float*>(q), n_tokens, q_cols),
                                   .out = matrix_view(q + kMostTokens * q_cols, n_tokens, q_cols),
                                   .n_q_heads = heads.n_q_heads,
                                   .positions = positions,
                                   .chunks = chunks_.data(),
                                   .n_committed = used * kChunkTokens,
                                   .scratch_k = scratch_.data(),
                                   .scratch_v = scratch_.data(),
                                   .path_begin = path_rows_.data(),
                                   .path_rows = path_rows_.data(),
                                   .softcap = heads.softcap});
            }});
        }
    }

    /// Memory for what a layer does with experts besides their matmuls, for kManySmallOps tokens.
    struct ExpertOps {
        ExpertsConfig config;
        Buffer router;                                  // [n_experts, d_model], F32
        Buffer logits;                                  // [n_tokens, n_experts], F32
        Buffer rows;                                    // [n_tokens * n_chosen, d_model], F32
        Buffer gate, up;                                // [n_tokens * n_chosen, d_ff], F32
        Buffer sums;                                    // [n_tokens, d_model], F32
        std::vector<std::int32_t> ids, tokens, places;  // [n_tokens * n_chosen]
        std::vector<float> weights;                     // [n_tokens * n_chosen]
    };

    ExpertOps make_expert_ops(const ExpertsConfig& experts) {
        const std::size_t model_row = row_bytes(DType::F32, question_.config->d_model);
        const auto n_rows = static_cast<std::size_t>(kManySmallOps * experts.n_chosen);
        const auto activations = [&](std::size_t bytes) { return zeros(bytes, MemoryTag::Activations); };
        ExpertOps ops{.config = experts,
                      .router = zeros(static_cast<std::size_t>(experts.n_experts) * model_row, MemoryTag::Weights),
                      .logits = activations(kManySmallOps * row_bytes(DType::F32, experts.n_experts)),
                      .rows = activations(n_rows * model_row),
                      .gate = activations(n_rows * row_bytes(DType::F32, experts.d_ff)),
                      .up = activations(n_rows * row_bytes(DType::F32, experts.d_ff)),
                      .sums = activations(kManySmallOps * model_row),
                      .ids = std::vector<std::int32_t>(n_rows),
                      .tokens = {},
                      .places = {},
                      .weights = std::vector<float>(n_rows)};
        for (std::size_t i = 0; i < n_rows; ++i) {
            ops.tokens.push_back(static_cast<std::int32_t>(i) / static_cast<std::int32_t>(experts.n_chosen));
            ops.places.push_back(static_cast<std::int32_t>(i));
        }
        return ops;
    }

    // Runs about what a layer of experts does besides their matmuls: the router and the choice, the rows of (token,
    // expert), their gate, and the sum.
    void expert_ops(const TensorView& x) {
        ExpertOps& ops = *experts_;
        const std::int64_t n_tokens = x.shape[0];
        const std::int64_t n_rows = n_tokens * ops.config.n_chosen;
        const auto rows_of = [](Buffer& buffer, std::int64_t n, std::int64_t cols) {
            return matrix_view(reinterpret_cast<float*>(buffer.data()), n, cols);
        };
        const std::int64_t d_model = question_.config->d_model;
        const TensorView logits = rows_of(ops.logits, n_tokens, ops.config.n_experts);
        const TensorView rows = rows_of(ops.rows, n_rows, d_model);
        const TensorView gate = rows_of(ops.gate, n_rows, ops.config.d_ff);
        matmul(exec(), {.weights = rows_of(ops.router, ops.config.n_experts, d_model), .x = x, .y = logits});
        choose_experts(exec(), {.logits = logits,
                                .n_chosen = ops.config.n_chosen,
                                .weighting = ops.config.weighting,
                                .ids = ops.ids.data(),
                                .weights = ops.weights.data()});
        move_rows(exec(), {.src = x.data,
                           .dst = rows.data,
                           .n_planes = 1,
                           .row_bytes = x.row_stride_bytes,
                           .src_rows = ops.tokens.data(),
                           .dst_rows = ops.places.data(),
                           .n_rows = n_rows});
        const FeedForwardConfig& first = question_.config->layers.front().feed_forward;
        gated_activation(exec(), {.gate = gate,
                                  .up = rows_of(ops.up, n_rows, ops.config.d_ff),
                                  .y = gate,
                                  .kind = first.activation,
                                  .limit = first.activation_limit});
        combine_experts(exec(), {.rows = rows,
                                 .tokens = ops.tokens.data(),
                                 .weights = ops.weights.data(),
                                 .sums = rows_of(ops.sums, n_tokens, d_model),
                                 .from_zero = true});
    }

    // Runs about what a layer does besides matmuls and attention: norms and the gate, and of experts what expert_ops()
    // does.
    void small_ops(std::int64_t n_tokens) {
        const ModelConfig& config = *question_.config;
        const TensorView x = matrix_view(reinterpret_cast<float*>(x_.data()), n_tokens, config.d_model);
        const TensorView wide = matrix_view(reinterpret_cast<float*>(x_.data()), n_tokens, config.max_d_ff());
        const TensorView gate = matrix_view(reinterpret_cast<float*>(y_.data()), n_tokens, config.max_d_ff());
        const ConstTensorView weight =
            vector_view(static_cast<const std::byte*>(weights_.data()), DType::F32, config.d_model);
        for (std::int64_t i = 0; i + 1 < kSmallOpsALayer; ++i) rms_norm(exec(), {.x = x, .weight = weight, .y = x});
        if (experts_) return expert_ops(x);
        const FeedForwardConfig& first = config.layers.front().feed_forward;
        gated_activation(
            exec(), {.gate = gate, .up = wide, .y = gate, .kind = first.activation, .limit = first.activation_limit});
    }

    // Adds the timing of copies while nothing is computed. Call last: result() takes it from the end of timings_.
    void time_copies(DType type) {
        memory_type_ = type;
        copied_ = zeros(std::min(kCopiedBytes, bytes_), MemoryTag::Ring);
        copied_from_ = weights_.data();
        if (!device_.shares_host_memory()) {
            host_ = device_.allocate_host(copied_.size_bytes(), MemoryTag::Ring, "memory to measure the link with");
            copied_from_ = host_.data();
        }
        copies_ = device_.make_stream(StreamKind::CopyIn);
        copies_done_ = device_.make_event();
        timings_.push_back({.work = [this] {
            static_cast<void>(enqueue_copies());
            copies_->synchronize();
        }});
    }

    std::uint64_t enqueue_copies() {
        for (std::size_t at = 0; at < copied_.size_bytes(); at += kCopyPieceBytes)
            copies_->copy(copied_.data() + at, copied_from_ + at, std::min(kCopyPieceBytes, copied_.size_bytes() - at));
        return copies_->record(*copies_done_);
    }

    // Adds to both_ how many bytes of weights are read while copies run. Computes in steps that are short compared with
    // the copies. Each step reads other rows than the one before, since the rows of the last step are in the caches. Of
    // less than twice kCopiedBytes of weights, some are read just after they were copied, from a cache.
    void time_both() {
        const std::int64_t n_rows = rows_of(memory_type_, bytes_);
        const std::int64_t step = rows_of(memory_type_, bytes_ / 16);
        const double bytes_a_row = static_cast<double>(bytes_read(memory_type_, bytes_)) / static_cast<double>(n_rows);
        std::int64_t end = n_rows;  // rows [0, end) are not read yet; copies begin with row 0, so computing at the end
        Both both;
        const std::uint64_t use = enqueue_copies();
        both.seconds = seconds_of([&] {
            while (copies_done_->completed() < use) {
                const std::int64_t n = std::min(step, end);
                multiply_rows(memory_type_, 1, end - n, end);
                both.read += static_cast<double>(n) * bytes_a_row;
                end = n < end ? end - n : n_rows;
            }
        });
        copies_->synchronize();
        both_.push_back(both);
    }

    /// How much was computed while copies ran, in one round.
    struct Both {
        double seconds = 0.0;
        double read = 0.0;  // bytes of weights that were read
    };

    RateQuestion question_;
    std::unique_ptr<CpuDevice> own_device_;
    Device& device_;
    std::unique_ptr<Stream> stream_;
    std::int64_t cols_;         // columns (K) of the matrices
    std::int64_t matrix_rows_;  // rows of one matrix
    std::size_t bytes_ = 0;
    Buffer weights_;
    Buffer x_, y_;
    std::optional<ExpertOps> experts_;                               // empty: the model has none, or a GPU is measured
    std::vector<std::array<double, kSamples.size()>> weight_bytes_;  // [types][samples], bytes that each timing reads
    Buffer kv_, scratch_, q_;
    std::vector<const std::byte*> chunks_;
    std::vector<std::int32_t> path_rows_;
    std::array<std::vector<std::int32_t>, kSamples.size()> positions_;
    std::array<double, kSamples.size()> kv_bytes_{};
    DType memory_type_ = DType::F16;  // type of the weights that are multiplied while copies run
    Buffer copied_, host_;
    const std::byte* copied_from_ = nullptr;
    std::unique_ptr<Stream> copies_;  // null: copies are not timed
    std::unique_ptr<Event> copies_done_;
    std::vector<Timing> timings_;
    std::vector<double> rounds_;  // seconds of each round so far
    std::vector<Both> both_;      // of each round
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

std::vector<DType> timed_types(const RateQuestion& question) {
    const auto bytes = bytes_by_type(question);
    std::vector<DType> types;
    for (int i = 0; i < kDTypeCount; ++i)
        if (bytes[i] > 0) types.push_back(static_cast<DType>(i));
    std::stable_sort(types.begin(), types.end(), [&](DType a, DType b) {
        return bytes[static_cast<std::size_t>(a)] > bytes[static_cast<std::size_t>(b)];
    });
    return types;
}

void fill_other_types(PassRates& rates, const std::vector<DType>& timed) {
    ByteCost slowest;
    for (const DType type : timed)
        if (const ByteCost& cost = rates.weights[static_cast<std::size_t>(type)];
            cost.seconds(1.0) > slowest.seconds(1.0))
            slowest = cost;
    for (int i = 0; i < kDTypeCount; ++i)
        if (std::find(timed.begin(), timed.end(), static_cast<DType>(i)) == timed.end()) rates.weights[i] = slowest;
}

std::string rates_key(const RateQuestion& question) {
    const ModelConfig& config = *question.config;
    std::string device =
        fmt::format("cpu {} {} threads {}", cpu_model(), cpu_form_name(best_cpu_form()), question.n_threads);
    if (const auto* card = dynamic_cast<const CudaDevice*>(question.card))
        device = fmt::format("cuda {} {}", card->properties().name, card->instruction_form());
    const AttentionConfig& heads = config.attention(largest_kv_layer(question));
    std::vector<std::string_view> types;
    for (const DType type : timed_types(question)) types.push_back(dtype_name(type));
    std::string of_experts;
    if (const ExpertsConfig* experts = first_experts(config))
        of_experts = fmt::format(", {} of {} experts of {}", experts->n_chosen, experts->n_experts, experts->d_ff);
    const std::string build = build_commit() == kUnknownCommit
                                  ? std::string(build_version())
                                  : fmt::format("{} ({})", build_version(), build_commit());
    return fmt::format("{} {}, {} MiB of {} for {} x {}{}, {} over {} heads of {} in {}{}", build, device,
                       timed_bytes(question) >> 20, fmt::join(types, "+"), config.d_model, config.max_d_ff(),
                       of_experts, heads.n_q_heads, heads.n_kv_heads, heads.head_dim, kv_type_name(question.kv_dtype),
                       question.effort == RateEffort::Compute ? ", without copies" : "");
}

}  // namespace slipstream::tools
