// The measurements of `slipstream-lab card`. run_card_bench() runs the most important ones first, so that a run that is
// short of time has them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"
#include "tools/lab/card/card_clock.h"
#include "tools/lab/card/card_figures.h"

namespace slipstream::tools {

/// Sizes of all measurements. The defaults are for GPUs; tests use smaller ones.
struct CardSizes {
    std::vector<std::size_t> copy_bytes{std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{16} << 20,
                                        std::size_t{64} << 20};
    std::size_t copied_bytes = std::size_t{512} << 20;  // bytes copied in one direction for each figure
    std::size_t memory_bytes = std::size_t{512} << 20;  // bytes of the copy within the GPU, and of the head start

    std::int64_t rows = 4096;  // of each matrix
    std::int64_t cols = 14336;
    std::int64_t n_matrices = 32;  // used in turn: together larger than any cache
    std::vector<DType> first_types{DType::BF16, DType::Q4_K, DType::Q8_0, DType::F16, DType::Q6_K};
    std::vector<DType> other_types{DType::Q5_K, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q3_K};
    std::vector<std::int64_t> first_tokens{1, 8, 16, 64, 512};
    std::vector<std::int64_t> other_tokens{2, 4, 32, 128, 256, 1024};

    std::int64_t n_q_heads = 32;
    std::int64_t n_kv_heads = 8;
    std::int64_t head_dim = 128;
    std::vector<std::int64_t> contexts{32768, 4096, 131072};
    std::int64_t tree_tokens = 64;
    std::int64_t prefill_tokens = 512;

    std::int64_t d_model = 4096;  // width of the small ops
    std::int64_t d_ff = 14336;
    std::int64_t vocab = 128256;
    std::vector<std::int64_t> op_tokens{1, 64, 512};
    std::int64_t n_launches = 512;
};

struct CardBench {
    CudaDevice& device;
    Stream& stream;  // compute stream
    const CardSizes& sizes;
    CardReport& report;
    CardClock& clock;
    std::chrono::steady_clock::time_point deadline;
    std::int64_t left_out = 0;

    [[nodiscard]] ExecRef exec() { return {device, stream}; }
    /// Returns whether there is time for a measurement, and counts a measurement that is refused. Throws Interrupted
    /// after a signal.
    [[nodiscard]] bool has_time();
};

/// Copies from pinned host memory to the GPU, back, and in both directions at once, for several copy sizes.
void bench_card_copies(CardBench& bench);
/// A small copy on a compute stream while large copies are running.
void bench_card_small_copies(CardBench& bench);
/// The cost of the events that time each copy.
void bench_card_copy_events(CardBench& bench);
/// A large copy within the GPU, which completes report.peaks. Must run first.
void bench_card_memory(CardBench& bench);
/// Matmul of every type of `types` with every number of tokens of `n_tokens`.
void bench_card_matmul(CardBench& bench, const std::vector<DType>& types, const std::vector<std::int64_t>& n_tokens);
/// Attention of one token, of a draft tree and of a prefill chunk after each context.
void bench_card_attention(CardBench& bench);
/// The small ops between matmuls, and the choice of tokens from logits.
void bench_card_ops(CardBench& bench);
/// The cost of a kernel launch for host and GPU if the kernel does almost nothing.
void bench_card_launches(CardBench& bench);

/// Runs all measurements.
void run_card_bench(CardBench& bench);

}  // namespace slipstream::tools
